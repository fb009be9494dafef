//! `ls`: names, and with `-l`, `-i` what the tree knows about them.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::show::{self, MONTHS, Moment, quoted};
use crate::command::{Call, Output};
use crate::name;
use fractal_fs::Stat;
use fractal_model::EntryKind;
use std::cmp::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

const SHORTS: &str = "aAl1iRdhtSrFpngoUCxLH";
const LONGS: &[(&str, char)] = &[
    ("all", 'a'),
    ("almost-all", 'A'),
    ("inode", 'i'),
    ("recursive", 'R'),
    ("directory", 'd'),
    ("human-readable", 'h'),
    ("reverse", 'r'),
    ("classify", 'F'),
    ("numeric-uid-gid", 'n'),
    ("dereference", 'L'),
];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

struct Item {
    shown: String,
    path: Vec<u8>,
    stat: Stat,
}

struct Ls<'a> {
    call: &'a Call<'a>,
    flags: Flags,
    long: bool,
    now: i64,
    out: Output,
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(2, "ls: invalid option\n");
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let long = ['l', 'n', 'g', 'o'].iter().any(|letter| flags.has(*letter));
    let mut ls = Ls { call, flags, long, now: now as i64, out: Output::default() };
    ls.operands();
    ls.out
}

impl Ls<'_> {
    fn operands(&mut self) {
        let mut operands = self.flags.operands.clone();
        if operands.is_empty() {
            operands.push(".".into());
        }
        let many = operands.len() > 1;
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        for shown in operands {
            let path = self.call.path(&shown);
            // As ls does: a link given by name is followed, unless its
            // details are asked for.
            let keep = (self.long || self.flags.has('d') || self.flags.has('F'))
                && !self.flags.has('L')
                && !self.flags.has('H');
            let followed = if keep { Err(()) } else { self.call.view.stat(&path).map_err(drop) };
            match followed.or_else(|()| self.call.view.lstat(&path)) {
                Ok(stat) if stat.kind == EntryKind::Directory && !self.flags.has('d') => {
                    dirs.push(Item { shown, path, stat });
                }
                Ok(stat) => files.push(Item { shown, path, stat }),
                Err(error) => {
                    let reason = show::reason(&error);
                    let message = format!("ls: cannot access {}: {reason}", quoted(&shown));
                    self.out.complain(2, &message);
                }
            }
        }
        self.sort(&mut files);
        self.sort(&mut dirs);
        let headed = many || self.flags.has('R');
        let mut first = files.is_empty();
        self.print(&files);
        for dir in dirs {
            if !first {
                self.out.stdout.push(b'\n');
            }
            first = false;
            self.dir(dir, headed);
        }
    }

    fn dir(&mut self, dir: Item, headed: bool) {
        // A stack and no recursion: trees may be deep.
        let mut waiting = vec![dir];
        let mut first = true;
        while let Some(dir) = waiting.pop() {
            if self.call.stopped() {
                return;
            }
            if !first {
                self.out.stdout.push(b'\n');
            }
            first = false;
            if headed {
                self.line(&format!("{}:", dir.shown));
            }
            let items = match self.items(&dir) {
                Ok(items) => items,
                Err(error) => {
                    let reason = show::reason(&error);
                    let message =
                        format!("ls: cannot open directory {}: {reason}", quoted(&dir.shown));
                    self.out.complain(2, &message);
                    continue;
                }
            };
            if self.long {
                let blocks: u64 = items.iter().map(|item| blocks_1k(&item.stat)).sum();
                self.line(&format!("total {blocks}"));
            }
            self.print(&items);
            if self.flags.has('R') {
                let below = items.into_iter().rev().filter(|item| {
                    item.stat.kind == EntryKind::Directory
                        && item.shown != "."
                        && item.shown != ".."
                });
                waiting.extend(below.map(|item| {
                    let shown = show::joined(&dir.shown, &name::bytes(&item.shown));
                    Item { shown, ..item }
                }));
            }
        }
    }

    fn items(&self, dir: &Item) -> Result<Vec<Item>, fractal_fs::FsError> {
        // Sizes that only a source knows are asked for when they are shown.
        let listed = match self.long || self.flags.has('S') {
            true => self.call.view.list_stat(&dir.path)?,
            false => self.call.view.glance(&dir.path)?,
        };
        let all = self.flags.has('a');
        let mut items = Vec::with_capacity(listed.len() + 2);
        if all {
            for dots in [".", ".."] {
                let path = [&dir.path[..], b"/", dots.as_bytes()].concat();
                let stat = self.call.view.stat(&path)?;
                items.push(Item { shown: dots.into(), path, stat });
            }
        }
        let hidden = all || self.flags.has('A');
        for (name, stat) in listed {
            if hidden || name.bytes()[0] != b'.' {
                let path = [&dir.path[..], b"/", name.bytes()].concat();
                let stat = match self.flags.has('L') {
                    true => self.call.view.stat(&path).unwrap_or(stat),
                    false => stat,
                };
                items.push(Item { shown: name::text(name.bytes()).into_owned(), path, stat });
            }
        }
        self.sort(&mut items);
        Ok(items)
    }

    fn sort(&self, items: &mut [Item]) {
        if self.flags.has('U') {
            return;
        }
        let by = self.flags.last_of("tS");
        let order = |a: &Item, b: &Item| {
            let first = match by {
                Some('t') => b.stat.meta.modified_ns.cmp(&a.stat.meta.modified_ns),
                Some('S') => b.stat.size.cmp(&a.stat.size),
                _ => Ordering::Equal,
            };
            first.then_with(|| a.shown.cmp(&b.shown))
        };
        match self.flags.has('r') {
            true => items.sort_by(|a, b| order(b, a)),
            false => items.sort_by(order),
        }
    }

    fn print(&mut self, items: &[Item]) {
        let lines: Vec<String> = match self.long {
            true => self.long_lines(items),
            false => items
                .iter()
                .map(|item| format!("{}{}", self.inode(item), self.name(item)))
                .collect(),
        };
        lines.iter().for_each(|line| self.line(line));
    }

    fn line(&mut self, line: &str) {
        self.out.stdout.extend_from_slice(line.as_bytes());
        self.out.stdout.push(b'\n');
    }

    fn inode(&self, item: &Item) -> String {
        match self.flags.has('i') {
            true => format!("{} ", item.stat.inode),
            false => String::new(),
        }
    }

    fn name(&self, item: &Item) -> String {
        let mark = match item.stat.kind {
            EntryKind::Directory if self.flags.has('F') || self.flags.has('p') => "/",
            EntryKind::Symlink if self.flags.has('F') && !self.long => "@",
            EntryKind::File if self.flags.has('F') && item.stat.meta.mode & 0o111 != 0 => "*",
            _ => "",
        };
        format!("{}{mark}", item.shown)
    }

    fn long_lines(&self, items: &[Item]) -> Vec<String> {
        let owner = |id: u32| match self.flags.has('n') {
            true => id.to_string(),
            false => self.call.own.owner(id),
        };
        let size = |stat: &Stat| match self.flags.has('h') {
            true => show::human(shown_size(stat)),
            false => shown_size(stat).to_string(),
        };
        let rows: Vec<[String; 4]> = items
            .iter()
            .map(|item| {
                let stat = &item.stat;
                [stat.names.to_string(), owner(stat.meta.uid), owner(stat.meta.gid), size(stat)]
            })
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3)];
        let line = |(item, row): (&Item, &[String; 4])| {
            let mut line = format!("{}{} ", self.inode(item), show::mode(&item.stat));
            line.push_str(&format!("{:>1$} ", row[0], widths[0]));
            if !self.flags.has('g') {
                line.push_str(&format!("{:<1$} ", row[1], widths[1]));
            }
            if !self.flags.has('o') {
                line.push_str(&format!("{:<1$} ", row[2], widths[2]));
            }
            let time = self.time(item.stat.meta.modified_ns);
            line.push_str(&format!("{:>2$} {time} {}", row[3], self.name(item), widths[3]));
            if item.stat.kind == EntryKind::Symlink
                && let Ok(target) = self.call.view.read_link(&item.path)
            {
                line.push_str(" -> ");
                line.push_str(&name::text(&target));
            }
            line
        };
        items.iter().zip(&rows).map(line).collect()
    }

    /// With the clock for what is younger than half a year, else the year.
    fn time(&self, ns: i64) -> String {
        let seconds = ns.div_euclid(1_000_000_000);
        let at = Moment::new(seconds);
        let month = MONTHS[at.month - 1];
        match (self.now - 15_778_476..=self.now + 60).contains(&seconds) {
            true => format!("{month} {:>2} {:02}:{:02}", at.day, at.hour, at.minute),
            false => format!("{month} {:>2}  {}", at.day, at.year),
        }
    }
}

/// Directories take a block, as in most filesystems.
fn shown_size(stat: &Stat) -> u64 {
    match stat.kind {
        EntryKind::Directory => 4096,
        _ => stat.size,
    }
}

fn blocks_1k(stat: &Stat) -> u64 {
    match stat.kind {
        EntryKind::Symlink => 0,
        _ => shown_size(stat).div_ceil(4096) * 4,
    }
}
