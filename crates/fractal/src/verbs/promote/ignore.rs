//! What git ignores among a sandbox's changes, by the rules of the caller's
//! own working tree.
//!
//! git refuses to speak of paths that its working tree cannot hold, and the
//! sandbox's tree is another one. Those are asked about where they can be
//! answered: what lies in a submodule, or in another repository inside, there;
//! what lies in a submodule that is not checked out, by the rules alone; what
//! lies beyond a link of reality, in a working tree that holds the rules and
//! nothing else. Where git has no answer, nothing travels.

use super::git::{below, git};
use crate::view::path_of;
use crate::{Caller, Engine};
use fractal_jail::trusted::Answer;
use fractal_model::{Change, Code, EntryKind, Error, Result, SandboxPath};
use fractal_store::new_id;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path below the project; a directory's ends with a slash.
type Asked = Vec<u8>;

/// Paths that git ignores in the project.
pub fn ignored(
    engine: &Engine,
    caller: &Caller,
    directory: &Path,
    changes: &[Change],
) -> Result<HashSet<SandboxPath>> {
    let project = path_of(directory)?;
    let mut list = Vec::new();
    for change in changes.iter().filter(|change| change.path.is_within(&project)) {
        let mut path = below(&change.path, &project).to_vec();
        // git may not be asked about itself.
        if path.is_empty() || change.path.components().any(|name| name == b".git") {
            continue;
        }
        if change.entry == EntryKind::Directory {
            path.push(b'/');
        }
        list.push(path);
    }
    let found = Asking { engine, caller, directory }.all(list)?;
    let whole = |path: Asked| SandboxPath::parse([project.relative(), b"/", &path].concat());
    found.into_iter().map(whole).collect()
}

/// What every path begins with when git is asked.
const HERE: &[u8] = b"./";

/// Questions to the repository of one directory.
struct Asking<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    directory: &'a Path,
}

/// Paths by who can answer for them.
#[derive(Default)]
struct Sorted {
    /// The working tree itself.
    here: Vec<Asked>,
    /// Repositories inside, by their directory.
    inner: BTreeMap<Vec<u8>, Vec<Asked>>,
    /// Nobody: on the way there stands a link.
    beyond: Vec<Asked>,
}

impl Asking<'_> {
    fn all(&self, list: Vec<Asked>) -> Result<Vec<Asked>> {
        let Sorted { mut here, inner, beyond } = self.sort(list);
        // What is ignored as a whole is so whatever its own rules say.
        here.extend(inner.keys().map(|root| [root, &b"/"[..]].concat()));
        let mut found = self.here(&here)?;
        let as_a_whole: HashSet<Asked> = found.iter().cloned().collect();
        for (root, paths) in inner {
            let slashed = [&root[..], b"/"].concat();
            if as_a_whole.contains(&slashed) {
                found.extend(paths);
                continue;
            }
            let directory = self.directory.join(OsStr::from_bytes(&root));
            let there = Asking { directory: &directory, ..*self };
            let cut = |path: Asked| path[slashed.len()..].to_vec();
            let answer = there.all(paths.into_iter().map(cut).collect())?;
            found.extend(answer.into_iter().map(|path| [&slashed[..], &path].concat()));
        }
        found.extend(self.beyond(&beyond)?);
        Ok(found)
    }

    fn sort(&self, list: Vec<Asked>) -> Sorted {
        let mut sorted = Sorted::default();
        let mut known = BTreeMap::new();
        for path in list {
            match self.way(&path, &mut known) {
                Way::Free => sorted.here.push(path),
                Way::Into(root) => sorted.inner.entry(root).or_default().push(path),
                Way::Link => sorted.beyond.push(path),
            }
        }
        sorted
    }

    /// What stands on the way to a path in reality. A slash at its end makes
    /// the path itself a part of the way.
    fn way(&self, path: &[u8], known: &mut BTreeMap<Vec<u8>, Way>) -> Way {
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let dir = &path[..at];
            let way = match known.get(dir) {
                Some(way) => way.clone(),
                None => {
                    let way = self.step(dir);
                    known.insert(dir.to_vec(), way.clone());
                    way
                }
            };
            let itself = at + 1 == path.len();
            match way {
                Way::Free => {}
                Way::Into(_) if itself => {}
                other => return other,
            }
        }
        Way::Free
    }

    fn step(&self, dir: &[u8]) -> Way {
        let path = self.directory.join(OsStr::from_bytes(dir));
        match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => Way::Link,
            Ok(_) if path.join(".git").symlink_metadata().is_ok() => Way::Into(dir.to_vec()),
            _ => Way::Free,
        }
    }

    /// What the repository says of paths in its working tree.
    fn here(&self, list: &[Asked]) -> Result<Vec<Asked>> {
        let answer = self.check(&[], list)?;
        if let Some(found) = self.read(&answer) {
            return Ok(found);
        }
        // It says nothing at all if one of them lies in a submodule.
        let absent = self.submodules()?;
        let inside = |path: &&Asked| {
            let mut above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            above.any(|(at, _)| at + 1 < path.len() && absent.contains(&path[..at]))
        };
        let (inside, rest): (Vec<&Asked>, Vec<&Asked>) = list.iter().partition(inside);
        if inside.is_empty() {
            return Err(silence(answer));
        }
        let mut found = Vec::new();
        for (args, part) in [(&[][..], rest), (&["--no-index"][..], inside)] {
            let part: Vec<Asked> = part.into_iter().cloned().collect();
            let answer = self.check(args, &part)?;
            found.extend(self.read(&answer).ok_or_else(|| silence(answer))?);
        }
        Ok(found)
    }

    fn check(&self, args: &[&str], list: &[Asked]) -> Result<Option<Answer>> {
        let args = [&["check-ignore", "-z", "--stdin"], args].concat();
        self.ask(&args, list, self.directory)
    }

    fn ask(&self, args: &[&str], list: &[Asked], directory: &Path) -> Result<Option<Answer>> {
        let nothing = Answer { status: 1, output: vec![], errors: vec![], out_of_time: false };
        if list.is_empty() {
            return Ok(Some(nothing));
        }
        // From here: a name may begin with what git takes for magic, and this
        // question knows no way to say that it is none.
        let line = |path: &Asked| [HERE, path, b"\0"].concat();
        let input: Vec<u8> = list.iter().flat_map(line).collect();
        git(self.caller, directory, args, |to| to.write_all(&input))
    }

    /// The paths in an answer; `None` when it is none.
    fn read(&self, answer: &Option<Answer>) -> Option<Vec<Asked>> {
        match answer {
            Some(answer) if answer.status == 0 => {
                let cut = |path: Vec<u8>| path.strip_prefix(HERE).map(<[u8]>::to_vec);
                Some(lines(&answer.output).into_iter().filter_map(cut).collect())
            }
            // None of them, or no repository.
            Some(answer) if answer.status == 1 => Some(Vec::new()),
            _ if !is_repository(self.directory) => Some(Vec::new()),
            _ => None,
        }
    }

    /// Directories that the index holds as submodules.
    fn submodules(&self) -> Result<BTreeSet<Vec<u8>>> {
        let answer = git(self.caller, self.directory, &["ls-files", "-s", "-z"], |_| Ok(()))?;
        let answer = answer.filter(|answer| answer.status == 0);
        let entries = answer.map(|answer| lines(&answer.output)).unwrap_or_default();
        let name = |entry: Vec<u8>| {
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            entry.starts_with(b"160000 ").then(|| entry[tab + 1..].to_vec())
        };
        Ok(entries.into_iter().filter_map(name).collect())
    }

    /// What it would say if the links were directories, as they are in the
    /// sandbox. Nothing lies below them in reality, so no rules do either.
    fn beyond(&self, list: &[Asked]) -> Result<Vec<Asked>> {
        if list.is_empty() || !is_repository(self.directory) {
            return Ok(Vec::new());
        }
        let ask = |what| -> Result<PathBuf> {
            let answer = git(self.caller, self.directory, &["rev-parse", what], |_| Ok(()))?;
            match answer {
                Some(answer) if answer.status == 0 => {
                    let text = answer.output.strip_suffix(b"\n").unwrap_or(&answer.output);
                    Ok(PathBuf::from(OsStr::from_bytes(text)))
                }
                silent => Err(silence(silent)),
            }
        };
        let (top, prefix) = (ask("--show-toplevel")?, ask("--show-prefix")?);
        let git_dir = ask("--absolute-git-dir")?;
        // In the trash: if we are killed, the next collection removes it.
        let tree = Rules(self.engine.store.trash_dir().join(new_id().as_str()));
        tree.copy(&top, &prefix, list).map_err(|error| {
            Error::internal(format!("cannot copy rules to {}: {error}", tree.0.display()))
        })?;
        let (git_dir, work_tree) =
            (option("--git-dir=", &git_dir)?, option("--work-tree=", &tree.0)?);
        let args = [git_dir.as_str(), &work_tree, "check-ignore", "-z", "--stdin"];
        let answer = self.ask(&args, list, &tree.0.join(&prefix))?;
        self.read(&answer).ok_or_else(|| silence(answer))
    }
}

fn option(name: &str, path: &Path) -> Result<String> {
    let path = path.to_str().ok_or_else(|| {
        Error::new(Code::Unsupported, format!("{} is not UTF-8", path.display()))
            .hint("bring everything with `--ignored`")
    })?;
    Ok(format!("{name}{path}"))
}

/// What stands on the way to a path.
#[derive(Clone)]
enum Way {
    Free,
    /// A repository, in this directory.
    Into(Vec<u8>),
    Link,
}

/// A working tree that holds rules and nothing else; gone with the value.
struct Rules(PathBuf);

impl Rules {
    /// Copies the rules of every directory on the way to the paths.
    fn copy(&self, top: &Path, prefix: &Path, list: &[Asked]) -> std::io::Result<()> {
        let mut dirs = BTreeSet::from([PathBuf::new()]);
        for path in list {
            let path = prefix.join(OsStr::from_bytes(path));
            dirs.extend(path.ancestors().skip(1).map(Path::to_owned));
        }
        fs::create_dir_all(self.0.join(prefix))?;
        // From the top down: beyond a link there is nothing to copy.
        let mut links: Vec<&PathBuf> = Vec::new();
        for dir in &dirs {
            let real = top.join(dir);
            let is_dir = real.symlink_metadata().is_ok_and(|meta| meta.is_dir());
            if !is_dir || links.iter().any(|link| dir.starts_with(link)) {
                links.push(dir);
                continue;
            }
            let rules = real.join(".gitignore");
            if rules.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                fs::create_dir_all(self.0.join(dir))?;
                fs::copy(rules, self.0.join(dir).join(".gitignore"))?;
            }
        }
        Ok(())
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What stands between zeros.
fn lines(output: &[u8]) -> Vec<Vec<u8>> {
    let parts = output.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(<[u8]>::to_vec).collect()
}

/// Whether somebody meant this to be one.
fn is_repository(directory: &Path) -> bool {
    directory.ancestors().any(|dir| dir.join(".git").symlink_metadata().is_ok())
}

/// Where git cannot say what it ignores, secrets and litter might travel.
fn silence(answer: Option<Answer>) -> Error {
    let why = match &answer {
        None => "it is not installed".to_owned(),
        Some(answer) => String::from_utf8_lossy(&answer.errors).trim().to_owned(),
    };
    Error::new(Code::Unsupported, format!("git cannot say what this repository ignores: {why}"))
        .hint("mend that, or bring everything with `--ignored`")
}
