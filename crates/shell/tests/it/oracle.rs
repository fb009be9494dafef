//! Scripts of our own, each run by real bash in a temporary directory and by
//! ours: same output, same exit status, same files. `scripts/*.sh` hold them.

use crate::compare::{STDIN, Seen, all_agree, our_files, pieces, real_files};
use crate::text;
use fractal_fs::Vfs;
use fractal_shell::{Settings, Shell};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// How many scripts there are at least, and how many may differ at most.
const SCRIPTS_MIN: usize = 450;
const KNOWN_MAX: usize = 13;

fn real(script: &str) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("w");
    std::fs::create_dir(&root).unwrap();
    let input = dir.path().join("stdin");
    std::fs::write(&input, STDIN).unwrap();
    let done = Command::new("bash")
        .args(["-c", script])
        .current_dir(&root)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("HOME", "/home/user")
        .stdin(Stdio::from(std::fs::File::open(input).unwrap()))
        .output()
        .unwrap();
    let mut files = BTreeMap::new();
    real_files(&root, "", &mut files);
    let exit = done.status.code().unwrap_or(-1);
    Seen { stdout: text(&done.stdout), stderr: text(&done.stderr), exit, files }
}

fn ours(script: &str) -> Seen {
    let view = Vfs::default();
    view.make_dir_all("/w").unwrap();
    view.make_dir("/tmp", 0o1777).unwrap();
    let env = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = Settings {
        cwd: "/w".into(),
        env: vec![env("LC_ALL", "C.UTF-8"), env("TZ", "UTC"), env("HOME", "/home/user")],
        ..Settings::default()
    };
    let mut shell = Shell::new(view.clone(), settings);
    let outcome = shell.run(script, STDIN.as_bytes());
    let mut files = BTreeMap::new();
    our_files(&view, b"/w", "", &mut files);
    let (stdout, stderr) = (text(&outcome.stdout), text(&outcome.stderr));
    Seen { stdout, stderr, exit: outcome.exit, files }
}

/// Tools of the machine that some scripts need.
fn missing_tool(script: &str) -> Option<&'static str> {
    ["jq", "zip", "unzip", "patch", "bc"].into_iter().find(|tool| {
        let used = script.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *tool);
        used && !Command::new("bash")
            .args(["-c", &format!("command -v {tool}")])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

#[test]
fn scripts_do_here_what_they_do_in_bash() {
    let scripts = pieces("scripts", "sh");
    assert!(scripts.len() >= SCRIPTS_MIN, "only {} scripts", scripts.len());
    all_agree("scripts", &scripts, KNOWN_MAX, |script| match missing_tool(script) {
        Some(tool) => Err(format!("no {tool} on this machine")),
        None => Ok([real(script), ours(script)]),
    });
}
