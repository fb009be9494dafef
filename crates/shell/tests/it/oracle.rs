//! Scripts of our own, each run by real bash in a temporary directory and by
//! ours: same output, same exit status, same files.
//!
//! `scripts/*.sh` hold them by topic; a line `### name` starts one. Where the
//! shell differs and it cannot be mended here, `scripts/known.txt` says so
//! with a reason. That list may only shrink: an entry that starts to pass
//! fails the test.

use crate::text;
use fractal_fs::Vfs;
use fractal_model::EntryKind;
use fractal_shell::{Settings, Shell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many scripts there are at least, and how many may differ at most.
const SCRIPTS_MIN: usize = 450;
const KNOWN_MAX: usize = 13;

const STDIN: &str = "first line\nsecond line\nthird\n";

#[derive(PartialEq, Eq)]
struct Seen {
    stdout: String,
    exit: i32,
    files: BTreeMap<String, String>,
}

struct Script {
    name: String,
    text: String,
}

fn scripts() -> Vec<Script> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/scripts");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut scripts = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "sh")) {
        let topic = file.file_stem().unwrap().to_string_lossy().into_owned();
        let all = std::fs::read_to_string(file).unwrap();
        for part in all.split("### ").skip(1) {
            let (name, text) = part.split_once('\n').unwrap();
            scripts.push(Script { name: format!("{topic}: {name}"), text: text.to_owned() });
        }
    }
    scripts
}

/// The names of scripts that differ, with the reason.
fn known() -> BTreeMap<String, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/scripts/known.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(" | ").expect("name | reason");
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

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
    Seen { stdout: text(&done.stdout), exit: done.status.code().unwrap_or(-1), files }
}

fn real_files(dir: &Path, at: &str, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let shown = format!("{at}/{}", path.file_name().unwrap().to_string_lossy());
        let meta = path.symlink_metadata().unwrap();
        let mode = meta.permissions().mode() & 0o777;
        let value = if meta.is_dir() {
            real_files(&path, &shown, files);
            "dir".to_owned()
        } else if meta.is_symlink() {
            format!("-> {}", std::fs::read_link(&path).unwrap().display())
        } else {
            format!("{mode:o} {}", text(&std::fs::read(&path).unwrap_or_default()))
        };
        files.insert(shown, value);
    }
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
    our_files(&view, "/w", "", &mut files);
    Seen { stdout: text(&outcome.stdout), exit: outcome.exit, files }
}

fn our_files(view: &Vfs, dir: &str, at: &str, files: &mut BTreeMap<String, String>) {
    for (name, stat) in view.list_stat(dir).unwrap() {
        let (path, shown) = (format!("{dir}/{name}"), format!("{at}/{name}"));
        let value = match stat.kind {
            EntryKind::Directory => {
                our_files(view, &path, &shown, files);
                "dir".to_owned()
            }
            EntryKind::Symlink => format!("-> {}", text(&view.read_link(&path).unwrap())),
            _ => format!("{:o} {}", stat.meta.mode & 0o777, text(&view.read(&path).unwrap())),
        };
        files.insert(shown, value);
    }
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

fn told(side: &str, seen: &Seen) -> String {
    let mut out = format!("--- {side}, exit {}\n{}", seen.exit, seen.stdout);
    for (path, value) in &seen.files {
        let _ = writeln!(out, "    {path}: {value:?}");
    }
    out
}

#[test]
fn scripts_do_here_what_they_do_in_bash() {
    let (scripts, known) = (scripts(), known());
    assert!(scripts.len() >= SCRIPTS_MIN, "only {} scripts", scripts.len());
    assert!(known.len() <= KNOWN_MAX, "{} known differences", known.len());
    let mut names: Vec<&str> = scripts.iter().map(|script| script.name.as_str()).collect();
    let gone: Vec<_> = known.keys().filter(|name| !names.contains(&name.as_str())).collect();
    assert!(gone.is_empty(), "no such script: {gone:?}");
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|two| two[0] == two[1]).collect();
    assert!(twice.is_empty(), "two scripts of one name: {twice:?}");
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut report = String::new();
    let mut failed = 0;
    for script in scripts.iter().filter(|script| script.name.contains(&only)) {
        if let Some(tool) = missing_tool(&script.text) {
            eprintln!("skipped: {}: no {tool} on this machine", script.name);
            continue;
        }
        let (expect, seen) = (real(&script.text), ours(&script.text));
        match (expect == seen, known.get(&script.name)) {
            (true, None) | (false, Some(_)) => continue,
            (true, Some(_)) => {
                let _ = writeln!(report, "=== {}: passes now; take it from known.txt", script.name);
            }
            (false, None) => {
                let _ = writeln!(report, "=== {}\n{}", script.name, script.text);
                report.push_str(&told("bash", &expect));
                report.push_str(&told("ours", &seen));
            }
        }
        failed += 1;
    }
    assert!(failed == 0, "{failed} scripts differ\n{report}");
}
