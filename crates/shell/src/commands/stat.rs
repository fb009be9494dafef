//! `stat`: all that the tree knows about an entry.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::show::{self, full_time, quoted};
use crate::command::{Call, Output};
use crate::name;
use fractal_fs::Stat;
use fractal_model::EntryKind;

const SHORTS: &str = "Lc:P:";
const LONGS: &[(&str, char)] = &[("dereference", 'L'), ("format", 'c'), ("printf", 'P')];

const DEFAULT: &str = "  File: %n\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n\
                       Device: 0,1\tInode: %-11i Links: %h\n\
                       Access: (%4a/%A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\n\
                       Access: %x\nModify: %y\nChange: %z\n Birth: %w\n";

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "stat: invalid option\n");
    };
    if flags.operands.is_empty() {
        return Output::fail(1, "stat: missing operand\n");
    }
    let (format, end) = match flags.last_of("cP") {
        Some('c') => (flags.value('c').unwrap_or_default().to_owned(), "\n"),
        Some(_) => (escaped(flags.value('P').unwrap_or_default()), ""),
        None => (DEFAULT.to_owned(), ""),
    };
    let mut out = Output::default();
    for shown in &flags.operands {
        let path = call.path(shown);
        let found = match flags.has('L') {
            true => call.view.stat(&path),
            false => call.view.lstat(&path),
        };
        match found {
            Ok(stat) => {
                let entry = Entry { call, shown, path: &path, stat: &stat };
                out.stdout.extend_from_slice(entry.filled(&format).as_bytes());
                out.stdout.extend_from_slice(end.as_bytes());
            }
            Err(error) => {
                let reason = show::reason(&error);
                out.complain(1, &format!("stat: cannot statx {}: {reason}", quoted(shown)));
            }
        }
    }
    out
}

struct Entry<'a> {
    call: &'a Call<'a>,
    shown: &'a str,
    path: &'a [u8],
    stat: &'a Stat,
}

impl Entry<'_> {
    fn filled(&self, format: &str) -> String {
        let mut out = String::new();
        let mut rest = format.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut spec = String::new();
            while let Some(digit) = rest.next_if(|c| c.is_ascii_digit() || "-0+ #.".contains(*c)) {
                spec.push(digit);
            }
            let Some(letter) = rest.next() else {
                out.push('%');
                break;
            };
            match self.value(letter) {
                Some(value) => out.push_str(&padded(&value, &spec)),
                None => out.push_str(&format!("%{spec}{letter}")),
            }
        }
        out
    }

    fn value(&self, letter: char) -> Option<String> {
        let (stat, own) = (self.stat, self.call.own);
        let meta = &stat.meta;
        let size = match stat.kind {
            EntryKind::Directory => 4096,
            _ => stat.size,
        };
        let kind_bits = match stat.kind {
            EntryKind::Directory => 0o040_000,
            EntryKind::Symlink => 0o120_000,
            _ => 0o100_000,
        };
        let seconds = |ns: i64| ns.div_euclid(1_000_000_000).to_string();
        Some(match letter {
            '%' => "%".into(),
            'n' => self.shown.to_owned(),
            'N' => self.with_target(),
            's' => size.to_string(),
            'b' => (size.div_ceil(4096) * 8).to_string(),
            'B' => "512".into(),
            'o' => "4096".into(),
            'f' => format!("{:x}", kind_bits | meta.mode),
            'F' => match (stat.kind, size) {
                (EntryKind::Directory, _) => "directory".into(),
                (EntryKind::Symlink, _) => "symbolic link".into(),
                (_, 0) => "regular empty file".into(),
                _ => "regular file".into(),
            },
            'a' => format!("{:o}", meta.mode),
            'A' => show::mode(stat),
            'u' => meta.uid.to_string(),
            'U' => own.owner(meta.uid),
            'g' => meta.gid.to_string(),
            'G' => own.owner(meta.gid),
            'i' => stat.inode.to_string(),
            'h' => stat.names.to_string(),
            'd' | 'D' => "1".into(),
            't' | 'T' => "0".into(),
            'm' => "/".into(),
            'w' => "-".into(),
            'W' => "0".into(),
            'x' | 'y' => full_time(meta.modified_ns),
            'X' | 'Y' => seconds(meta.modified_ns),
            'z' => full_time(meta.changed_ns),
            'Z' => seconds(meta.changed_ns),
            _ => return None,
        })
    }

    fn with_target(&self) -> String {
        match self.call.view.read_link(self.path) {
            Ok(target) => format!("{} -> {}", quoted(self.shown), quoted(&name::text(&target))),
            Err(_) => quoted(self.shown),
        }
    }
}

fn padded(value: &str, spec: &str) -> String {
    let left = spec.starts_with('-');
    let zeros = spec.starts_with('0');
    let width: usize = spec.trim_start_matches(['-', '0', '+', ' ', '#']).parse().unwrap_or(0);
    let width = width.min(1000);
    match (left, zeros) {
        (true, _) => format!("{value:<width$}"),
        (false, true) => format!("{value:0>width$}"),
        (false, false) => format!("{value:>width$}"),
    }
}

/// The escapes that `--printf` knows.
fn escaped(format: &str) -> String {
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        match (c, c == '\\') {
            (c, false) => out.push(c),
            (_, true) => match rest.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('0') => out.push('\0'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
        }
    }
    out
}
