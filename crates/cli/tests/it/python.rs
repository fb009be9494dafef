//! `fractal py`: programs in memory over the project.

#![allow(clippy::unwrap_used)]

use crate::world::{Answer, FRACTAL, World};
use std::io::Write;
use std::process::Stdio;

fn given(world: &World, args: &[&str], input: &str) -> Answer {
    let mut command = world.command(FRACTAL);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Answer::from(child.wait_with_output().unwrap())
}

#[cfg(not(feature = "python"))]
#[test]
fn without_the_feature_it_says_so() {
    let answer = given(&World::new(), &["py", "-c", "print(1)"], "");
    assert_eq!(answer.status, 125, "{}", answer.err);
    assert!(answer.err.contains("built without Python"), "{}", answer.err);
    assert!(answer.err.contains("fractal run -- python3"), "{}", answer.err);
}

#[cfg(feature = "python")]
mod with_it {
    use super::*;

    fn project() -> World {
        let world = World::new();
        world.write("data.csv", "name,n\nann,1\nbob,2\n");
        world.write("beside.py", "def total(rows): return sum(int(row['n']) for row in rows)\n");
        let main = "import csv, sys, beside\n\
                    print(beside.total(csv.DictReader(open('data.csv'))), sys.argv)\n\
                    open('out.txt', 'w').write('made\\n')\nsys.exit(len(sys.argv))\n";
        world.write("main.py", main);
        world
    }

    #[test]
    fn a_program_works_on_the_project_and_reality_stays() {
        let world = project();
        let answer = world.fractal(&["py", "--name", "v", "main.py", "a b", "-c"]);
        assert_eq!((answer.status, answer.out.as_str()), (3, "3 ['main.py', 'a b', '-c']\n"));
        assert!(!world.project().join("out.txt").exists());
        assert_eq!(world.ok(&["diff", "v", "--name-status"]).out, "A\tout.txt\n");
        // Later programs, scripts and commands go on there.
        let code = "open('out.txt', 'a').write('more\\n'); print(open('out.txt').read(), end='')";
        assert_eq!(world.ok(&["py", "--in", "v", "-c", code]).out, "made\nmore\n");
        let script = "python3 -c 'print(6 * 7)' | sed s/4/four/ && cat out.txt";
        assert_eq!(world.ok(&["sh", "--in", "v", "-c", script]).out, "four2\nmade\nmore\n");
        world.ok(&["promote", "v"]);
        let promoted = std::fs::read_to_string(world.project().join("out.txt")).unwrap();
        assert_eq!(promoted, "made\nmore\n");
    }

    #[test]
    fn programs_and_input_come_in_every_usual_way() {
        let world = project();
        let python = |args: &[&str], input: &str| {
            let args = [&["py", "--rm"], args].concat();
            given(&world, &args, input).out
        };
        let read = "import sys; print(sys.argv, sys.stdin.read())";
        assert_eq!(python(&["-c", read, "x"], "in"), "['-c', 'x'] in\n");
        let argv = "import sys\nprint(sys.argv)\n";
        assert_eq!(python(&[], argv), "['-']\n");
        assert_eq!(python(&["-", "x", "-y"], argv), "['-', 'x', '-y']\n");
        let answer = world.fractal(&["run", "--virtual", "--rm", "--", "python3", "main.py"]);
        assert_eq!((answer.status, answer.out.as_str()), (1, "3 ['main.py']\n"));
        let answer = world.fractal(&["py", "--rm", "none.py"]);
        assert_eq!(answer.status, 2, "{}", answer.err);
        let args = ["py", "--rm", "-e", "A=b", "-w", "/tmp", "-c"];
        let code = "import os; print(os.environ['A'], os.getcwd(), 'PATH' in os.environ)";
        let answer = world.ok(&[&args[..], &[code]].concat());
        assert!(answer.out.starts_with("b /tmp "), "{}", answer.out);
    }

    #[test]
    fn the_answer_is_that_of_any_run() {
        let world = project();
        let code =
            "import sys; print('out'); print('err', file=sys.stderr); open('n', 'w'); sys.exit(9)";
        let (status, reply) = world.json(&["py", "--json", "--name", "v", "-c", code]);
        assert_eq!((status, reply["exit"].as_i64()), (9, Some(9)));
        assert_eq!((&reply["stdout"], &reply["stderr"]), (&"out\n".into(), &"err\n".into()));
        assert_eq!(reply["isolation"]["tier"], "virtual");
        assert_eq!(reply["changes"].as_array().unwrap().len(), 1, "{reply}");
    }

    #[test]
    fn limits_end_a_program_and_its_work_stays() {
        let world = project();
        let code = "f = open('x', 'w'); f.write('kept'); f.flush()\nwhile True: pass";
        let (_, reply) = world.json(&["py", "--json", "--name", "v", "--time", "5s", "-c", code]);
        assert_eq!(
            (&reply["outcome"], &reply["exit"]),
            (&"timeout".into(), &124.into()),
            "{reply}"
        );
        assert_eq!(world.ok(&["sh", "--in", "v", "-c", "cat x"]).out, "kept");
        let code = "try: bytearray(200 << 20)\nexcept MemoryError: print('told')";
        assert_eq!(world.ok(&["py", "--rm", "--memory", "128m", "-c", code]).out, "told\n");
        let answer = world.fractal(&["py", "--rm", "--memory", "16m", "-c", "print(1)"]);
        assert_eq!(answer.status, 126, "{}", answer.err);
        let args = ["py", "--rm", "--output", "1k", "-c", "for i in range(9999): print(i)"];
        let answer = world.fractal(&args);
        assert_eq!((answer.status, answer.out.len() <= 1024), (137, true), "{}", answer.err);
    }

    #[test]
    fn nothing_else_of_the_machine_is_there() {
        let world = project();
        std::fs::write(world.root().join("secret"), "s3cret").unwrap();
        let code = "import os\nfor path in ['../secret', '/etc/passwd', '/proc/self/environ']:\n    \
                    try: print(open(path).read())\n    except OSError as e: print(type(e).__name__)\n\
                    print(dict(os.environ))";
        let answer = world.ok(&["py", "--rm", "-c", code]);
        assert!(answer.out.starts_with(&"FileNotFoundError\n".repeat(3)), "{}", answer.out);
        for word in ["s3cret", "root:", "FRACTAL_HOME"] {
            assert!(!answer.out.contains(word), "{}", answer.out);
        }
    }

    #[test]
    fn an_interrupt_ends_a_program() {
        let world = project();
        let args = ["py", "--rm", "-c", "while True: pass"];
        let answer = crate::virtually::interrupted(&world, &args);
        assert_eq!(answer.status, 130, "{}", answer.err);
    }
}
