//! Programs of our own, each run by the machine's `python3` in a temporary
//! directory and by ours over a view: same output, same exit status, same
//! files. `programs/*.py` hold them.

use crate::compare::{STDIN, Seen, all_agree, our_files, pieces, real_files};
use crate::text;
use fractal_fs::Vfs;
use fractal_shell::{Settings, Shell};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How many programs there are at least, and how many may differ at most.
const PROGRAMS_MIN: usize = 135;
const KNOWN_MAX: usize = 3;

const ARGS: [&str; 3] = ["../program.py", "one", "two words"];
const ENV: [(&str, &str); 3] = [("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("HOME", "/home/user")];

fn real(program: &str) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("w");
    std::fs::create_dir(&root).unwrap();
    let input = dir.path().join("stdin");
    std::fs::write(&input, STDIN).unwrap();
    std::fs::write(dir.path().join("program.py"), program).unwrap();
    let done = Command::new("python3")
        .args(ARGS)
        .current_dir(&root)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs(ENV)
        .stdin(Stdio::from(std::fs::File::open(input).unwrap()))
        .output()
        .unwrap();
    let mut files = BTreeMap::new();
    real_files(&root, "", &mut files);
    let exit = done.status.code().unwrap_or(-1);
    Seen { stdout: text(&done.stdout), stderr: text(&done.stderr), exit, files }
}

fn ours(program: &str) -> Seen {
    let view = Vfs::default();
    view.make_dir_all("/w").unwrap();
    view.make_dir("/tmp", 0o1777).unwrap();
    view.write("/program.py", program.to_owned()).unwrap();
    let settings = Settings {
        cwd: "/w".into(),
        env: ENV.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        time_max: Duration::from_secs(600),
        ..Settings::default()
    };
    let mut shell = Shell::new(view.clone(), settings);
    let script = format!("python3 {} {} '{}'", ARGS[0], ARGS[1], ARGS[2]);
    let outcome = shell.run(&script, STDIN.as_bytes());
    let mut files = BTreeMap::new();
    our_files(&view, b"/w", "", &mut files);
    let (stdout, stderr) = (text(&outcome.stdout), text(&outcome.stderr));
    Seen { stdout, stderr, exit: outcome.exit, files }
}

#[test]
fn programs_do_here_what_they_do_in_cpython() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let programs = pieces("programs", "py");
    assert!(programs.len() >= PROGRAMS_MIN, "only {} programs", programs.len());
    all_agree("programs", &programs, KNOWN_MAX, |program| Ok([real(program), ours(program)]));
}
