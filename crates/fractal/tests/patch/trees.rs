//! Random pairs of trees, on disk as a base directory and a layer over it.

use fractal_jail::layer::{Bounds, Changes, Layer, View, changes};
use rustix::fs::{CWD, FileType, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What stands at a path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File { content: Vec<u8>, executable: bool },
    Symlink(Vec<u8>),
}

pub type Tree = BTreeMap<Vec<u8>, Node>;

/// A small generator with a seed, so that a failure can be run again.
pub struct Dice {
    state: u64,
    /// How many different lines texts are made of.
    vocabulary: usize,
}

impl Dice {
    pub fn new(seed: u64, vocabulary: usize) -> Dice {
        Dice { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), vocabulary }
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % sides
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }

    fn name(&mut self) -> Vec<u8> {
        const NAMES: &[&[u8]] = &[
            b"a",
            b"b",
            b"c.rs",
            b"with space",
            b"tab\there",
            b"new\nline",
            b"quote\"d",
            b"back\\slash",
            "\u{fc}ml\u{e4}ut".as_bytes(),
            b"not-utf8-\xff\xfe",
            b"a-b",
            b"a.b",
            b"-dash",
            b"\x01\x7f",
        ];
        self.pick(NAMES).to_vec()
    }

    fn path(&mut self) -> Vec<u8> {
        let parts: Vec<_> = (0..1 + self.roll(3)).map(|_| self.name()).collect();
        parts.join(&b'/')
    }

    fn text(&mut self) -> Vec<u8> {
        const ENDS: &[&[u8]] = &[b"\n", b"\n", b"\n", b"\r\n"];
        let mut out = Vec::new();
        for _ in 0..self.roll(60) {
            let (indent, word) = (self.roll(3), self.roll(self.vocabulary));
            let line = format!("{}line {word}", " ".repeat(indent));
            out.extend(line.bytes());
            out.extend(self.pick(ENDS));
        }
        if self.roll(4) == 0 {
            out.extend(b"no newline at the end");
        }
        out
    }

    fn edited(&mut self, text: &[u8]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> =
            text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        for _ in 0..1 + self.roll(4) {
            let at = self.roll(lines.len() + 1);
            match self.roll(3) {
                0 if at < lines.len() => drop(lines.remove(at)),
                1 if at < lines.len() => lines[at] = b"changed\n".to_vec(),
                _ => lines.insert(at, format!("fresh {}\n", self.roll(9)).into_bytes()),
            }
        }
        lines.concat()
    }

    fn binary(&mut self) -> Vec<u8> {
        (0..self.roll(400)).map(|_| self.roll(256) as u8).chain([0]).collect()
    }

    fn node(&mut self, with_binary: bool) -> Node {
        match self.roll(8) {
            0 => Node::Symlink(
                self.pick::<[u8]>(&[b"a", b"../x", b"/etc/passwd", b"odd \xff\n"]).to_vec(),
            ),
            1 => Node::File { content: Vec::new(), executable: false },
            2 if with_binary => {
                Node::File { content: self.binary(), executable: self.roll(2) == 0 }
            }
            _ => Node::File { content: self.text(), executable: self.roll(4) == 0 },
        }
    }

    /// A tree in which no file stands where a directory is needed.
    pub fn tree(&mut self, with_binary: bool) -> Tree {
        let mut tree = Tree::new();
        for _ in 0..self.roll(14) {
            let (path, node) = (self.path(), self.node(with_binary));
            put(&mut tree, path, node);
        }
        tree
    }

    pub fn changed(&mut self, tree: &Tree, with_binary: bool) -> Tree {
        let mut out = tree.clone();
        for (path, node) in tree {
            match (self.roll(6), node) {
                (0, _) => drop(out.remove(path)),
                (1, Node::File { content, executable }) => {
                    let content = self.edited(content);
                    out.insert(path.clone(), Node::File { content, executable: *executable });
                }
                (2, Node::File { content, executable }) => {
                    let content = content.clone();
                    out.insert(path.clone(), Node::File { content, executable: !executable });
                }
                (3, _) => drop(out.insert(path.clone(), self.node(with_binary))),
                _ => {}
            }
        }
        for _ in 0..self.roll(4) {
            let (path, node) = (self.path(), self.node(with_binary));
            put(&mut out, path, node);
        }
        out
    }
}

/// Adds a node; what stands in its way (above or below) goes.
fn put(tree: &mut Tree, path: Vec<u8>, node: Node) {
    let mut below = path.clone();
    below.push(b'/');
    tree.retain(|other, _| {
        let mut other_below = other.clone();
        other_below.push(b'/');
        !other.starts_with(&below) && !path.starts_with(&other_below)
    });
    tree.insert(path, node);
}

pub fn join(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

pub fn write_node(root: &Path, path: &[u8], node: &Node) {
    let at = join(root, path);
    fs::create_dir_all(at.parent().expect("below the root")).expect("directories can be made");
    match node {
        Node::Symlink(target) => symlink(OsStr::from_bytes(target), at).expect("symlink"),
        Node::File { content, executable } => {
            fs::write(&at, content).expect("write");
            let mode = if *executable { 0o755 } else { 0o644 };
            fs::set_permissions(&at, fs::Permissions::from_mode(mode)).expect("chmod");
        }
    }
}

pub fn write_tree(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).expect("the root can be made");
    tree.iter().for_each(|(path, node)| write_node(root, path, node));
}

pub fn read_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).expect("readable").map(|entry| entry.expect("entry")) {
            let path = entry.path();
            let kind = entry.file_type().expect("type");
            let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            if kind.is_dir() {
                if name != b".git" {
                    todo.push(path);
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).expect("link");
                tree.insert(name, Node::Symlink(target.as_os_str().as_bytes().to_vec()));
            } else {
                let executable = entry.metadata().expect("stat").permissions().mode() & 0o100 != 0;
                let content = fs::read(&path).expect("read");
                tree.insert(name, Node::File { content, executable });
            }
        }
    }
    tree
}

/// Every directory a tree needs.
fn directories(tree: &Tree) -> BTreeSet<Vec<u8>> {
    let slashes = |path: &[u8]| -> Vec<Vec<u8>> {
        (0..path.len()).filter(|at| path[*at] == b'/').map(|at| path[..at].to_vec()).collect()
    };
    tree.keys().flat_map(|path| slashes(path)).collect()
}

/// Writes the layer that turns `before` into `after`, with some files copied
/// up although they did not change.
pub fn write_layer(root: &Path, before: &Tree, after: &Tree, dice: &mut Dice) {
    fs::create_dir_all(root).expect("the root can be made");
    for (path, node) in after {
        if before.get(path) != Some(node) || dice.roll(3) == 0 {
            write_node(root, path, node);
        }
    }
    let kept = directories(after);
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]);
        let gone = ends.map(|end| &path[..end]).find(|part| !kept.contains(*part));
        match gone {
            Some(part) if !after.contains_key(part) => whiteout(&join(root, part)),
            _ => {}
        }
    }
}

pub fn whiteout(at: &Path) {
    fs::create_dir_all(at.parent().expect("below the root")).expect("directories can be made");
    match rustix::fs::mknodat(CWD, at, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => panic!("mknod c 0 0: {errno}"),
    }
}

/// A base and a layer over it, on disk and as views.
pub struct Scene {
    pub dir: tempfile::TempDir,
    pub base: View,
    pub top: View,
    pub changes: Changes,
}

impl Scene {
    pub fn new(before: &Tree, after: &Tree, dice: &mut Dice) -> Scene {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (base_path, layer_path) = (dir.path().join("base"), dir.path().join("layer"));
        write_tree(&base_path, before);
        write_layer(&layer_path, before, after, dice);
        Scene::open(dir)
    }

    pub fn open(dir: tempfile::TempDir) -> Scene {
        let layer = Layer::open(&dir.path().join("layer")).expect("layer");
        let host = Layer::open(&dir.path().join("base")).expect("base");
        let base = View { host: Some(host), ..View::default() };
        let own = [layer];
        let top = base.with_layers_on_top(&own);
        let changes = changes(&own, &base, &Bounds::default()).expect("changes");
        Scene { dir, base, top, changes }
    }
}

/// Git without anybody's configuration.
pub fn git(at: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("git")
        .args(["-c", "core.autocrlf=false", "-c", "core.safecrlf=false"])
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(arguments)
        .current_dir(at)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", at.parent().expect("a parent"))
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
