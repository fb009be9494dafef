//! `du`: what directories hold; a file with several names counts once.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::show::{self, joined, quoted};
use crate::command::{Call, Output};
use fractal_fs::Stat;
use fractal_model::EntryKind;
use std::collections::HashSet;

const SHORTS: &str = "sahbkmcd:S";
const LONGS: &[(&str, char)] = &[
    ("summarize", 's'),
    ("all", 'a'),
    ("human-readable", 'h'),
    ("bytes", 'b'),
    ("total", 'c'),
    ("max-depth", 'd'),
];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

struct Du<'a> {
    call: &'a Call<'a>,
    flags: Flags,
    depth_max: usize,
    counted: HashSet<u64>,
    out: Output,
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "du: invalid option\n");
    };
    let depth_max = match (flags.has('s'), flags.value('d')) {
        (true, _) => 0,
        (false, Some(text)) => match text.parse() {
            Ok(depth) => depth,
            Err(_) => {
                let message = format!("du: invalid maximum depth {}\n", quoted(text));
                return Output::fail(1, message);
            }
        },
        (false, None) => usize::MAX,
    };
    let mut operands = flags.operands.clone();
    if operands.is_empty() {
        operands.push(".".into());
    }
    let mut du = Du { call, flags, depth_max, counted: HashSet::new(), out: Output::default() };
    let mut total = 0;
    for shown in operands {
        let path = call.path(&shown);
        match call.view.lstat(&path) {
            Ok(stat) => total += du.count(&path, &shown, &stat, 0),
            Err(error) => {
                let reason = show::reason(&error);
                du.out.complain(1, &format!("du: cannot access {}: {reason}", quoted(&shown)));
            }
        }
    }
    if du.flags.has('c') {
        du.line(total, "total");
    }
    du.out
}

impl Du<'_> {
    /// The tree is at most [`fractal_fs::DEPTH_MAX`] deep, and a frame small.
    fn count(&mut self, path: &[u8], shown: &str, stat: &Stat, depth: usize) -> u64 {
        if stat.kind != EntryKind::Directory && stat.names > 1 && !self.counted.insert(stat.inode) {
            return 0;
        }
        let mut bytes = self.size(stat);
        let is_dir = stat.kind == EntryKind::Directory;
        if is_dir && !self.call.stopped() {
            match self.call.view.list_stat(path) {
                Ok(listed) => {
                    for (name, stat) in listed {
                        let path = [path, b"/", name.bytes()].concat();
                        bytes += self.count(&path, &joined(shown, name.bytes()), &stat, depth + 1);
                    }
                }
                Err(error) => {
                    let reason = show::reason(&error);
                    let message = format!("du: cannot read directory {}: {reason}", quoted(shown));
                    self.out.complain(1, &message);
                }
            }
        }
        if depth <= self.depth_max && (is_dir || self.flags.has('a') || depth == 0) {
            self.line(bytes, shown);
        }
        bytes
    }

    fn size(&self, stat: &Stat) -> u64 {
        let apparent = match stat.kind {
            EntryKind::Directory => 4096,
            _ => stat.size,
        };
        match (self.flags.has('b'), stat.kind) {
            (true, _) => apparent,
            (false, EntryKind::Symlink) => 0,
            (false, _) => apparent.div_ceil(4096) * 4096,
        }
    }

    fn line(&mut self, bytes: u64, shown: &str) {
        let size = match self.flags.last_of("hbkm") {
            Some('h') => show::human(bytes),
            Some('b') => bytes.to_string(),
            Some('m') => bytes.div_ceil(1 << 20).to_string(),
            _ => bytes.div_ceil(1024).to_string(),
        };
        self.out.stdout.extend_from_slice(format!("{size}\t{shown}\n").as_bytes());
    }
}
