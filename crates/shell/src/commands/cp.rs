//! `cp`: shares contents until one side is written, and with `-a` keeps
//! hard links, owners, times and attributes.

use super::Instead;
use super::flags::Flags;
use super::show::{self, joined, quoted};
use crate::command::{Call, Output};
use crate::name;
use fractal_fs::{FsError, Kind, NewMeta, Stat};
use fractal_model::EntryKind;
use std::collections::HashMap;

const SHORTS: &str = "rRapfnvdPLTt:ul";
const LONGS: &[(&str, char)] = &[
    ("recursive", 'r'),
    ("archive", 'a'),
    ("force", 'f'),
    ("no-clobber", 'n'),
    ("verbose", 'v'),
    ("no-dereference", 'P'),
    ("dereference", 'L'),
    ("no-target-directory", 'T'),
    ("target-directory", 't'),
    ("update", 'u'),
    ("link", 'l'),
];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    // Devices are bashkit's.
    let device = |operand: &String| operand.starts_with("/dev/");
    match Flags::parse(call.args, SHORTS, LONGS) {
        Some(flags) if !flags.operands.iter().any(device) => None,
        _ => Some(Instead::Bashkits),
    }
}

struct Cp<'a> {
    call: &'a Call<'a>,
    recursive: bool,
    keep_meta: bool,
    keep_names: bool,
    follow: bool,
    flags: Flags,
    /// Where a file with several names was copied to, by its inode.
    copied: HashMap<u64, Vec<u8>>,
    out: Output,
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "cp: invalid option\n");
    };
    let archive = flags.has('a');
    let recursive = archive || flags.has('r') || flags.has('R');
    let keep_links = archive || flags.has('d') || flags.has('P');
    let mut cp = Cp {
        call,
        recursive,
        keep_meta: archive || flags.has('p'),
        keep_names: archive || flags.has('d'),
        follow: flags.has('L') || !(recursive || keep_links),
        flags,
        copied: HashMap::new(),
        out: Output::default(),
    };
    cp.operands();
    cp.out
}

impl Cp<'_> {
    fn operands(&mut self) {
        let mut sources = self.flags.operands.clone();
        let dir = match self.flags.value('t') {
            Some(dir) => dir.to_owned(),
            None => match sources.pop() {
                None => return self.out.complain(1, "cp: missing file operand"),
                Some(last) if sources.is_empty() => {
                    let message =
                        format!("cp: missing destination file operand after {}", quoted(&last));
                    return self.out.complain(1, &message);
                }
                Some(last) => last,
            },
        };
        let into = self
            .call
            .view
            .stat(self.call.path(&dir))
            .is_ok_and(|stat| stat.kind == EntryKind::Directory)
            && !self.flags.has('T');
        if !into && (sources.len() > 1 || self.flags.value('t').is_some()) {
            return self.out.complain(1, &format!("cp: target {}: Not a directory", quoted(&dir)));
        }
        for source in sources {
            let to = match into {
                false => dir.clone(),
                true => joined(&dir, &name::bytes(last_name(&source))),
            };
            self.one(&source, &to);
        }
    }

    fn one(&mut self, from: &str, to: &str) {
        let (source, target) = (self.call.path(from), self.call.path(to));
        let found = match self.follow {
            true => self.call.view.stat(&source),
            false => self.call.view.lstat(&source),
        };
        let stat = match found {
            Ok(stat) => stat,
            Err(error) => {
                let reason = show::reason(&error);
                return self
                    .out
                    .complain(1, &format!("cp: cannot stat {}: {reason}", quoted(from)));
            }
        };
        if stat.kind == EntryKind::Directory {
            if !self.recursive {
                let message = format!("cp: -r not specified; omitting directory {}", quoted(from));
                return self.out.complain(1, &message);
            }
            if self.is_inside(&source, &target) {
                let message = format!(
                    "cp: cannot copy a directory, {}, into itself, {}",
                    quoted(from),
                    quoted(to)
                );
                return self.out.complain(1, &message);
            }
        }
        self.copy(&source, &target, from, to, &stat);
    }

    fn is_inside(&self, source: &[u8], target: &[u8]) -> bool {
        let view = self.call.view;
        match (view.resolve(source), view.resolve(target)) {
            (Ok(source), Ok(target)) => {
                target.starts_with(&[&source[..], b"/"].concat()) || source == target
            }
            _ => false,
        }
    }

    /// At most as deep as trees may be, with a small frame.
    fn copy(&mut self, source: &[u8], target: &[u8], from: &str, to: &str, stat: &Stat) {
        if self.call.stopped() {
            return;
        }
        let done = match stat.kind {
            EntryKind::Directory => self.dir(source, target, from, to, stat),
            EntryKind::Symlink => self.symlink(source, target),
            _ => self.file(source, target, from, to, stat),
        };
        match done {
            Ok(true) => {
                if self.keep_meta {
                    self.keep(source, target, stat);
                }
                if self.flags.has('v') && stat.kind != EntryKind::Directory {
                    self.tell(from, to);
                }
            }
            Ok(false) => {}
            Err(error) if error.kind == Kind::Invalid && error.reason.is_some() => {
                let message = format!("cp: {} and {} are the same file", quoted(from), quoted(to));
                self.out.complain(1, &message);
            }
            Err(error) => {
                let reason = show::reason(&error);
                let message = match (stat.kind, error.kind) {
                    (EntryKind::Directory, Kind::NotADirectory) => format!(
                        "cp: cannot overwrite non-directory {} with directory {}",
                        quoted(to),
                        quoted(from)
                    ),
                    (EntryKind::Directory, _) => {
                        format!("cp: cannot create directory {}: {reason}", quoted(to))
                    }
                    (_, Kind::IsADirectory) => {
                        format!("cp: cannot overwrite directory {} with non-directory", quoted(to))
                    }
                    _ => format!("cp: cannot create regular file {}: {reason}", quoted(to)),
                };
                self.out.complain(1, &message);
            }
        }
    }

    fn dir(
        &mut self,
        source: &[u8],
        target: &[u8],
        from: &str,
        to: &str,
        stat: &Stat,
    ) -> Result<bool, FsError> {
        let view = self.call.view;
        match view.make_dir(target, stat.meta.mode & 0o777) {
            Ok(()) if self.flags.has('v') => self.tell(from, to),
            Ok(()) => {}
            Err(error) if error.kind == Kind::Exists => {
                if view.stat(target)?.kind != EntryKind::Directory {
                    return Err(FsError { kind: Kind::NotADirectory, ..error });
                }
            }
            Err(error) => return Err(error),
        }
        for (name, stat) in view.glance(source)? {
            let below = |path: &[u8]| [path, b"/", name.bytes()].concat();
            let (source, target) = (below(source), below(target));
            let stat = match self.flags.has('L') {
                true => view.stat(&source).unwrap_or(stat),
                false => stat,
            };
            let (from, to) = (joined(from, name.bytes()), joined(to, name.bytes()));
            self.copy(&source, &target, &from, &to, &stat);
        }
        Ok(true)
    }

    fn symlink(&mut self, source: &[u8], target: &[u8]) -> Result<bool, FsError> {
        let view = self.call.view;
        let leads = view.read_link(source)?;
        match view.symlink(target, &leads) {
            Err(error) if error.kind == Kind::Exists && self.flags.has('n') => Ok(false),
            Err(error) if error.kind == Kind::Exists => {
                view.remove_file(target)?;
                view.symlink(target, &leads).map(|()| true)
            }
            done => done.map(|()| true),
        }
    }

    fn file(
        &mut self,
        source: &[u8],
        target: &[u8],
        from: &str,
        to: &str,
        stat: &Stat,
    ) -> Result<bool, FsError> {
        let view = self.call.view;
        if let Ok(there) = view.stat(target) {
            let older = there.meta.modified_ns >= stat.meta.modified_ns;
            if self.flags.has('n') || (self.flags.has('u') && older) {
                return Ok(false);
            }
        }
        if self.flags.has('l') {
            return view.link(source, target).map(|()| true);
        }
        if self.keep_names && stat.names > 1 {
            if let Some(first) = self.copied.get(&stat.inode) {
                let _ = view.remove_file(target);
                return view.link(first, target).map(|()| true);
            }
            self.copied.insert(stat.inode, target.to_vec());
        }
        if to.ends_with('/') {
            let message = format!("cp: cannot create regular file {}: Not a directory", quoted(to));
            self.out.complain(1, &message);
            return Ok(false);
        }
        match view.copy_file(source, target) {
            Err(error) if self.flags.has('f') && matches!(error.kind, Kind::Denied) => {
                view.remove_file(target)?;
                view.copy_file(source, target).map(|()| true)
            }
            Err(error) if error.kind == Kind::NotFound && !view.exists(source) => {
                let message = format!(
                    "cp: cannot open {} for reading: No such file or directory",
                    quoted(from)
                );
                self.out.complain(1, &message);
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Mode, owner, time and attributes; what cannot be set is left.
    fn keep(&mut self, source: &[u8], target: &[u8], stat: &Stat) {
        let view = self.call.view;
        for attribute in view.xattrs(source).unwrap_or_default() {
            if let Ok(value) = view.xattr(source, &attribute) {
                let _ = view.set_xattr(target, &attribute, &value);
            }
        }
        let meta = &stat.meta;
        let new = NewMeta {
            mode: (stat.kind != EntryKind::Symlink).then_some(meta.mode),
            uid: Some(meta.uid),
            gid: Some(meta.gid),
            modified_ns: Some(meta.modified_ns),
        };
        let _ = view.set_meta(target, new);
    }

    fn tell(&mut self, from: &str, to: &str) {
        let line = format!("{} -> {}\n", quoted(from), quoted(to));
        self.out.stdout.extend_from_slice(line.as_bytes());
    }
}

fn last_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}
