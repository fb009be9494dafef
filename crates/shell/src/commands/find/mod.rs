//! `find`, straight over the tree, with what only the tree knows: `-inum`,
//! `-links`, `-samefile`, `-user`. Tests and actions that are not here
//! (`-regex`, `-printf`, `-exec` in the middle of an expression …) are
//! bashkit's.

mod expr;
mod parse;

use super::Instead;
use super::show::{self, quoted};
use crate::command::{Call, Output};
use crate::name;
use expr::{Act, Expr, Test};
use fractal_fs::Stat;
use fractal_model::EntryKind;
use parse::Asked;
use std::time::{SystemTime, UNIX_EPOCH};

/// Paths that one command of `-exec … +` gets.
const PATHS_MAX: usize = 4096;

struct Find<'a> {
    call: &'a Call<'a>,
    asked: &'a Asked,
    now_ns: i64,
    /// Whether sizes matter, which a source may have to be asked for.
    sizes: bool,
    quit: bool,
    prune: bool,
    out: Output,
    /// Paths for `-exec`.
    found: Vec<String>,
}

/// The entry that is looked at.
struct At<'a> {
    stat: &'a Stat,
    path: &'a [u8],
    shown: &'a [u8],
    name: &'a [u8],
    depth: usize,
}

pub(super) fn call(call: &Call) -> Output {
    match parse::parse(call) {
        Some(asked) => walked(call, &asked).out,
        None => Output::fail(1, "find: cannot read the expression\n"),
    }
}

pub(super) fn instead(call: &Call) -> Option<Instead> {
    let Some(asked) = parse::parse(call) else { return Some(Instead::Bashkits) };
    let is_exec = |expr: &Expr| matches!(expr, Expr::Act(Act::Exec(..)));
    if !asked.expr.any(&is_exec) {
        return None;
    }
    // A command's success would decide what comes after it, and output of
    // other actions would have to come between.
    let Expr::Act(Act::Exec(command, many)) = asked.expr.last() else {
        return Some(Instead::Bashkits);
    };
    let count = std::cell::Cell::new(0);
    asked.expr.any(&|expr| {
        count.set(
            count.get() + u32::from(matches!(expr, Expr::Act(act) if !matches!(act, Act::Prune))),
        );
        false
    });
    let alone = !matches!(asked.expr, Expr::Or(..)) && count.get() == 1;
    if !alone {
        return Some(Instead::Bashkits);
    }
    let find = walked(call, &asked);
    match find.out.exit {
        0 => Some(Instead::Run(commands(command, *many, &find.found))),
        _ => Some(Instead::Bashkits),
    }
}

fn commands(command: &[String], many: bool, found: &[String]) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = match many {
        true => found.chunks(PATHS_MAX).map(|paths| [command, paths].concat()).collect(),
        false => {
            let filled =
                |path: &String| command.iter().map(|word| word.replace("{}", path)).collect();
            found.iter().map(filled).collect()
        }
    };
    // Commands one by one do not decide how `find` ends.
    if !many || commands.is_empty() {
        commands.push(vec!["true".into()]);
    }
    commands
}

fn walked<'a>(call: &'a Call<'a>, asked: &'a Asked) -> Find<'a> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sizes = asked.expr.any(&|expr| matches!(expr, Expr::Test(Test::Size(..) | Test::Empty)));
    let now_ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    let mut find = Find {
        call,
        asked,
        now_ns,
        sizes,
        quit: false,
        prune: false,
        out: Output::default(),
        found: Vec::new(),
    };
    for start in &asked.starts {
        let mut path = call.path(start);
        match call.view.lstat(&path) {
            Ok(stat) => {
                let mut shown = name::bytes(start).into_owned();
                let trimmed = shown.strip_suffix(b"/").filter(|rest| !rest.is_empty());
                let name = trimmed.unwrap_or(&shown).rsplit(|byte| *byte == b'/').next();
                let name = name.filter(|name| !name.is_empty()).unwrap_or(&shown).to_vec();
                find.visit(&mut path, &mut shown, &name, &stat, 0);
            }
            Err(error) => {
                let reason = show::reason(&error);
                find.out.complain(1, &format!("find: {}: {reason}", quoted(start)));
            }
        }
    }
    find
}

impl Find<'_> {
    /// At most as deep as trees may be; both paths grow and shrink in place.
    fn visit(
        &mut self,
        path: &mut Vec<u8>,
        shown: &mut Vec<u8>,
        name: &[u8],
        stat: &Stat,
        depth: usize,
    ) {
        self.prune = false;
        let counts = depth >= self.asked.depth_min;
        if counts && !self.asked.contents_first {
            self.eval(&self.asked.expr, &At { stat, path, shown, name, depth });
        }
        let below = stat.kind == EntryKind::Directory && depth < self.asked.depth_max;
        if below && !self.prune && !self.quit && !self.call.stopped() {
            self.below(path, shown, depth);
        }
        if counts && self.asked.contents_first && !self.quit {
            self.eval(&self.asked.expr, &At { stat, path, shown, name, depth });
        }
    }

    fn below(&mut self, path: &mut Vec<u8>, shown: &mut Vec<u8>, depth: usize) {
        let listed = match self.sizes {
            true => self.call.view.list_stat(&path[..]),
            false => self.call.view.glance(&path[..]),
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                let reason = show::reason(&error);
                let message = format!("find: {}: {reason}", quoted(&name::text(shown)));
                return self.out.complain(1, &message);
            }
        };
        let (path_len, shown_len) = (path.len(), shown.len());
        for (name, stat) in listed {
            for grown in [&mut *path, &mut *shown] {
                if !grown.ends_with(b"/") {
                    grown.push(b'/');
                }
                grown.extend_from_slice(name.bytes());
            }
            self.visit(path, shown, name.bytes(), &stat, depth + 1);
            path.truncate(path_len);
            shown.truncate(shown_len);
            if self.quit {
                return;
            }
        }
    }

    fn eval(&mut self, expr: &Expr, at: &At) -> bool {
        match expr {
            Expr::And(a, b) => self.eval(a, at) && self.eval(b, at),
            Expr::Or(a, b) => self.eval(a, at) || self.eval(b, at),
            Expr::Not(a) => !self.eval(a, at),
            Expr::Test(Test::Name(glob)) => glob.matches(&name::text(at.name)),
            Expr::Test(Test::Path(glob)) => glob.matches(&name::text(at.shown)),
            Expr::Test(Test::Empty) => match at.stat.kind {
                EntryKind::Directory => {
                    self.call.view.list(at.path).is_ok_and(|all| all.is_empty())
                }
                EntryKind::File => at.stat.size == 0,
                _ => false,
            },
            Expr::Test(test) => expr::holds(test, at.stat, self.now_ns),
            Expr::Act(act) => self.act(act, at),
        }
    }

    fn act(&mut self, act: &Act, at: &At) -> bool {
        match act {
            Act::Print(end) => {
                self.out.stdout.extend_from_slice(name::text(at.shown).as_bytes());
                self.out.stdout.push(*end);
            }
            Act::Prune => self.prune = !self.asked.contents_first,
            Act::Quit => self.quit = true,
            Act::Exec(..) => self.found.push(name::text(at.shown).into_owned()),
            Act::Delete => return self.delete(at),
        }
        true
    }

    fn delete(&mut self, at: &At) -> bool {
        if at.depth == 0 && at.shown == b"." {
            return true;
        }
        let gone = match at.stat.kind {
            EntryKind::Directory => self.call.view.remove_dir(at.path),
            _ => self.call.view.remove_file(at.path),
        };
        if let Err(error) = gone {
            let (reason, shown) = (show::reason(&error), quoted(&name::text(at.shown)));
            self.out.complain(1, &format!("find: cannot delete {shown}: {reason}"));
            return false;
        }
        true
    }
}
