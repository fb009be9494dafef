//! Pieces of code in files by topic, each run by the real thing and by ours.
//!
//! A line `### name` starts a piece. Where ours differs and it cannot be
//! mended here, `known.txt` beside them says so with a reason. That list may
//! only shrink: an entry that starts to pass fails the test.

use crate::text;
use fractal_fs::Vfs;
use fractal_model::EntryKind;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub(crate) const STDIN: &str = "first line\nsecond line\nthird\n";

/// What there is to compare after a run; what it complained about is for the
/// report alone.
pub(crate) struct Seen {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: i32,
    pub(crate) files: BTreeMap<String, String>,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        (&self.stdout, self.exit, &self.files) == (&other.stdout, other.exit, &other.files)
    }
}

pub(crate) struct Piece {
    pub(crate) name: String,
    pub(crate) text: String,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

/// All pieces in the files of a folder that end like this.
pub(crate) fn pieces(name: &str, ending: &str) -> Vec<Piece> {
    let entries = std::fs::read_dir(folder(name)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut pieces = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == ending)) {
        let topic = file.file_stem().unwrap().to_string_lossy().into_owned();
        let all = std::fs::read_to_string(file).unwrap();
        for part in all.split("### ").skip(1) {
            let (name, text) = part.split_once('\n').unwrap();
            pieces.push(Piece { name: format!("{topic}: {name}"), text: text.to_owned() });
        }
    }
    pieces
}

/// The names of pieces that differ, with the reason.
fn known(name: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder(name).join("known.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(" | ").expect("name | reason");
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

pub(crate) fn real_files(dir: &Path, at: &str, files: &mut BTreeMap<String, String>) {
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

pub(crate) fn our_files(view: &Vfs, dir: &[u8], at: &str, files: &mut BTreeMap<String, String>) {
    for (name, stat) in view.list_stat(dir).unwrap() {
        let path = [dir, b"/", name.bytes()].concat();
        let shown = format!("{at}/{}", text(name.bytes()));
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

fn told(side: &str, seen: &Seen) -> String {
    let mut out = format!("--- {side}, exit {}\n{}", seen.exit, seen.stdout);
    let _ = writeln!(out, "--- standard error of {side}\n{}", seen.stderr);
    for (path, value) in &seen.files {
        let _ = writeln!(out, "    {path}: {value:?}");
    }
    out
}

/// Holds every piece of a folder against both sides, `[real, ours]`; `none`
/// from `run` means that this machine cannot run it. `ONLY=text` picks some.
pub(crate) fn all_agree(
    folder: &str,
    pieces: &[Piece],
    known_max: usize,
    run: impl Fn(&str) -> Result<[Seen; 2], String>,
) {
    let known = known(folder);
    assert!(known.len() <= known_max, "{} known differences", known.len());
    let mut names: Vec<&str> = pieces.iter().map(|piece| piece.name.as_str()).collect();
    let gone: Vec<_> = known.keys().filter(|name| !names.contains(&name.as_str())).collect();
    assert!(gone.is_empty(), "nothing of that name: {gone:?}");
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|two| two[0] == two[1]).collect();
    assert!(twice.is_empty(), "two of one name: {twice:?}");
    let only = std::env::var("ONLY").unwrap_or_default();
    let (mut report, mut failed) = (String::new(), 0);
    for piece in pieces.iter().filter(|piece| piece.name.contains(&only)) {
        let [expect, seen] = match run(&piece.text) {
            Ok(both) => both,
            Err(missing) => {
                eprintln!("skipped: {}: {missing}", piece.name);
                continue;
            }
        };
        match (expect == seen, known.get(&piece.name)) {
            (true, None) | (false, Some(_)) => continue,
            (true, Some(_)) => {
                let _ = writeln!(report, "=== {}: passes now; take it from known.txt", piece.name);
            }
            (false, None) => {
                let _ = writeln!(report, "=== {}\n{}", piece.name, piece.text);
                report.push_str(&told("real", &expect));
                report.push_str(&told("ours", &seen));
            }
        }
        failed += 1;
    }
    assert!(failed == 0, "{failed} differ\n{report}");
}
