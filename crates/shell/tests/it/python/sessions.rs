//! Python among the commands of a script.

use super::{patient, program};
use crate::{run, shown, text};
use fractal_fs::{Access, Vfs};
use fractal_model::SandboxPath;

#[test]
fn programs_come_in_every_usual_way() {
    let mut shell = patient(Vfs::default());
    assert_eq!(run(&mut shell, "python3 -c 'print(1 + 1)'"), "2\n");
    assert_eq!(
        run(&mut shell, "python -c 'import sys; print(sys.argv)' a 'b c'"),
        "['-c', 'a', 'b c']\n"
    );
    assert_eq!(run(&mut shell, "echo 'print(3)' | python3"), "3\n");
    assert_eq!(run(&mut shell, "echo 'import sys; print(sys.argv)' | python3 - x"), "['-', 'x']\n");
    assert_eq!(run(&mut shell, "python3 <<'E'\nfor i in range(2):\n    print(i)\nE"), "0\n1\n");
    assert_eq!(run(&mut shell, "echo '[2, 1]' | python3 -m json.tool --compact"), "[2,1]\n");
    assert_eq!(
        run(
            &mut shell,
            "mkdir -p m; echo 'print(__name__)' > m/__main__.py; python3 m; python3 -m m"
        ),
        "__main__\n__main__\n"
    );
    run(&mut shell, "printf '#!/usr/bin/env python3\\nprint(5)\\n' > s; chmod +x s");
    assert!(run(&mut shell, "python3 --version").starts_with("Python 3."));
    assert_eq!(
        run(&mut shell, "command -v python3 && type python3 > /dev/null; echo $?").lines().last(),
        Some("0")
    );
}

#[test]
fn it_is_a_command_like_any_other() {
    let mut shell = patient(Vfs::default());
    let script = "seq 5 | python3 -c 'import sys; print(sum(map(int, sys.stdin)))' | sed 's/^/sum /' > out; cat out";
    assert_eq!(run(&mut shell, script), "sum 15\n");
    assert_eq!(run(&mut shell, "x=$(python3 -c 'print(\"a b\")'); echo \"[$x]\""), "[a b]\n");
    assert_eq!(run(&mut shell, "python3 -c 'import sys; sys.exit(7)' || echo $?"), "7\n");
    assert_eq!(
        run(&mut shell, "python3 -c '1/0' 2> err; echo $?; tail -n 1 err"),
        "1\nZeroDivisionError: division by zero\n"
    );
    assert_eq!(
        run(
            &mut shell,
            "export A=1; B=2; C=3 python3 -c 'import os; print([os.getenv(n) for n in \"ABC\"])'"
        ),
        "['1', None, '3']\n"
    );
    assert_eq!(
        run(
            &mut shell,
            "mkdir -p /d/e; cd /d/e; python3 -c 'import os; print(os.getcwd()); open(\"x\", \"w\").write(\"y\")'; cat /d/e/x"
        ),
        "/d/e\ny"
    );
    assert_eq!(run(&mut shell, "python3 nothing.py 2> /dev/null; echo $?"), "2\n");
}

#[test]
fn what_the_tree_knows_of_a_file_survives_a_program() {
    let mut shell = patient(Vfs::default());
    run(&mut shell, "echo old > f; chmod 750 f; ln f g; ln -s f l");
    let code = "open('/f', 'w').write('new\\n')\nopen('/l', 'a').write('more\\n')";
    assert_eq!(program(&mut shell, code).exit, 0);
    assert_eq!(
        run(&mut shell, "cat g; stat -c '%a %h' f g; readlink l"),
        "new\nmore\n750 2\n750 2\nf\n"
    );
    shell.view().write(b"/bad\xff", "x").unwrap();
    let code = "import os; n = [n for n in os.listdir(b'/') if n.startswith(b'bad')]; print(n); os.rename(n[0], b'/worse\\xfe')";
    assert_eq!(text(&program(&mut shell, code).stdout), "[b'bad\\xff']\n");
    assert_eq!(run(&mut shell, "ls | grep -c worse"), "1\n");
}

#[test]
fn rules_of_the_view_hold() {
    let view = Vfs::default();
    view.write_all("/ro/f", "fixed").unwrap();
    view.write_all("/hidden/f", "unseen").unwrap();
    view.write_all("/log/f", "1\n").unwrap();
    let rule =
        |path: &str, access| view.set_access(&SandboxPath::parse(path).unwrap(), Some(access));
    rule("/ro", Access::ReadOnly);
    rule("/hidden", Access::Hidden);
    rule("/log", Access::AppendOnly);
    let mut shell = patient(view.clone());
    let outcome = program(
        &mut shell,
        "import os, errno
def tried(act):
    try: act(); return 'done'
    except OSError as e: return errno.errorcode[e.errno]
def write(path, mode):
    with open(path, mode) as f: f.write('2\\n')
print(tried(lambda: write('/ro/f', 'w')), tried(lambda: write('/ro/f', 'a')), tried(lambda: os.remove('/ro/f')), tried(lambda: write('/ro/new', 'w')))
print(tried(lambda: open('/hidden/f')), 'hidden' in os.listdir('/'), tried(lambda: write('/log/f', 'a')), tried(lambda: write('/log/f', 'w')))",
    );
    assert_eq!(
        text(&outcome.stdout),
        "EROFS EROFS EROFS EROFS\nENOENT False done EACCES\n",
        "{}",
        shown(&outcome)
    );
    assert_eq!(view.read("/log/f").unwrap(), "1\n2\n");
}
