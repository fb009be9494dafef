//! Everything a promotion would do, decided without doing it.

use super::choose::{Chosen, choose, paths};
use super::weigh::{Live, Side, Sides, Weighed, Wish};
use crate::base::Notes;
use crate::view::path_of;
use crate::{Caller, Engine};
use fractal_jail::layer::View;
use fractal_model::{Applied, Change, Conflict, Error, Promote, Record, Result, SandboxPath};
use fractal_store::{Reads, SandboxRow};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

/// Records looked at to learn whether the last run was noted.
const LOOK_BACK: u64 = 1_000;

/// The decision.
pub struct Plan {
    /// Sorted by path.
    pub wishes: Vec<Wish>,
    pub conflicts: Vec<Conflict>,
    pub chosen: Chosen,
    /// Files among the wishes that run by themselves.
    pub autorun: Vec<String>,
    /// What the sandbox shows: where contents are read.
    pub ours: View,
}

impl Plan {
    pub fn applied(&self) -> Vec<Applied> {
        self.wishes.iter().map(Wish::applied).collect()
    }
}

/// What a sandbox's changes are weighed against.
pub enum Against {
    /// The host.
    Host,
    /// A parent that stands on layers, as its child does.
    Sandbox(View),
    /// A stage, which stands on the host as the sandbox does.
    Stage(View),
    /// A directory of the host that is seen at the project's place. When its
    /// files were written says nothing about the sandbox.
    Directory(View),
}

/// Weighs a sandbox's changes against a target.
pub fn plan(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
    target: Against,
) -> Result<Plan> {
    let (views, changes) = crate::verbs::diff::changes(engine, row, None)?;
    let notes = Notes::read(engine, row.id);
    let live = match &target {
        Against::Sandbox(_) => None,
        _ => Some(Live {
            notes: &notes,
            complete: is_complete(engine, row, &notes)?,
            project: path_of(&row.directory)?,
            marker_ns: match target {
                Against::Directory(_) => i64::MIN,
                _ => notes.fork_ns(row),
            },
        }),
    };
    let theirs = match target {
        Against::Host => engine.host_view(row, Vec::new())?,
        Against::Sandbox(view) | Against::Stage(view) | Against::Directory(view) => view,
    };
    let (base, ours) = (views.base(), views.top());
    let sides = Sides {
        base: Side::from(&base),
        ours: Side::from(&ours),
        theirs: Side::from(&theirs),
        live,
        keep_owner: rustix::process::geteuid().is_root(),
        turned: RefCell::default(),
    };
    let all: BTreeMap<SandboxPath, Change> =
        changes.iter().map(|change| (change.path.clone(), change.clone())).collect();
    let chosen = choose(engine, caller, row, asked, changes)?;
    let mut draft = Draft {
        all,
        sides,
        choice: Choice::read(caller, asked)?,
        wishes: BTreeMap::new(),
        conflicts: BTreeMap::new(),
        chosen,
    };
    draft.weigh_all()?;
    draft.add_parents()?;
    draft.find_the_way()?;
    draft.meet_strangers()?;
    draft.keep_directories();
    let Draft { all, wishes, conflicts, chosen, .. } = draft;
    let runs = |path: &SandboxPath| all.get(path).is_some_and(|change| change.autorun);
    let autorun = wishes.keys().filter(|path| runs(path)).map(ToString::to_string).collect();
    Ok(Plan {
        wishes: wishes.into_values().collect(),
        conflicts: conflicts.into_values().collect(),
        chosen,
        autorun,
        ours,
    })
}

/// Which side a person chose, where both changed a path.
struct Choice {
    ours: Vec<SandboxPath>,
    theirs: Vec<SandboxPath>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chose {
    Ours,
    Theirs,
}

impl Choice {
    /// The side chosen for a path: the nearest word about it counts.
    fn of(&self, path: &SandboxPath) -> Option<Chose> {
        let nearest = |list: &[SandboxPath]| {
            let about = list.iter().filter(|at| path.is_within(at));
            about.map(|at| at.relative().len()).max()
        };
        match (nearest(&self.ours), nearest(&self.theirs)) {
            (None, None) => None,
            (ours, theirs) if ours > theirs => Some(Chose::Ours),
            _ => Some(Chose::Theirs),
        }
    }

    fn read(caller: &Caller, asked: &Promote) -> Result<Choice> {
        let choice = Choice {
            ours: paths(caller, &asked.ours, "--ours")?,
            theirs: paths(caller, &asked.theirs, "--theirs")?,
        };
        match choice.ours.iter().find(|path| choice.theirs.contains(path)) {
            Some(path) => Err(Error::invalid(format!("{path} is both `--ours` and `--theirs`"))),
            None => Ok(choice),
        }
    }
}

struct Draft<'a> {
    /// Every change of the sandbox.
    all: BTreeMap<SandboxPath, Change>,
    sides: Sides<'a>,
    choice: Choice,
    wishes: BTreeMap<SandboxPath, Wish>,
    /// By their paths: each is told once, for the first reason.
    conflicts: BTreeMap<String, Conflict>,
    chosen: Chosen,
}

impl Draft<'_> {
    fn clash(&mut self, conflict: Conflict) {
        self.conflicts.entry(conflict.path.clone()).or_insert(conflict);
    }

    fn weigh_all(&mut self) -> Result<()> {
        for change in std::mem::take(&mut self.chosen.changes) {
            self.weigh(&change.path)?;
        }
        Ok(())
    }

    fn weigh(&mut self, path: &SandboxPath) -> Result<()> {
        let side = self.choice.of(path);
        match self.sides.weigh(path)? {
            Weighed::Skip | Weighed::OnlyTheirs => {}
            Weighed::Take(wish) => drop(self.wishes.insert(path.clone(), wish)),
            Weighed::Clash(clash) if side == Some(Chose::Ours) => {
                self.wishes.insert(path.clone(), clash.ours);
            }
            Weighed::Clash(_) if side == Some(Chose::Theirs) => {
                self.chosen.leave("theirs", path.clone());
            }
            Weighed::Clash(clash) => self.clash(clash.conflict),
        }
        Ok(())
    }

    /// What is brought needs the directories it lies in, also when a person
    /// named only the file.
    fn add_parents(&mut self) -> Result<()> {
        let mut missing: HashSet<SandboxPath> = HashSet::new();
        for wish in self.wishes.values().filter(|wish| wish.new.is_some()) {
            let mut above = wish.path.parent();
            while let Some(dir) = above {
                if !self.wishes.contains_key(&dir) && self.all.contains_key(&dir) {
                    missing.insert(dir.clone());
                }
                above = dir.parent();
            }
        }
        missing.iter().try_for_each(|dir| self.weigh(dir))
    }

    /// What lies in a directory that others took away, or put something else
    /// in place of, cannot be brought unless the directory is.
    fn find_the_way(&mut self) -> Result<()> {
        let brought = self.wishes.values().filter(|wish| wish.new.is_some());
        let brought: Vec<SandboxPath> = brought.map(|wish| wish.path.clone()).collect();
        for path in brought {
            let Some(conflict) = self.sides.turned(&path)? else { continue };
            match self.choice.of(&path) {
                None => self.clash(conflict),
                Some(Chose::Theirs) => {
                    self.wishes.remove(&path);
                    self.chosen.leave("theirs", path);
                }
                Some(Chose::Ours) => {
                    let way = self.sides.way_to(&path)?;
                    self.wishes.extend(way.into_iter().map(|wish| (wish.path.clone(), wish)));
                }
            }
        }
        Ok(())
    }

    /// Directories that are to go, or to become something else.
    fn ending(&self) -> Vec<SandboxPath> {
        let ending = self.wishes.values().filter(|wish| wish.ends_directory());
        ending.map(|wish| wish.path.clone()).collect()
    }

    /// What came into a directory that is to go, and that no layer of the
    /// sandbox has ever heard of.
    fn meet_strangers(&mut self) -> Result<()> {
        let staying = Staying::of(&self.chosen);
        for dir in self.ending() {
            for entry in self.sides.theirs.view.read_dir(&dir)? {
                let path = dir.join(&entry.name)?;
                if self.wishes.contains_key(&path)
                    || staying.first_within(&path).is_some()
                    || self.conflicts.contains_key(&path.to_string())
                {
                    continue;
                }
                if self.choice.of(&path) == Some(Chose::Theirs) {
                    self.chosen.leave("theirs", path);
                } else {
                    let why = "made outside, in a directory that the sandbox deleted".to_owned();
                    self.clash(Conflict { path: path.to_string(), why });
                }
            }
        }
        Ok(())
    }

    /// A directory stays while something in it does; what would take its
    /// place cannot, then.
    fn keep_directories(&mut self) {
        let staying = Staying::of(&self.chosen);
        for dir in self.ending() {
            let Some(stays) = staying.first_within(&dir) else { continue };
            let Some(wish) = self.wishes.remove(&dir) else { continue };
            if wish.new.is_some() {
                let why = format!("a file would take its place, but {stays} stays in it");
                self.clash(Conflict { path: dir.to_string(), why });
            }
        }
    }
}

/// Paths that stay behind, sorted: there may be a whole build directory.
struct Staying(Vec<SandboxPath>);

impl Staying {
    fn of(chosen: &Chosen) -> Staying {
        let mut paths: Vec<SandboxPath> = chosen.staying().cloned().collect();
        paths.sort();
        Staying(paths)
    }

    /// The first of them at or below a path.
    fn first_within(&self, path: &SandboxPath) -> Option<&SandboxPath> {
        // Names that begin like the path lie between it and what is below it.
        let itself = self.0.binary_search(path).ok().map(|at| &self.0[at]);
        let below = [path.relative(), b"/"].concat();
        let from = self.0.partition_point(|other| other.relative() < below.as_slice());
        itself.or_else(|| self.0.get(from).filter(|other| other.is_within(path)))
    }
}

/// Whether the notes cover all that was done in the sandbox.
pub fn is_complete(engine: &Engine, row: &SandboxRow, notes: &Notes) -> Result<bool> {
    let wrote = |record: &Record| match record.body.action.as_str() {
        "run" | "import" => true,
        "copy" => record.body.detail["way"] == "in",
        "promote" => record.body.detail["from"].is_string(),
        _ => false,
    };
    let records = engine.store.journal(Some(row.id), LOOK_BACK)?;
    let Some(last) = records.iter().find(|record| wrote(record)) else { return Ok(false) };
    let run = last.body.detail["run"].as_str();
    Ok(last.body.action == "run"
        && run.is_some()
        && run == notes.last_run().as_ref().map(|id| id.as_str()))
}
