//! The words of `find` as an expression. What is not known here gives
//! `None`: bashkit's `find` knows more tests, and all the complaints.

use super::expr::{Act, Compare, Expr, Perm, Test};
use crate::command::Call;
use crate::commands::glob::Glob;
use fractal_model::EntryKind;

pub(super) struct Asked {
    pub(super) starts: Vec<String>,
    pub(super) expr: Expr,
    pub(super) depth_min: usize,
    pub(super) depth_max: usize,
    /// Directories after what is in them.
    pub(super) contents_first: bool,
}

struct Words<'a> {
    call: &'a Call<'a>,
    args: std::iter::Peekable<std::slice::Iter<'a, String>>,
    depth_min: usize,
    depth_max: usize,
    contents_first: bool,
    acts: bool,
}

pub(super) fn parse<'a>(call: &'a Call<'a>) -> Option<Asked> {
    let mut args = call.args.iter().peekable();
    while args.next_if(|arg| *arg == "-P").is_some() {}
    let mut starts = Vec::new();
    let is_start =
        |arg: &&String| !arg.starts_with('-') && !matches!(arg.as_str(), "(" | ")" | "!");
    while let Some(start) = args.next_if(is_start) {
        starts.push(start.clone());
    }
    if starts.is_empty() {
        starts.push(".".into());
    }
    let mut words = Words {
        call,
        args,
        depth_min: 0,
        depth_max: usize::MAX,
        contents_first: false,
        acts: false,
    };
    let asked = match words.args.peek() {
        None => Expr::Test(Test::Always(true)),
        Some(_) => words.either()?,
    };
    if words.args.next().is_some() {
        return None;
    }
    let expr = match words.acts {
        true => asked,
        false => Expr::And(Box::new(asked), Box::new(Expr::Act(Act::Print(b'\n')))),
    };
    let Words { depth_min, depth_max, contents_first, .. } = words;
    Some(Asked { starts, expr, depth_min, depth_max, contents_first })
}

impl Words<'_> {
    fn either(&mut self) -> Option<Expr> {
        let mut expr = self.both()?;
        while self.args.next_if(|arg| matches!(arg.as_str(), "-o" | "-or")).is_some() {
            expr = Expr::Or(Box::new(expr), Box::new(self.both()?));
        }
        Some(expr)
    }

    fn both(&mut self) -> Option<Expr> {
        let mut expr = self.one()?;
        loop {
            match self.args.peek().map(|arg| arg.as_str()) {
                None | Some("-o" | "-or" | ")") => return Some(expr),
                Some("-a" | "-and") => drop(self.args.next()),
                Some(_) => {}
            }
            expr = Expr::And(Box::new(expr), Box::new(self.one()?));
        }
    }

    fn one(&mut self) -> Option<Expr> {
        let word = self.args.next()?;
        match word.as_str() {
            "!" | "-not" => Some(Expr::Not(Box::new(self.one()?))),
            "(" => {
                let expr = self.either()?;
                self.args.next_if(|arg| *arg == ")")?;
                Some(expr)
            }
            "-print" | "-print0" | "-delete" | "-quit" | "-exec" => {
                self.acts = true;
                self.act(word).map(Expr::Act)
            }
            "-prune" => Some(Expr::Act(Act::Prune)),
            word => self.test(word).map(Expr::Test),
        }
    }

    fn act(&mut self, word: &str) -> Option<Act> {
        Some(match word {
            "-print" => Act::Print(b'\n'),
            "-print0" => Act::Print(0),
            "-quit" => Act::Quit,
            "-delete" => {
                self.contents_first = true;
                Act::Delete
            }
            _ => {
                let mut command: Vec<String> = Vec::new();
                loop {
                    let word = self.args.next()?;
                    if word == ";" {
                        return (!command.is_empty()).then_some(Act::Exec(command, false));
                    }
                    if word == "+"
                        && command.len() > 1
                        && command.last().is_some_and(|last| last == "{}")
                    {
                        command.pop();
                        return Some(Act::Exec(command, true));
                    }
                    command.push(word.clone());
                }
            }
        })
    }

    fn test(&mut self, word: &str) -> Option<Test> {
        if matches!(word, "-depth" | "-d" | "-mount" | "-xdev" | "-true" | "-noleaf" | "-false") {
            self.contents_first |= matches!(word, "-depth" | "-d");
            return Some(Test::Always(word != "-false"));
        }
        if word == "-empty" {
            return Some(Test::Empty);
        }
        let value = self.args.next()?;
        Some(match word {
            "-maxdepth" | "-mindepth" => {
                let depth = value.parse().ok()?;
                match word {
                    "-maxdepth" => self.depth_max = depth,
                    _ => self.depth_min = depth,
                }
                Test::Always(true)
            }
            "-name" => Test::Name(Glob::new(value, false)),
            "-iname" => Test::Name(Glob::new(value, true)),
            "-path" | "-wholename" => Test::Path(Glob::new(value, false)),
            "-ipath" | "-iwholename" => Test::Path(Glob::new(value, true)),
            "-type" => Test::Kinds(value.split(',').map(kind).collect::<Option<_>>()?),
            "-size" => size(value)?,
            "-mtime" => Test::Age(compare(value)?, 86_400),
            "-mmin" => Test::Age(compare(value)?, 60),
            "-newer" | "-newermm" => {
                Test::Newer(self.call.view.stat(self.call.path(value)).ok()?.meta.modified_ns)
            }
            "-samefile" => {
                Test::Inode(Compare::Equal(self.call.view.lstat(self.call.path(value)).ok()?.inode))
            }
            "-perm" => Test::Perm(perm(value)?),
            "-inum" => Test::Inode(compare(value)?),
            "-links" => Test::Names(compare(value)?),
            "-uid" => Test::Uid(value.parse().ok()?),
            "-gid" => Test::Gid(value.parse().ok()?),
            "-user" => Test::Uid(self.call.own.id(value)?),
            "-group" => Test::Gid(self.call.own.id(value)?),
            _ => return None,
        })
    }
}

fn kind(letter: &str) -> Option<EntryKind> {
    match letter {
        "f" => Some(EntryKind::File),
        "d" => Some(EntryKind::Directory),
        "l" => Some(EntryKind::Symlink),
        _ => None,
    }
}

fn compare(text: &str) -> Option<Compare> {
    let number = |text: &str| text.parse().ok();
    match text.split_at_checked(1)? {
        ("+", rest) => number(rest).map(Compare::More),
        ("-", rest) => number(rest).map(Compare::Less),
        _ => number(text).map(Compare::Equal),
    }
}

fn size(text: &str) -> Option<Test> {
    let (number, unit) = match text.chars().last()? {
        'c' => (&text[..text.len() - 1], 1),
        'w' => (&text[..text.len() - 1], 2),
        'b' => (&text[..text.len() - 1], 512),
        'k' => (&text[..text.len() - 1], 1 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 512),
    };
    Some(Test::Size(compare(number)?, unit))
}

fn perm(text: &str) -> Option<Perm> {
    let bits = |text: &str| u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
    match text.split_at_checked(1)? {
        ("-", rest) => bits(rest).map(Perm::All),
        ("/", rest) => bits(rest).map(Perm::Any),
        _ => bits(text).map(Perm::Exactly),
    }
}
