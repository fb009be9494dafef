//! How long the shell takes, as lines of `name<TAB>milliseconds`.
//!
//! ```text
//! cargo run --release -p fractal-shell --example speed [FILES] [--bash DIR]
//! ```
//!
//! `FILES` (10,000) is the size of the tree. With `--bash DIR`, real bash does
//! the same in a new directory below `DIR`, which should be on a tmpfs. `--work`
//! alone prints what is measured, for others to do the same.
#![allow(clippy::unwrap_used)]

use fractal_fs::{Limits, Vfs};
use fractal_shell::{Settings, Shell};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PER_DIR: usize = 100;

/// How often each is measured.
const ROUNDS: usize = 7;

const WORK: [(&str, &str); 8] = [
    ("grep -r", "grep -r needle tree | wc -l"),
    ("grep -rn regex", "grep -rnE 'line [0-9]+ of' tree | wc -l"),
    ("find name", "find tree -name '*7.txt' | wc -l"),
    ("find exec", "find tree -name '*77.txt' -exec cat {} + | wc -l"),
    ("ls -R", "ls -R tree | wc -l"),
    ("ls -lR", "ls -lR tree | wc -l"),
    (
        "create 4000",
        "mkdir new; for ((i=0;i<4000;i++)); do echo data > new/f$i; done; ls new | wc -l",
    ),
    ("loop 100000", "for ((i=0;i<100000;i++)); do :; done; echo $i"),
];

fn content(number: usize) -> String {
    let word = if number.is_multiple_of(100) { "needle" } else { "straw" };
    (0..10).map(|line| format!("line {line} of file {number} with {word}\n")).collect()
}

fn names(files: usize) -> impl Iterator<Item = (String, usize)> {
    (0..files).map(|number| (format!("tree/d{}/f{number}.txt", number / PER_DIR), number))
}

/// The fastest of some rounds, so that others on the machine count less.
fn best(mut work: impl FnMut() -> Duration) -> f64 {
    (0..ROUNDS).map(|_| work()).min().unwrap().as_secs_f64() * 1000.0
}

fn ours(files: usize) {
    let limits = Limits { bytes_max: 64 << 30, entries_max: 100_000_000 };
    let view = Vfs::new(limits);
    for (name, number) in names(files) {
        view.write_all(format!("/{name}"), content(number)).unwrap();
    }
    let echo = best(|| {
        let start = Instant::now();
        let mut shell = Shell::new(view.clone(), Settings::default());
        assert_eq!(shell.run("echo hi", b"").stdout, b"hi\n");
        start.elapsed()
    });
    println!("new shell and echo\t{echo:.3}");
    let made = best(|| {
        let start = Instant::now();
        let _shell = Shell::new(view.clone(), Settings::default());
        start.elapsed()
    });
    println!("new shell\t{made:.3}");
    let mut shell = Shell::new(view.clone(), Settings::default());
    let again = best(|| {
        let start = Instant::now();
        shell.run("echo hi", b"");
        start.elapsed()
    });
    println!("echo in a session\t{again:.3}");
    for (name, script) in WORK {
        let mut said = Vec::new();
        let time = best(|| {
            let mut shell = Shell::new(view.fork(), Settings::default());
            let start = Instant::now();
            let outcome = shell.run(script, b"");
            assert_eq!(outcome.exit, 0, "{script}: {}", String::from_utf8_lossy(&outcome.stderr));
            said = outcome.stdout;
            start.elapsed()
        });
        println!("{name}\t{time:.3}\t{}", String::from_utf8_lossy(&said).trim());
    }
}

fn bash(files: usize, dir: &Path) {
    let root = dir.join(format!("shell-bench-{}", std::process::id()));
    for (name, number) in names(files) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(number)).unwrap();
    }
    let all = [("new shell and echo", "echo hi")].into_iter().chain(WORK);
    for (name, script) in all {
        let mut said = Vec::new();
        let time = best(|| {
            let _ = std::fs::remove_dir_all(root.join("new"));
            let start = Instant::now();
            said = Command::new("bash")
                .args(["-c", script])
                .current_dir(&root)
                .output()
                .unwrap()
                .stdout;
            start.elapsed()
        });
        println!("bash: {name}\t{time:.3}\t{}", String::from_utf8_lossy(&said).trim());
    }
    std::fs::remove_dir_all(root).unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "--work") {
        return WORK.iter().for_each(|(name, script)| println!("{name}\t{script}"));
    }
    let files = args.first().and_then(|arg| arg.parse().ok()).unwrap_or(10_000);
    ours(files);
    if let Some(at) = args.iter().position(|arg| arg == "--bash") {
        bash(files, Path::new(args.get(at + 1).map_or("/dev/shm", String::as_str)));
    }
}
