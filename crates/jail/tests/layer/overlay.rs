//! The real overlayfs as the oracle: random commands run through a mounted
//! overlay, a plain copy of what it shows is kept, and our view of its layers
//! must show the same.

use crate::support::path;
use fractal_jail::layer::{Bounds, Layer, Step, View, changes};
use fractal_model::{Change, ChangeKind, EntryKind, SandboxPath};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Everything that counts about an entry.
type Value = (EntryKind, u32, u32, u32, Vec<u8>);
pub type Tree = BTreeMap<SandboxPath, Value>;

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.roll(3);
        let parts: Vec<_> =
            (0..depth).map(|_| ["a", "b", "c", "d"][self.roll(4) as usize]).collect();
        parts.join("/")
    }

    /// A command that may fail: what stands in its way is random too.
    fn command(&mut self) -> String {
        let (a, b) = (self.path(), self.path());
        match self.roll(11) {
            0 | 1 => format!("mkdir -p {a}"),
            2 | 3 => format!("echo {} > {a}", self.roll(3)),
            4 => format!("rm -rf {a}"),
            5 => format!("rm -rf {a}; mkdir -p {a}; echo x > {a}/new"),
            6 => format!("rm -rf {b}; mv {a} {b}"),
            7 => format!("ln -sfn {a} {b}"),
            8 => format!("chmod {} {a}", ["755", "700", "644", "4755"][self.roll(4) as usize]),
            9 => format!("touch {a}"),
            // A name that nothing else writes to: writing to a fifo waits.
            _ => format!("mkfifo {a}/pipe; chown {}:0 {b}", self.roll(2)),
        }
    }

    pub fn script(&mut self, count: u64) -> String {
        let mut script = String::new();
        for _ in 0..count {
            writeln!(script, "({}) 2>/dev/null", self.command()).expect("a string takes all");
        }
        script
    }
}

/// Runs two generations of commands in overlays over `base` and keeps copies
/// of what they showed. Leaves `one`/`two` (layers) and `see1`/`see2`.
fn play(dir: &Path, dice: &mut Dice, option: &str) -> Result<(), String> {
    let (first, second, base) = (dice.script(15), dice.script(15), dice.script(20));
    let script = format!(
        "umask 022; mkdir base m; (cd base; {base})
{}cp -a m see1; umount m
{}cp -a m see2; umount m",
        overlay_script("base", "one", option, &first),
        overlay_script("one:base", "two", option, &second),
    );
    sh(dir, &script)
}

/// Commands that mount an overlay whose writable layer is `upper`, and run
/// others in it.
pub fn overlay_script(lower: &str, upper: &str, option: &str, commands: &str) -> String {
    format!(
        "mkdir {upper} w-{upper}
mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir=w-{upper}{option} m || exit 77
(cd m; {commands})\n"
    )
}

/// Runs commands in a mount namespace of their own.
pub fn sh(dir: &Path, script: &str) -> Result<(), String> {
    let output = Command::new("unshare")
        .args(["-m", "sh", "-uc", script])
        .current_dir(dir)
        .output()
        .map_err(|error| format!("no unshare: {error}"))?;
    let explain = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        _ => Err(format!("no overlay mounts here: {}", explain())),
    }
}

pub fn read_disk(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry")) {
            let at = entry.path();
            let meta = fs::symlink_metadata(&at).expect("stat");
            let (kind, content) = match meta.file_type() {
                kind if kind.is_dir() => (EntryKind::Directory, Vec::new()),
                kind if kind.is_symlink() => {
                    let target = fs::read_link(&at).expect("link");
                    (EntryKind::Symlink, target.as_os_str().as_bytes().to_vec())
                }
                kind if kind.is_file() => (EntryKind::File, fs::read(&at).expect("read")),
                _ => (EntryKind::Special, Vec::new()),
            };
            let below = at.strip_prefix(root).expect("below").as_os_str().as_bytes();
            let value = (kind, meta.mode() & 0o777, meta.uid(), meta.gid(), content);
            tree.insert(path(below), value);
            if kind == EntryKind::Directory {
                todo.push(at);
            }
        }
    }
    tree
}

pub fn read_view(view: &View) -> Tree {
    let mut tree = Tree::new();
    let walked = view.walk(&SandboxPath::root(), &Bounds::default(), |at, entry| {
        let mut content = entry.target.clone().unwrap_or_default();
        if entry.kind == EntryKind::File {
            let mut file = view.open_file(at).expect("open");
            file.read_to_end(&mut content).expect("read");
        }
        let looked_up = view.lookup(at).expect("lookup").expect("there");
        assert_eq!(&looked_up, entry, "{at}");
        tree.insert(at.clone(), (entry.kind, entry.mode, entry.uid, entry.gid, content));
        Step::Continue
    });
    let walked = walked.expect("walk");
    assert!(!walked.truncated && walked.unreadable == 0);
    tree
}

fn naive_changes(before: &Tree, after: &Tree) -> Vec<(SandboxPath, ChangeKind, EntryKind)> {
    let mut all: Vec<&SandboxPath> = before.keys().chain(after.keys()).collect();
    all.sort();
    all.dedup();
    let mut out = Vec::new();
    for at in all {
        match (before.get(at), after.get(at)) {
            (None, Some(new)) => out.push((at.clone(), ChangeKind::Added, new.0)),
            (Some(old), None) => out.push((at.clone(), ChangeKind::Deleted, old.0)),
            (Some(old), Some(new)) if old != new => {
                out.push((at.clone(), ChangeKind::Modified, new.0));
            }
            _ => {}
        }
    }
    out
}

fn short(list: &[Change]) -> Vec<(SandboxPath, ChangeKind, EntryKind)> {
    list.iter().map(|change| (change.path.clone(), change.kind, change.entry)).collect()
}

#[test]
fn a_view_shows_what_overlayfs_shows() {
    for seed in 1..=30u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let option = if seed % 2 == 0 { ",userxattr" } else { ",redirect_dir=off,metacopy=off" };
        if let Err(reason) = play(dir.path(), &mut dice, option) {
            println!("skipped: {reason}");
            return;
        }
        let open = |name: &str| Layer::open(&dir.path().join(name)).expect("layer");
        let base = View { host: Some(open("base")), ..View::default() };
        let one = base.with_layers_on_top(&[open("one")]);
        let two = one.with_layers_on_top(&[open("two")]);
        let disk = |name: &str| read_disk(&dir.path().join(name));
        let (see0, see1, see2) = (disk("base"), disk("see1"), disk("see2"));
        assert_eq!(read_view(&base), see0, "seed {seed}");
        assert_eq!(read_view(&one), see1, "seed {seed}");
        assert_eq!(read_view(&two), see2, "seed {seed}");
        let check = |own: &[Layer], base: &View, expect: Vec<_>, what: &str| {
            let found = changes(own, base, &Bounds::default()).expect("changes");
            assert_eq!(short(&found.list), expect, "seed {seed}, {what}");
            assert!(!found.truncated && found.unreadable == 0);
        };
        check(&[open("one")], &base, naive_changes(&see0, &see1), "first on base");
        check(&[open("two")], &one, naive_changes(&see1, &see2), "second on first");
        check(&[open("two"), open("one")], &base, naive_changes(&see0, &see2), "both on base");
    }
}
