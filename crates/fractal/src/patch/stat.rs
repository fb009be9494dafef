//! The short forms of a diff: one line per file.

use super::{Amount, FileStat, Stat, below, quote};
use fractal_model::{Change, EntryKind, SandboxPath};
use std::io::{self, Write};

/// Writes what `git diff --name-status` writes: a letter, a tab, a name. What
/// git does not know: directories end in a slash, and what lies outside of the
/// root comes last and begins with one.
pub fn write_name_status(
    out: &mut dyn Write,
    changes: &[Change],
    root: &SandboxPath,
) -> io::Result<()> {
    let (inside, outside): (Vec<_>, Vec<_>) =
        changes.iter().partition(|change| change.path.is_within(root));
    for change in inside.into_iter().chain(outside) {
        let slash = if change.entry == EntryKind::Directory { "/" } else { "" };
        let name = match below(&change.path, root) {
            Some(name) => quote::name("", &name),
            None if change.path == *root => b".".to_vec(),
            None => quote::name("/", &change.path),
        };
        write!(out, "{}\t", change.kind.letter())?;
        out.write_all(&name)?;
        writeln!(out, "{slash}")?;
    }
    Ok(())
}

/// Writes what `git diff --stat=<width>` writes.
pub fn write_stat(out: &mut dyn Write, stat: &Stat, width: usize) -> io::Result<()> {
    let layout = Layout::new(&stat.files, width);
    for file in &stat.files {
        layout.write_file(out, file)?;
    }
    write_summary(out, &stat.files)
}

fn write_summary(out: &mut dyn Write, files: &[FileStat]) -> io::Result<()> {
    if files.is_empty() {
        return writeln!(out, " 0 files changed");
    }
    let (mut added, mut deleted) = (0, 0);
    for file in files {
        if let Amount::Lines { added: a, deleted: d } = file.amount {
            added += a;
            deleted += d;
        }
    }
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let count = files.len() as u64;
    write!(out, " {count} file{} changed", plural(count))?;
    if added > 0 || deleted == 0 {
        write!(out, ", {added} insertion{}(+)", plural(added))?;
    }
    if deleted > 0 || added == 0 {
        write!(out, ", {deleted} deletion{}(-)", plural(deleted))?;
    }
    writeln!(out)
}

/// The widths of the three columns; the arithmetic is git's.
struct Layout {
    name: usize,
    number: usize,
    graph: usize,
    /// Lines changed in the file with most of them.
    most: usize,
}

impl Layout {
    fn new(files: &[FileStat], width: usize) -> Layout {
        let (mut name, mut number, mut most, mut sizes) = (0, 0, 0, 0);
        for file in files {
            name = name.max(columns(&shown(file)));
            match file.amount {
                Amount::Lines { added, deleted } => most = most.max(to_usize(added + deleted)),
                Amount::Bytes { before, after } => {
                    sizes = sizes.max(14 + digits(before) + digits(after));
                    number = 3;
                }
            }
        }
        let number = number.max(digits(most as u64));
        let width = width.max(16 + 6 + number);
        let mut graph = if most + 4 > sizes { most } else { sizes - 4 };
        if name + number + 6 + graph > width {
            graph = graph.min((width * 3 / 8).saturating_sub(number + 6).max(6));
            let room = width - number - 6 - graph;
            if name > room {
                name = room;
            } else {
                graph = width - number - 6 - name;
            }
        }
        Layout { name, number, graph, most }
    }

    fn write_file(&self, out: &mut dyn Write, file: &FileStat) -> io::Result<()> {
        let name = self.fit(shown(file));
        out.write_all(b" ")?;
        out.write_all(&name)?;
        write!(out, "{:1$} |", "", self.name.saturating_sub(columns(&name)))?;
        match file.amount {
            Amount::Bytes { before, after } => {
                write!(out, " {:>1$}", "Bin", self.number)?;
                match before + after {
                    0 => writeln!(out),
                    _ => writeln!(out, " {before} -> {after} bytes"),
                }
            }
            Amount::Lines { added, deleted } => {
                let (plus, minus) = self.bars(to_usize(added), to_usize(deleted));
                let gap = if added + deleted > 0 { " " } else { "" };
                write!(out, " {:>1$}{gap}", added + deleted, self.number)?;
                writeln!(out, "{}{}", "+".repeat(plus), "-".repeat(minus))
            }
        }
    }

    /// Cuts a long name at the left, at a slash if there is one.
    fn fit(&self, name: Vec<u8>) -> Vec<u8> {
        if columns(&name) <= self.name {
            return name;
        }
        let tail = &name[name.len() - self.name.saturating_sub(3).min(name.len())..];
        let slash = tail.iter().position(|byte| *byte == b'/').unwrap_or(0);
        [b"...", &tail[slash..]].concat()
    }

    fn bars(&self, added: usize, deleted: usize) -> (usize, usize) {
        if self.graph > self.most {
            return (added, deleted);
        }
        let mut total = self.scale(added + deleted);
        if total < 2 && added > 0 && deleted > 0 {
            total = 2;
        }
        if added < deleted {
            let added = self.scale(added);
            (added, total.saturating_sub(added))
        } else {
            let deleted = self.scale(deleted);
            (total.saturating_sub(deleted), deleted)
        }
    }

    /// Never scales something down to nothing.
    fn scale(&self, count: usize) -> usize {
        match count {
            0 => 0,
            count => 1 + count * (self.graph - 1) / self.most.max(1),
        }
    }
}

fn shown(file: &FileStat) -> Vec<u8> {
    quote::name(if file.absolute { "/" } else { "" }, &file.path)
}

/// Quoted names are ASCII, so bytes are columns.
fn columns(name: &[u8]) -> usize {
    name.len()
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX / 2)
}
