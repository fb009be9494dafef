//! The door of a run: how the program inside makes and runs things below its
//! own sandbox, and never above.
//!
//! The engine makes the key and the bounds; whoever speaks HTTP serves the
//! socket (`Engine::set_doors`). The key is for the sandbox and what is forked
//! below it, may do what the run may do, and ends with the run: it is revoked
//! when the program has ended, and as soon as anybody notices that whoever
//! supervised it was killed.
//!
//! All runs behind a door, at any depth, share what the run that has it may
//! use: the sum of their limits never passes its own, nor that of any run
//! further out. A run that asks for nothing gets half of what is left, so that
//! there is something for the next one. Bytes on disk are shared as well, but
//! those that were written stay taken when a run is over: see [`disk`].

mod disk;

pub(crate) use disk::Promised;

use crate::verbs::run::claim::label;
use crate::verbs::{drop as dropping, key};
use crate::{Caller, Config, Engine};
use fractal_jail::OpenDoor;
use fractal_model::{
    Code, Error, Id, Key, Limits, Policy, Result, Role, Scope, Verb, format_bytes,
};
use fractal_store::{Reads, RunRow, SandboxRow, new_id, now_ms};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a program finds its door, and the key to it.
pub const DOOR_VARIABLE: &str = "FRACTAL_DOOR";
/// See [`DOOR_VARIABLE`].
pub const KEY_VARIABLE: &str = "FRACTAL_KEY";

/// What keys of doors have instead of a role.
const ROLE: &str = "door";
/// Doors behind doors.
const DEPTH_MAX: u32 = 8;
/// Runs behind one outermost door at once.
const RUNS_MAX: u32 = 32;
/// Sandboxes below one that has a door.
const BELOW_MAX: usize = 64;
/// How long what runs behind a door may take to be gone.
const CLOSING: Duration = Duration::from_secs(10);

/// Less than this is no use to a program.
const LEAST: Limits = Limits {
    cpu_milli: Some(50),
    memory_bytes: Some(16 << 20),
    pids: Some(8),
    disk_bytes: None,
    time_ms: None,
    output_bytes: None,
};

/// Serves doors: makes everything ready, and returns what takes the socket.
pub type Doors = Arc<dyn Fn(Grant) -> Result<OpenDoor> + Send + Sync>;

/// What whoever serves a door needs to know.
#[derive(Clone)]
pub struct Grant {
    /// The only key that opens it.
    pub key: Key,
    /// The sandbox's directory.
    pub directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    config: Config,
    doorway: Arc<Doorway>,
}

impl Grant {
    /// Who comes through this door. It has the variables that the program has.
    pub fn caller(&self) -> Caller {
        Caller {
            environment: self.environment.clone(),
            door: Some(self.doorway.clone()),
            ..Caller::of_key(&self.key, &self.directory, self.config.clone())
        }
    }

    /// Ends what was begun through it, and lets nothing more begin.
    pub fn close(&self, engine: &Engine) {
        self.doorway.close(engine);
    }
}

/// One door: where it leads, and what runs behind it.
#[derive(Debug)]
pub struct Doorway {
    /// The sandbox that its program stands in.
    pub(crate) root: Id,
    ends: Option<Instant>,
    depth: u32,
    /// The door that its run was asked for through.
    above: Option<Arc<Doorway>>,
    /// The key that its run was asked for with.
    maker: Option<Id>,
    /// What all behind it share.
    limits: Limits,
    taken: Mutex<Taken>,
    begun: Mutex<Begun>,
}

#[derive(Debug, Default)]
struct Taken {
    runs: u32,
    cpu_milli: u64,
    memory_bytes: u64,
    pids: u64,
    disk: Vec<disk::Promise>,
}

#[derive(Debug, Default)]
struct Begun {
    is_closed: bool,
    /// Runs, and the layers they write.
    living: Vec<(Id, Id)>,
}

/// A panic elsewhere leaves numbers behind, no broken promises.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run's part of what is shared, until dropped.
pub(crate) struct Part {
    doorway: Arc<Doorway>,
    limits: Limits,
    run: Option<Id>,
    disk: Promised,
}

impl Part {
    /// From now on it can be ended.
    pub(crate) fn began(&mut self, run: Id, layer: Id) -> Result<()> {
        self.disk.moved_to(layer);
        let mut begun = lock(&self.doorway.begun);
        if begun.is_closed {
            return Err(closed());
        }
        begun.living.push((run, layer));
        self.run = Some(run);
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for level in self.doorway.levels() {
            let mut taken = lock(&level.taken);
            taken.runs -= 1;
            taken.cpu_milli -= self.limits.cpu_milli.unwrap_or(0);
            taken.memory_bytes -= self.limits.memory_bytes.unwrap_or(0);
            taken.pids -= self.limits.pids.unwrap_or(0);
        }
        lock(&self.doorway.begun).living.retain(|(run, _)| Some(*run) != self.run);
    }
}

fn closed() -> Error {
    Error::new(Code::Busy, "the run that this door belongs to is over")
}

impl Doorway {
    /// This door and those it is behind, the outermost last.
    fn levels(&self) -> impl Iterator<Item = &Doorway> {
        std::iter::successors(Some(self), |door| door.above.as_deref())
    }

    fn outermost(&self) -> &Doorway {
        self.levels().last().unwrap_or(self)
    }

    /// Takes the part of a run that writes this layer of what is shared, and
    /// bounds the run by it.
    pub(crate) fn enter(
        self: &Arc<Doorway>,
        engine: &Engine,
        layer: Id,
        limits: &mut Limits,
        asked: &Limits,
    ) -> Result<Part> {
        if lock(&self.begun).is_closed {
            return Err(closed());
        }
        if let Some(ends) = self.ends {
            let left = ends.saturating_duration_since(Instant::now()).as_millis();
            let left = u64::try_from(left).unwrap_or(u64::MAX).max(1);
            limits.time_ms = Some(limits.time_ms.map_or(left, |own| own.min(left)));
        }
        // Always from the inside out, so nobody waits for each other.
        let mut all: Vec<_> = self.levels().map(|level| (level, lock(&level.taken))).collect();
        if all.iter().any(|(_, taken)| taken.runs >= RUNS_MAX) {
            return Err(Error::new(Code::Busy, format!("{RUNS_MAX} runs are behind this door"))
                .hint("wait for one of them to end"));
        }
        let mut part = Limits::default();
        let mut shares_disk = Vec::new();
        for (level, taken) in &all {
            part = part.meet(&level.part(taken, limits, asked)?);
            let written = (layer, limits.disk_bytes, asked.disk_bytes);
            let disk_bytes = level.disk_part(engine, taken, written)?;
            shares_disk.push(disk_bytes.is_some());
            part = part.meet(&Limits { disk_bytes, ..Limits::default() });
        }
        let (token, bytes) = (new_id(), part.disk_bytes.unwrap_or(0));
        for ((_, taken), shares_disk) in all.iter_mut().zip(shares_disk) {
            taken.runs += 1;
            if shares_disk {
                taken.disk.push(disk::Promise { token, layer, bytes });
            }
            taken.cpu_milli += part.cpu_milli.unwrap_or(0);
            taken.memory_bytes += part.memory_bytes.unwrap_or(0);
            taken.pids += part.pids.unwrap_or(0);
        }
        drop(all);
        limits.cpu_milli = part.cpu_milli.or(limits.cpu_milli);
        limits.memory_bytes = part.memory_bytes.or(limits.memory_bytes);
        limits.pids = part.pids.or(limits.pids);
        limits.disk_bytes = part.disk_bytes.or(limits.disk_bytes);
        let disk = Promised::new(self, token);
        Ok(Part { doorway: self.clone(), limits: part, run: None, disk })
    }

    fn close(&self, engine: &Engine) {
        lock(&self.begun).is_closed = true;
        let layers = engine.layers_dir();
        let start = Instant::now();
        while start.elapsed() < CLOSING {
            let living = lock(&self.begun).living.clone();
            if living.is_empty() {
                return;
            }
            for (run, layer) in living {
                // Not there yet, or no longer: then it is looked at again.
                fractal_jail::end(&layers, layer.as_str(), &label(run));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

/// What a run gets of one thing: `total` is shared, `taken` of it in use.
fn share(
    (total, taken): (Option<u64>, u64),
    (own, asked): (Option<u64>, Option<u64>),
    least: Option<u64>,
) -> std::result::Result<Option<u64>, u64> {
    let Some(total) = total else { return Ok(None) };
    let left = total.saturating_sub(taken);
    let least = least.unwrap_or(1).min(total / 2).max(1);
    let wanted = match asked {
        Some(asked) => asked,
        None => own.unwrap_or(total).min((left / 2).max(least)),
    };
    if wanted > left || left == 0 { Err(left) } else { Ok(Some(wanted)) }
}

impl Doorway {
    /// A run's part of what is left.
    fn part(&self, taken: &Taken, own: &Limits, asked: &Limits) -> Result<Limits> {
        let used_up = |what: &str, left: String, total: String| {
            Error::new(Code::Busy, format!("of {what} {total}, {left} are left behind this door"))
                .hint("wait for another run to end, or ask for less")
        };
        let total = &self.limits;
        let plain = |number: Option<u64>| number.unwrap_or(0).to_string();
        let cpu_milli = share(
            (total.cpu_milli, taken.cpu_milli),
            (own.cpu_milli, asked.cpu_milli),
            LEAST.cpu_milli,
        )
        .map_err(|left| used_up("cpu", format!("{left}m"), plain(total.cpu_milli) + "m"))?;
        let memory_bytes = share(
            (total.memory_bytes, taken.memory_bytes),
            (own.memory_bytes, asked.memory_bytes),
            LEAST.memory_bytes,
        )
        .map_err(|left| {
            let all = format_bytes(total.memory_bytes.unwrap_or(0));
            used_up("memory", format_bytes(left), all)
        })?;
        let pids = share((total.pids, taken.pids), (own.pids, asked.pids), LEAST.pids)
            .map_err(|left| used_up("pids", left.to_string(), plain(total.pids)))?;
        Ok(Limits { cpu_milli, memory_bytes, pids, ..Limits::default() })
    }
}

/// The door of a run that is about to start. Its key ends when this is dropped.
pub(crate) struct Opened<'a> {
    engine: &'a Engine,
    key: Id,
    name: String,
    who: Caller,
    /// What the program finds in its environment.
    pub variables: [(OsString, OsString); 2],
    /// What takes the socket.
    pub open: Option<OpenDoor>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // Should it fail, the key is refused all the same: its run is over.
        let _ = key::end(self.engine, &self.who, self.key, &self.name);
    }
}

/// Makes a door for a run in this sandbox, under this policy.
pub(crate) fn open<'a>(
    engine: &'a Engine,
    caller: &Caller,
    row: &SandboxRow,
    run: Id,
    policy: &Policy,
    environment: &[(OsString, OsString)],
) -> Result<Opened<'a>> {
    let doors = engine.doors.get().ok_or_else(|| {
        Error::new(
            Code::Unsupported,
            "this fractal was built without the server, which opens doors",
        )
        .hint("build it with the feature `server`, or leave out `--door`")
    })?;
    let above = caller.door.as_ref();
    let depth = above.map_or(1, |above| above.depth + 1);
    if depth > DEPTH_MAX {
        return Err(Error::denied(format!(
            "there are {DEPTH_MAX} doors behind each other already"
        ))
        .hint("leave out `--door`"));
    }
    let now = Instant::now();
    let own = policy.limits.time_ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)));
    let ends = own.into_iter().chain(above.and_then(|above| above.ends)).min();
    let made = key::create(engine, caller, door_key(row, run, policy))?;
    let name = made.key.name.clone();
    let doorway = Arc::new(Doorway {
        root: row.id,
        ends,
        depth,
        above: above.cloned(),
        maker: caller.key,
        limits: policy.limits.clone(),
        taken: Mutex::default(),
        begun: Mutex::default(),
    });
    let path = fractal_jail::door_path(&label(run));
    let mut opened = Opened {
        engine,
        key: made.key.id,
        name,
        who: caller.clone(),
        variables: [
            (DOOR_VARIABLE.into(), path.into_os_string()),
            (KEY_VARIABLE.into(), made.secret.into()),
        ],
        open: None,
    };
    opened.open = Some(doors(Grant {
        key: made.key,
        directory: row.directory.clone(),
        environment: environment.to_vec(),
        config: caller.config.clone(),
        doorway,
    })?);
    Ok(opened)
}

/// What the run may do, where it is: what works in sandboxes, and promotes.
/// Notes that it writes and finds are those of its own sandbox; experiments
/// are directories of a project, and behind a door there is none.
fn door_key(row: &SandboxRow, run: Id, policy: &Policy) -> Key {
    let mut verbs = Role::built_in("runner").and_then(|role| role.policy.allow);
    verbs.iter_mut().for_each(|verbs| {
        verbs.insert(Verb::Promote);
        verbs.remove(&Verb::Skunk);
    });
    let now = now_ms();
    Key {
        id: new_id(),
        name: name_for(run),
        role: ROLE.to_owned(),
        policy: policy.meet(&Policy { allow: verbs, ..Policy::default() }),
        tenant: Some(row.tenant.clone()),
        scope: Scope::Sandbox(row.id),
        rate_per_minute: None,
        concurrent: None,
        created_ms: now,
        expires_ms: policy.limits.time_ms.map(|ms| now.saturating_add(ms)),
        revoked_ms: None,
    }
}

/// How long something is kept that is made behind a door: no longer than what
/// it is made from.
pub(crate) fn bound_ttl(caller: &Caller, asked: Option<u64>, own: u64) -> Option<u64> {
    match caller.door {
        Some(_) => Some(asked.map_or(own, |asked| asked.min(own))),
        None => asked,
    }
}

fn name_for(run: Id) -> String {
    format!("{ROLE}-{}", label(run))
}

/// Whether it is the key of a door.
pub(crate) fn is_doors(key: &Key) -> bool {
    key.role == ROLE && key.name.starts_with("door-") && matches!(key.scope, Scope::Sandbox(_))
}

impl Engine {
    /// Says who serves doors: without, no run has one.
    pub fn set_doors(&self, doors: Doors) {
        let _ = self.doors.set(doors);
    }

    /// Whether the run that a door's key was made for still has somebody who
    /// supervises it.
    pub(crate) fn is_open(&self, key: &Key) -> Result<bool> {
        self.recover()?;
        Ok(self.store.runs()?.iter().any(|run| name_for(run.id) == key.name))
    }

    /// Ends the keys of doors whose supervisors were killed.
    pub(crate) fn close_lost(&self, lost: &[RunRow]) -> Result<()> {
        for row in self.store.keys()? {
            let is_lost = lost.iter().any(|run| name_for(run.id) == row.key.name);
            if is_lost && is_doors(&row.key) && row.key.revoked_ms.is_none() {
                key::end(self, &Caller::owner("/"), row.key.id, &row.key.name)?;
            }
        }
        Ok(())
    }

    /// What was forked below a sandbox, at any depth.
    pub(crate) fn below(&self, root: Id) -> Result<Vec<SandboxRow>> {
        let mut list = self.store.children(root)?;
        let mut at = 0;
        while at < list.len() {
            list.extend(self.store.children(list[at].id)?);
            at += 1;
        }
        Ok(list)
    }

    /// Drops everything below a sandbox that is about to be dropped itself,
    /// the innermost first: what is left, should one not go, has a way up.
    pub(crate) fn drop_below(&self, caller: &Caller, root: Id) -> Result<()> {
        self.below(root)?.iter().rev().try_for_each(|row| dropping::drop_row(self, caller, row))
    }

    /// Whether a key that a door's run was asked for with has ended, at any
    /// depth: who made the door has nothing to give any more. Tokens are in no
    /// table; a door's key ends when they do.
    pub(crate) fn has_lost_maker(&self, door: &Grant) -> Result<bool> {
        let now = now_ms();
        for maker in door.doorway.levels().filter_map(|level| level.maker) {
            if self.store.key(maker)?.is_some_and(|row| row.key.ended(now).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses to make one more sandbox behind a door that has many.
    pub(crate) fn require_room_below(&self, caller: &Caller) -> Result<()> {
        let Some(doorway) = &caller.door else { return Ok(()) };
        if self.below(doorway.outermost().root)?.len() < BELOW_MAX {
            return Ok(());
        }
        Err(Error::new(Code::Busy, format!("{BELOW_MAX} sandboxes are below this one"))
            .hint("drop some: `fractal drop S`"))
    }

    /// Refuses to end or move the sandbox that the caller itself stands in.
    pub(crate) fn refuse_own(&self, caller: &Caller, row: &SandboxRow, verb: &str) -> Result<()> {
        if caller.door.as_ref().is_none_or(|doorway| doorway.root != row.id) {
            return Ok(());
        }
        Err(Error::denied(format!(
            "`{}` is the sandbox that you are in: you cannot {verb} it",
            row.name
        ))
        .hint("fork it, and work on the fork: `fractal fork`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(above: Option<Arc<Doorway>>, memory_bytes: u64) -> Arc<Doorway> {
        Arc::new(Doorway {
            root: new_id(),
            ends: None,
            depth: 1,
            above,
            maker: None,
            limits: Limits { memory_bytes: Some(memory_bytes), ..Limits::default() },
            taken: Mutex::default(),
            begun: Mutex::default(),
        })
    }

    #[test]
    fn a_door_behind_another_has_both_bounds() {
        let outer = door(None, 1000);
        let inner = door(Some(outer.clone()), 100);
        let home = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(home.path()).expect("it opens");
        let ask = |door: &Arc<Doorway>, bytes| {
            let asked = Limits { memory_bytes: Some(bytes), ..Limits::default() };
            door.enter(&engine, new_id(), &mut Limits::default(), &asked)
        };
        assert!(ask(&inner, 200).is_err(), "more than the inner run has");
        let first = ask(&inner, 80).expect("it fits");
        assert!(ask(&inner, 30).is_err(), "the sum passes the inner bound");
        assert!(ask(&outer, 930).is_err(), "what is behind both counts outside, too");
        let second = ask(&outer, 920).expect("it fits");
        assert!(ask(&inner, 10).is_err(), "the outer bound is reached");
        drop((first, second));
        assert!(ask(&inner, 100).is_ok() && ask(&outer, 1000).is_ok());
    }

    #[test]
    fn what_is_made_behind_a_door_is_not_kept_longer() {
        let owner = Caller::owner("/");
        let inside = Caller { door: Some(door(None, 1)), ..owner.clone() };
        assert_eq!(bound_ttl(&owner, Some(9), 5), Some(9));
        assert_eq!(bound_ttl(&inside, Some(9), 5), Some(5));
        assert_eq!(bound_ttl(&inside, Some(2), 5), Some(2));
        assert_eq!(bound_ttl(&inside, None, 5), Some(5));
    }

    #[test]
    fn parts_never_pass_the_whole() {
        let check = |total, taken, own, asked, expect| {
            assert_eq!(share((total, taken), (own, asked), Some(8)), expect);
        };
        check(None, 0, Some(5), None, Ok(None));
        check(Some(100), 0, None, None, Ok(Some(50)));
        check(Some(100), 0, Some(20), None, Ok(Some(20)));
        check(Some(100), 90, None, None, Ok(Some(8)));
        check(Some(100), 95, None, None, Err(5));
        check(Some(100), 0, None, Some(100), Ok(Some(100)));
        check(Some(100), 1, None, Some(100), Err(99));
        check(Some(100), 100, None, None, Err(0));
        check(Some(2), 0, None, None, Ok(Some(1)));
        check(Some(1), 1, Some(1), None, Err(0));
    }
}
