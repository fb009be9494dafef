//! `diff -r`: which files differ; how, is bashkit's `diff`.

use super::Instead;
use super::flags::Flags;
use super::show::{joined, quoted};
use crate::command::{Call, Output};
use fractal_fs::{FsError, Stat, Vfs};
use fractal_model::EntryKind;
use std::collections::BTreeMap;

const SHORTS: &str = "rqusbwiBa";
const LONGS: &[(&str, char)] =
    &[("recursive", 'r'), ("brief", 'q'), ("unified", 'u'), ("text", 'a')];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Some(Instead::Bashkits);
    };
    let is_dir = |operand: &String| {
        call.view.stat(call.path(operand)).is_ok_and(|stat| stat.kind == EntryKind::Directory)
    };
    let [old, new] = &flags.operands[..] else { return Some(Instead::Bashkits) };
    if !flags.has('r') || !is_dir(old) || !is_dir(new) {
        return Some(Instead::Bashkits);
    }
    let options: Vec<String> =
        call.args.iter().filter(|arg| arg.starts_with('-')).cloned().collect();
    let mut compare =
        Compare { call, brief: flags.has('q'), options, steps: Vec::new(), differ: false };
    match compare.dirs(old, new) {
        Ok(()) => {
            compare.steps.push(vec![if compare.differ { "false" } else { "true" }.to_owned()]);
            Some(Instead::Run(compare.steps))
        }
        Err(error) => Some(Instead::Run(vec![
            vec!["printf".into(), "diff: %s\\n".into(), error.to_string()],
            vec!["sh".into(), "-c".into(), "exit 2".into()],
        ])),
    }
}

pub(super) fn call(_: &Call) -> Output {
    Output::fail(2, "diff: cannot read the options\n")
}

struct Compare<'a> {
    call: &'a Call<'a>,
    brief: bool,
    options: Vec<String>,
    /// Commands that print, one after the other, what differs.
    steps: Vec<Vec<String>>,
    differ: bool,
}

impl Compare<'_> {
    fn say(&mut self, line: String) {
        self.differ = true;
        self.steps.push(vec!["printf".into(), "%s\\n".into(), line]);
    }

    fn dirs(&mut self, old: &str, new: &str) -> Result<(), FsError> {
        let listed = |dir: &str| -> Result<BTreeMap<_, _>, FsError> {
            Ok(self.call.view.glance(self.call.path(dir))?.into_iter().collect())
        };
        let (olds, news) = (listed(old)?, listed(new)?);
        let mut names: Vec<_> = olds.keys().chain(news.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let (a, b) = (joined(old, name.bytes()), joined(new, name.bytes()));
            match (olds.get(name), news.get(name)) {
                (Some(_), None) => self.say(format!("Only in {old}: {name}")),
                (None, Some(_)) => self.say(format!("Only in {new}: {name}")),
                (Some(one), Some(other)) => self.entries(&a, &b, one, other)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn entries(&mut self, a: &str, b: &str, one: &Stat, other: &Stat) -> Result<(), FsError> {
        let kind = |stat: &Stat| match stat.kind {
            EntryKind::Directory => "directory",
            EntryKind::Symlink => "symbolic link",
            _ => "regular file",
        };
        match (one.kind, other.kind) {
            (EntryKind::Directory, EntryKind::Directory) => return self.dirs(a, b),
            (x, y) if x != y => {
                self.say(format!(
                    "File {a} is a {} while file {b} is a {}",
                    kind(one),
                    kind(other)
                ));
                return Ok(());
            }
            _ => {}
        }
        let (from, to) = (self.call.path(a), self.call.path(b));
        if same(self.call.view, &from, &to, one.kind)? {
            return Ok(());
        }
        if self.brief || one.kind == EntryKind::Symlink {
            self.say(format!("Files {a} and {b} differ"));
            return Ok(());
        }
        let options = self.options.join(" ");
        self.say(format!("diff {options} {} {}", bare(a), bare(b)));
        let mut command = vec!["diff".to_owned()];
        command.extend(self.options.iter().filter(|option| !option.contains('r')).cloned());
        if self.options.iter().any(|option| option.contains('r') && option.contains('u')) {
            command.push("-u".into());
        }
        command.extend([a.to_owned(), b.to_owned()]);
        self.steps.push(command);
        Ok(())
    }
}

fn same(view: &Vfs, a: &[u8], b: &[u8], kind: EntryKind) -> Result<bool, FsError> {
    match kind {
        EntryKind::Symlink => Ok(view.read_link(a)? == view.read_link(b)?),
        _ => Ok(view.read(a)? == view.read(b)?),
    }
}

/// As diff shows names in its headings.
fn bare(name: &str) -> String {
    match name.contains([' ', '\'', '"']) {
        true => quoted(name),
        false => name.to_owned(),
    }
}
