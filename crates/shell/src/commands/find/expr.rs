//! What `find` asks of every entry.

use crate::commands::glob::Glob;
use fractal_fs::Stat;
use fractal_model::EntryKind;

pub(super) enum Expr {
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Test(Test),
    Act(Act),
}

pub(super) enum Test {
    Name(Glob),
    Path(Glob),
    Kinds(Vec<EntryKind>),
    /// In units, rounded up.
    Size(Compare, u64),
    /// Whole units of this many seconds since it was modified.
    Age(Compare, i64),
    /// Modified after this.
    Newer(i64),
    Empty,
    Perm(Perm),
    Inode(Compare),
    Names(Compare),
    Uid(u32),
    Gid(u32),
    Always(bool),
}

pub(super) enum Act {
    Print(u8),
    Delete,
    Prune,
    Quit,
    /// The words of a command, and whether it takes many paths at once.
    Exec(Vec<String>, bool),
}

pub(super) enum Compare {
    Less(u64),
    Equal(u64),
    More(u64),
}

impl Compare {
    pub(super) fn holds(&self, value: u64) -> bool {
        match self {
            Compare::Less(bound) => value < *bound,
            Compare::Equal(bound) => value == *bound,
            Compare::More(bound) => value > *bound,
        }
    }
}

pub(super) enum Perm {
    Exactly(u32),
    All(u32),
    Any(u32),
}

impl Perm {
    pub(super) fn holds(&self, mode: u32) -> bool {
        match self {
            Perm::Exactly(bits) => mode & 0o7777 == *bits,
            Perm::All(bits) => mode & bits == *bits,
            Perm::Any(bits) => *bits == 0 || mode & bits != 0,
        }
    }
}

/// The tests that need nothing but the entry itself.
pub(super) fn holds(test: &Test, stat: &Stat, now_ns: i64) -> bool {
    match test {
        Test::Kinds(kinds) => kinds.contains(&stat.kind),
        Test::Size(compare, unit) => {
            let size = if stat.kind == EntryKind::Directory { 4096 } else { stat.size };
            compare.holds(size.div_ceil(*unit))
        }
        Test::Age(compare, unit) => {
            let age = (now_ns - stat.meta.modified_ns).max(0) / 1_000_000_000;
            compare.holds((age / unit) as u64)
        }
        Test::Newer(than) => stat.meta.modified_ns > *than,
        Test::Perm(perm) => perm.holds(stat.meta.mode),
        Test::Inode(compare) => compare.holds(stat.inode),
        Test::Names(compare) => compare.holds(u64::from(stat.names)),
        Test::Uid(uid) => stat.meta.uid == *uid,
        Test::Gid(gid) => stat.meta.gid == *gid,
        Test::Always(always) => *always,
        Test::Name(_) | Test::Path(_) | Test::Empty => false,
    }
}

impl Expr {
    pub(super) fn any(&self, is: &dyn Fn(&Expr) -> bool) -> bool {
        is(self)
            || match self {
                Expr::And(a, b) | Expr::Or(a, b) => a.any(is) || b.any(is),
                Expr::Not(a) => a.any(is),
                Expr::Test(_) | Expr::Act(_) => false,
            }
    }

    /// The last thing asked when all before it held.
    pub(super) fn last(&self) -> &Expr {
        match self {
            Expr::And(_, b) => b.last(),
            other => other,
        }
    }
}
