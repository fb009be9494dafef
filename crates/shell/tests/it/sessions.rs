//! What a session keeps, and what it does not.

use crate::{run, shell, shown, text};
use fractal_fs::{Kind, Limits, Vfs};
use fractal_shell::{Ended, Settings, Shell};

#[test]
fn directory_variables_functions_options_and_aliases_stay() {
    let mut shell = shell();
    run(&mut shell, "mkdir -p /a/b; cd /a/b; x=1; y=(p q); f() { echo f:$1; }; shopt -s nullglob");
    run(&mut shell, "shopt -s expand_aliases; alias hi='echo hello'; set -o pipefail");
    assert_eq!(shell.cwd(), "/a/b");
    assert_eq!(
        run(&mut shell, "pwd; echo $x ${y[1]}; f z; echo *.none; hi"),
        "/a/b\n1 q\nf:z\n\nhello\n"
    );
    assert_eq!(shell.run("false | true", b"").exit, 1);
    run(&mut shell, "set +o pipefail; set -e");
    let outcome = shell.run("echo $LINENO; false | true; false; echo never", b"");
    assert_eq!((outcome.exit, text(&outcome.stdout)), (1, "1\n".into()));
    run(&mut shell, "set +e");
    assert_eq!(run(&mut shell, "false; echo on"), "on\n");
}

#[test]
fn an_exit_ends_the_script_and_not_the_session() {
    let mut shell = shell();
    let outcome = shell.run("x=5; exit 3; echo never", b"");
    assert_eq!((outcome.exit, outcome.stdout.len(), outcome.ended), (3, 0, Ended::Exited));
    assert_eq!(run(&mut shell, "echo $x"), "5\n");
}

#[test]
fn a_syntax_error_is_an_outcome_of_two() {
    let mut shell = shell();
    let outcome = shell.run("if true; then", b"");
    assert_eq!((outcome.exit, outcome.ended.clone()), (2, Ended::Exited), "{}", shown(&outcome));
    assert!(!outcome.stderr.is_empty());
    assert_eq!(run(&mut shell, "echo on"), "on\n");
}

#[test]
fn the_caller_sets_directory_and_variables() {
    let mut shell = shell();
    shell.set_env("TOKEN", "it's");
    run(&mut shell, "mkdir -p \"/it's here\"; touch /f");
    shell.set_cwd("/it's here").unwrap();
    assert_eq!(
        run(&mut shell, "pwd; echo $TOKEN; env | grep TOKEN"),
        "/it's here\nit's\nTOKEN=it's\n"
    );
    assert_eq!(shell.set_cwd("/none").unwrap_err().kind, Kind::NotFound);
    assert_eq!(shell.set_cwd("/f").unwrap_err().kind, Kind::NotADirectory);
    assert_eq!(shell.cwd(), "/it's here");
}

#[test]
fn settings_are_what_a_script_sees() {
    let env = vec![("A".to_owned(), "1".to_owned())];
    let view = Vfs::default();
    view.make_dir_all("/w").unwrap();
    let settings = Settings { env, cwd: "/w".into(), user: "ann".into(), ..Settings::default() };
    let mut shell = Shell::new(view, settings);
    assert_eq!(run(&mut shell, "echo $A $PWD $USER $(whoami) $(id -u)"), "1 /w ann ann 1000\n");
}

#[test]
fn input_is_bytes_and_so_is_output() {
    let mut shell = shell();
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(shell.run("cat", &bytes).stdout, bytes);
    assert_eq!(shell.run("cat > f; cat f", &bytes).stdout, bytes);
    assert_eq!(shell.run("cat f | cat", b"").stdout, bytes);
    assert_eq!(&shell.view().read("/f").unwrap()[..], &bytes[..]);
    assert_eq!(shell.run("wc -c", &bytes).stdout, b"256\n");
}

#[test]
fn two_shells_of_one_view_see_the_same_files_and_forks_do_not() {
    let view = Vfs::default();
    let mut one = Shell::new(view.clone(), Settings::default());
    let mut two = Shell::new(view.clone(), Settings::default());
    let mut fork = Shell::new(view.fork(), Settings::default());
    run(&mut one, "echo hi > f; x=1");
    assert_eq!(run(&mut two, "cat f; echo [$x]"), "hi\n[]\n");
    assert_eq!(fork.run("cat f", b"").exit, 1);
}

#[test]
fn names_that_are_no_text_can_be_worked_with() {
    let view = Vfs::default();
    view.write("/\u{e4}".as_bytes(), "plain").unwrap();
    view.write(b"/b\xff\xfe.txt", "odd").unwrap();
    let mut shell = Shell::new(view.clone(), Settings::default());
    let script = "for f in /*.txt; do cat \"$f\"; mv \"$f\" \"$f.bak\"; done; \
                  find / -name '*.bak' -print0 | xargs -0 cat; cp /b* /copy; rm /b*";
    assert_eq!(run(&mut shell, script), "oddodd");
    let names: Vec<Vec<u8>> =
        view.list("/").unwrap().iter().map(|entry| entry.name.bytes().to_vec()).collect();
    assert_eq!(names, [b"copy".to_vec(), "\u{e4}".as_bytes().to_vec()]);
    view.write(b"/x\xc3", "").unwrap();
    let listed = shell.run("ls /x*", b"");
    assert_eq!(&*fractal_shell::name::bytes(text(&listed.stdout).trim()), b"/x\xc3");
}

#[test]
fn errors_of_the_tree_read_as_those_of_bash() {
    let view = Vfs::new(Limits { bytes_max: 1000, entries_max: 20 });
    view.write_all("/ro/f", "x").unwrap();
    let read_only = fractal_model::SandboxPath::parse("/ro").unwrap();
    view.set_access(&read_only, Some(fractal_fs::Access::ReadOnly));
    view.make_dir("/d", 0o755).unwrap();
    let mut shell = Shell::new(view, Settings::default());
    let mut says = |script: &str, expect: &str| {
        let outcome = shell.run(script, b"");
        let said = text(&outcome.stderr);
        assert!(outcome.exit != 0 && said.contains(expect), "{script}: {said}");
    };
    says("cat /none", "No such file or directory");
    says("echo x > /none/f", "No such file or directory");
    says("echo x > /d", "Is a directory");
    says("cat /d", "Is a directory");
    says("echo x > /ro/f", "Read-only file system");
    says("touch /ro/new", "Read-only file system");
    says("rm /ro/f", "Read-only file system");
    says("mkdir /ro/d", "Read-only file system");
    says("mv /ro/f /g", "Read-only file system");
    says("cp /d /ro/x -r", "Read-only file system");
    says("printf '%2000s' x > /big", "No space left on device");
    says(
        "for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h i j; do mkdir /m$i || break; done; false",
        "No space left on device",
    );
    says("rmdir /m*; ln -s loop /loop; cat /loop", "Too many levels of symbolic links");
    says("cat /ro/f/x", "Not a directory");
}

#[test]
fn a_session_may_live_and_end_inside_a_command_of_another() {
    let mut shell = shell();
    shell.register("inner", |call: &fractal_shell::Call| {
        let view = call.view.clone();
        let done = std::thread::spawn(move || {
            let mut inner = Shell::new(view, Settings::default());
            let outcome = inner.run("echo inner", b"");
            (inner, outcome)
        });
        // The session comes back, and ends here.
        let (_inner, outcome) = done.join().unwrap();
        fractal_shell::Output::ok(outcome.stdout)
    });
    assert_eq!(run(&mut shell, "inner; echo outer"), "inner\nouter\n");
}
