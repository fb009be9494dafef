//! A view: one tree that can be read and written by path, from many threads.
//!
//! A view holds what it shows now (`top`) and what it started from (`base`).
//! Forking one copies pointers. No lock is held while a source is asked: an
//! operation that lacks something stops, the source is asked, and it starts
//! anew with the answer.

use crate::change;
use crate::entry::{Dir, Entries, Entry, Meta, Weight, number};
use crate::error::{Fault, FsError, Kind, shown};
use crate::rules::{Access, Rules};
use crate::source::{Answers, Freshness, LazyDir, Origin, Source, Stop};
use crate::tree::Tree;
use crate::walk::{Last, Walk};
use crate::watch::{Given, Watchers};
use fractal_model::{Change, SandboxPath};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often one operation may ask sources before it is given up: a provider
/// that reads itself would ask for ever.
const ASKED_MAX: u32 = 100_000;

/// How much a view may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of content in memory.
    pub bytes_max: u64,
    /// Files, directories and links.
    pub entries_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes_max: 4 << 30, entries_max: 10_000_000 }
    }
}

/// A filesystem in memory. Cloning the handle gives another handle to the
/// same view; [`Vfs::fork`] gives a view of its own.
#[derive(Clone)]
pub struct Vfs {
    pub(crate) shared: Arc<Shared>,
    /// What must hold for any operation through this handle.
    pub(crate) given: Option<Arc<[Given]>>,
    /// The watcher that is not told what is done through this handle.
    pub(crate) by: u64,
}

/// What all handles of one view hold.
pub(crate) struct Shared {
    state: RwLock<State>,
    watchers: Watchers,
}

/// What a view shows and what it started from. A fork is one counter more in
/// `now`; the first write that comes after, here or there, parts them.
pub(crate) struct State {
    now: Arc<Now>,
    /// `None` as long as it still shows what it started from.
    base: Option<Tree>,
}

/// What a view shows, and under which rules.
#[derive(Clone)]
pub(crate) struct Now {
    pub(crate) top: Tree,
    pub(crate) setup: Arc<Setup>,
}

impl Deref for State {
    type Target = Now;

    #[inline]
    fn deref(&self) -> &Now {
        &self.now
    }
}

/// Whoever borrows it for writing is about to change what is shown.
impl DerefMut for State {
    #[inline]
    fn deref_mut(&mut self) -> &mut Now {
        if self.base.is_none() {
            self.base = Some(self.now.top.clone());
        }
        Arc::make_mut(&mut self.now)
    }
}

/// What seldom changes; forks hold the same one.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) rules: Rules,
    mounts: Vec<Mounted>,
    pub(crate) limits: Limits,
    who: Arc<str>,
    pub(crate) owner: (u32, u32),
}

#[derive(Clone)]
struct Mounted {
    info: Mount,
    /// The entry that was put there: what the source shows.
    shown: Entry,
    /// What stood there before, in top and base.
    before: [Option<Entry>; 2],
}

/// A source at a place in a view.
#[derive(Clone)]
pub struct Mount {
    /// Where.
    pub path: SandboxPath,
    /// What it shows.
    pub source: Arc<dyn Source>,
    /// What may be done there.
    pub access: Access,
    /// How long an answer of the source holds.
    pub freshness: Freshness,
}

impl Default for Vfs {
    fn default() -> Vfs {
        Vfs::new(Limits::default())
    }
}

impl Vfs {
    /// An empty view.
    pub fn new(limits: Limits) -> Vfs {
        let now = now_ns();
        let owner = (1000, 1000);
        let meta = Meta { mode: 0o755, uid: 1000, gid: 1000, modified_ns: now, changed_ns: now };
        let tree = Tree::empty(meta);
        let setup =
            Setup { rules: Rules::default(), mounts: Vec::new(), limits, who: "".into(), owner };
        Vfs::of(Arc::new(Now { top: tree, setup: Arc::new(setup) }))
    }

    /// A view whose root is a source, read as it is asked for and written
    /// over in memory.
    pub fn over(source: Arc<dyn Source>, limits: Limits) -> Vfs {
        let vfs = Vfs::new(limits);
        let path = SandboxPath::root();
        let (access, freshness) = (Access::Writable, Freshness::Frozen);
        let mut state = vfs.state_mut();
        let mount = Mount { path, source, access, freshness };
        state.top.root = lazy(&mount, state.setup.owner, now_ns());
        state.base = None;
        drop(state);
        vfs
    }

    fn of(now: Arc<Now>) -> Vfs {
        let state = RwLock::new(State { now, base: None });
        let shared = Shared { state, watchers: Watchers::default() };
        Vfs { shared: Arc::new(shared), given: None, by: 0 }
    }

    /// A view of its own that starts with what this one shows now, under the
    /// same rules, and calls that its base.
    pub fn fork(&self) -> Vfs {
        let now = self.state().now.clone();
        Vfs::of(now)
    }

    /// What it shows now, sealed.
    pub fn tree(&self) -> Tree {
        self.state().top.clone()
    }

    /// What it started from.
    pub fn base(&self) -> Tree {
        self.state().base().clone()
    }

    /// Shows a sealed tree from now on; the base stays. A mount stands in the
    /// tree, so one that was sealed under other mounts is refused.
    pub fn restore(&self, tree: &Tree) -> Result<(), FsError> {
        let mut state = self.state_mut();
        if state.top.mounts != tree.mounts {
            let reason = "something was mounted or unmounted since it was sealed";
            return Err(Fault::because(Kind::Busy, reason).at(b"/"));
        }
        state.top = tree.clone();
        drop(state);
        self.watchers().tell(self.by);
        Ok(())
    }

    /// Calls what it shows now its base: changes are counted from here on.
    pub fn rebase(&self) {
        self.state_mut().base = None;
    }

    /// A view that shows a tree and calls it its base, under our rules.
    pub fn at(&self, tree: &Tree) -> Vfs {
        let setup = self.state().setup.clone();
        Vfs::of(Arc::new(Now { top: tree.clone(), setup }))
    }

    /// How it differs from its base, sorted by path.
    pub fn changes(&self) -> Result<Vec<Change>, FsError> {
        let (old, new) = {
            let state = self.state();
            (state.base().clone(), state.top.clone())
        };
        self.between(&old, &new)
    }

    /// How it differs from any other tree.
    pub fn changes_since(&self, old: &Tree) -> Result<Vec<Change>, FsError> {
        self.between(old, &self.tree())
    }

    fn between(&self, old: &Tree, new: &Tree) -> Result<Vec<Change>, FsError> {
        self.asking(b"/", |answers| change::between(old, new, answers))
    }

    /// What it holds of its limits.
    pub fn usage(&self) -> Weight {
        self.state().top.weight()
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.state().setup.limits
    }

    /// Sets its limits; what is there already stays.
    pub fn set_limits(&self, limits: Limits) {
        self.set_up(|setup| setup.limits = limits);
    }

    /// The name that providers are told.
    pub fn set_who(&self, who: &str) {
        self.set_up(|setup| setup.who = who.into());
    }

    /// Who owns what is made from now on.
    pub fn set_owner(&self, uid: u32, gid: u32) {
        self.set_up(|setup| setup.owner = (uid, gid));
    }

    /// Allows or forbids something at a path and below; `None` takes the rule
    /// away.
    pub fn set_access(&self, path: &SandboxPath, access: Option<Access>) {
        self.set_up(|setup| {
            setup.rules.at(path).access = access;
            setup.rules.tidy();
        });
    }

    fn set_up(&self, change: impl FnOnce(&mut Setup)) {
        change(Arc::make_mut(&mut self.state_mut().setup));
        self.watchers().tell(self.by);
    }

    /// What is mounted, in the order it was.
    pub fn mounts(&self) -> Vec<Mount> {
        self.state().setup.mounts.iter().map(|mounted| mounted.info.clone()).collect()
    }

    /// Shows a source at a place: its directory is made if need be, and what
    /// was there is out of sight until [`Vfs::unmount`].
    ///
    /// What a frozen source shows may be written over in the view, and is
    /// then a change like any other; a live one can only be read.
    pub fn mount(&self, mount: Mount) -> Result<(), FsError> {
        let path = shown(&mount.path);
        if mount.path == SandboxPath::root() {
            return Err(Fault::because(Kind::Busy, "mount it below the root").at(&path));
        }
        let access = match mount.freshness {
            Freshness::Live(_) => mount.access.min(Access::ReadOnly),
            Freshness::Frozen => mount.access,
        };
        if let Some(parent) = mount.path.parent() {
            self.make_dir_all(shown(&parent))?;
        }
        let now = now_ns();
        self.writing(&path, |state, answers| {
            let place = mount.path.relative();
            let found =
                Walk::new(&state.top, &state.setup.rules, answers).find(&path, Last::Keep)?;
            if found.place()[..] != *place {
                let reason = "a symlink stands on the way";
                return Err(Fault::because(Kind::Invalid, reason).into());
            }
            if found.rule.is_some_and(|rule| rule.mounted) {
                return Err(Fault::because(Kind::Busy, "something is mounted there").into());
            }
            drop(found);
            let dir = Entry::Dir(lazy(&mount, state.setup.owner, now));
            let before = state.replace(place, Some(dir.clone()), answers, now)?;
            let setup = Arc::make_mut(&mut state.setup);
            let rule = setup.rules.at(&mount.path);
            (rule.mounted, rule.access) = (true, Some(access));
            let info = Mount { access, ..mount.clone() };
            setup.mounts.push(Mounted { info, shown: dir, before });
            Ok(())
        })
    }

    /// Puts what the source of a mount shows now in its place.
    pub(crate) fn show_anew(&self, at: &SandboxPath) -> Result<(), FsError> {
        let now = now_ns();
        self.writing(&shown(at), |state, answers| {
            let mount = state.mounted(at)?.0.clone();
            let dir = Entry::Dir(lazy(&mount, state.setup.owner, now));
            state.replace(at.relative(), Some(dir.clone()), answers, now)?;
            let mounts = &mut Arc::make_mut(&mut state.setup).mounts;
            let mounted = mounts.iter_mut().rfind(|mounted| mounted.info.path == *at);
            mounted.expect("found above").shown = dir;
            Ok(())
        })
    }

    /// Takes a mount away; what stood there before is there again, and what
    /// was written over the source is gone.
    pub fn unmount(&self, at: &SandboxPath) -> Result<(), FsError> {
        let path = shown(at);
        let now = now_ns();
        self.writing(&path, |state, answers| {
            let index = state.setup.mounts.iter().rposition(|mounted| mounted.info.path == *at);
            let index = index.ok_or(Fault::because(Kind::Invalid, "nothing is mounted there"))?;
            if state.setup.mounts.iter().any(|mounted| mounted.is_below(at)) {
                return Err(Fault::because(Kind::Busy, "something is mounted below it").into());
            }
            let [top, base] = state.setup.mounts[index].before.clone();
            state.put_back(at.relative(), [top, base], answers, now)?;
            let setup = Arc::make_mut(&mut state.setup);
            setup.mounts.remove(index);
            let rule = setup.rules.at(at);
            (rule.mounted, rule.access) = (false, None);
            setup.rules.tidy();
            Ok(())
        })
    }

    pub(crate) fn watchers(&self) -> &Watchers {
        &self.shared.watchers
    }

    pub(crate) fn who(&self) -> Arc<str> {
        self.state().setup.who.clone()
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.shared.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out something that reads the state under its lock, and asks
    /// sources outside of it.
    pub(crate) fn reading<T>(
        &self,
        path: &[u8],
        mut work: impl FnMut(&State, &Answers) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        self.asking(path, |answers| {
            let state = self.state();
            self.check_given(&state, answers)?;
            work(&state, answers)
        })
    }

    /// The same for something that writes.
    pub(crate) fn writing<T>(
        &self,
        path: &[u8],
        mut work: impl FnMut(&mut State, &Answers) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let done = self.asking(path, |answers| {
            let mut state = self.state_mut();
            self.check_given(&state, answers)?;
            work(&mut state, answers)
        })?;
        self.watchers().tell(self.by);
        Ok(done)
    }

    pub(crate) fn asking<T>(
        &self,
        path: &[u8],
        mut work: impl FnMut(&Answers) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let mut answers = Answers::default();
        loop {
            match work(&answers) {
                Ok(done) => return Ok(done),
                Err(Stop::Fault(fault)) => return Err(fault.at(path)),
                Err(Stop::Miss(_)) if answers.asked >= ASKED_MAX => {
                    let reason = format!("sources were asked {ASKED_MAX} times for it");
                    return Err(Fault::because(Kind::Source, reason).at(path));
                }
                Err(Stop::Miss(miss)) => {
                    answers.load(miss, self, &self.who()).map_err(|fault| fault.at(path))?;
                }
            }
        }
    }
}

impl Mounted {
    fn is_below(&self, at: &SandboxPath) -> bool {
        self.info.path != *at && self.info.path.is_within(at)
    }
}

/// What stands in the tree for a source that was not asked yet.
fn lazy(mount: &Mount, owner: (u32, u32), now: i64) -> Arc<Dir> {
    let meta = Meta { mode: 0o755, uid: owner.0, gid: owner.1, modified_ns: now, changed_ns: now };
    let origin = Origin {
        source: mount.source.clone(),
        at: SandboxPath::root(),
        mounted: mount.path.clone(),
        freshness: mount.freshness,
        stamp: None,
        meta,
    };
    let entries = Entries::Lazy(Arc::new(LazyDir::new(origin)));
    Arc::new(Dir::new(meta, entries))
}

impl State {
    /// What it started from.
    fn base(&self) -> &Tree {
        self.base.as_ref().unwrap_or(&self.now.top)
    }

    /// A mount, and what was put into the tree for it.
    pub(crate) fn mounted(&self, at: &SandboxPath) -> Result<(&Mount, Entry), Fault> {
        if self.setup.mounts.iter().any(|mounted| mounted.is_below(at)) {
            return Err(Fault::because(Kind::Busy, "something is mounted below it"));
        }
        let mounted = self.setup.mounts.iter().rfind(|mounted| mounted.info.path == *at);
        let mounted = mounted.ok_or(Fault::because(Kind::Invalid, "nothing is mounted there"))?;
        Ok((&mounted.info, mounted.shown.clone()))
    }

    /// Whether so much more fits.
    pub(crate) fn check_room(&self, bytes: u64, entries: u64) -> Result<(), Fault> {
        let (held, limits) = (self.top.weight(), &self.setup.limits);
        if bytes > 0 && held.bytes.saturating_add(bytes) > limits.bytes_max {
            let reason = format!("{} of {} bytes are used", held.bytes, limits.bytes_max);
            return Err(Fault::because(Kind::Full, reason));
        }
        if entries > 0 && held.entries.saturating_add(entries) > limits.entries_max {
            let reason = format!("{} of {} entries are used", held.entries, limits.entries_max);
            return Err(Fault::because(Kind::Full, reason));
        }
        Ok(())
    }

    /// Puts an entry into top and base alike, so that it is no change, and
    /// returns what stood there.
    fn replace(
        &mut self,
        place: &[u8],
        entry: Option<Entry>,
        answers: &Answers,
        now: i64,
    ) -> Result<[Option<Entry>; 2], Stop> {
        let before = [self.top.peek(place, answers)?, self.base().peek(place, answers)?];
        let mut base = self.base().clone();
        base.make_dirs(place, &self.top, answers)?;
        base.set(place, entry.clone(), answers, now)?;
        self.top.set(place, entry, answers, now)?;
        self.remounted(base);
        Ok(before)
    }

    fn put_back(
        &mut self,
        place: &[u8],
        [top, base]: [Option<Entry>; 2],
        answers: &Answers,
        now: i64,
    ) -> Result<(), Stop> {
        let mut new_base = self.base().clone();
        new_base.set(place, base, answers, now)?;
        self.top.set(place, top, answers, now)?;
        self.remounted(new_base);
        Ok(())
    }

    fn remounted(&mut self, base: Tree) {
        let mounts = number();
        self.top.mounts = mounts;
        self.base = Some(Tree { mounts, ..base });
    }
}

/// The clock, in nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
