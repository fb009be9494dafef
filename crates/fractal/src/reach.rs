//! What a caller can see, and what it may name.
//!
//! Everything out of reach answers like something that does not exist, with
//! the same words, so that nobody learns of it by asking. Only what a caller
//! can see is ever denied to it.

use crate::{Caller, Engine, record, stages};
use fractal_model::{Code, Error, Id, Key, Reach, RecordBody, Result, Scope};
use fractal_store::{ApplyRow, Reads, SandboxRow};
use std::collections::HashSet;

/// Deeper than anybody forks; ends the walk in damaged data.
const DEPTH_MAX: usize = 10_000;

/// Where programs are on every Linux.
const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Caller {
    /// The holder of a key, in the directory that its door works for. Of the
    /// environment it has a path to programs alone: what the door's own holds is
    /// not the key's to see.
    pub fn of_key(
        key: &Key,
        directory: impl Into<std::path::PathBuf>,
        config: crate::Config,
    ) -> Caller {
        Caller {
            who: key.name.clone(),
            key: Some(key.id),
            policy: key.policy.clone(),
            reach: key.reach(),
            directory: directory.into(),
            environment: vec![("PATH".into(), PROGRAMS.into())],
            config,
            door: None,
            bounds: crate::KeyBounds::of(key),
            cancel: crate::Cancel::default(),
        }
    }

    /// The same caller for steps that the engine takes by itself, as in a
    /// rehearsal: these happen in sandboxes that nobody asked for by name.
    pub(crate) fn for_steps_in(&self, row: &SandboxRow) -> Caller {
        Caller {
            directory: row.directory.clone(),
            reach: Reach { tenant: Some(row.tenant.clone()), scope: Scope::All },
            ..self.clone()
        }
    }
}

impl Engine {
    /// Whether the caller can see a sandbox.
    pub(crate) fn reaches(&self, caller: &Caller, row: &SandboxRow) -> Result<bool> {
        let reach = &caller.reach;
        if !reach.has_tenant(&row.tenant) {
            return Ok(false);
        }
        match &reach.scope {
            Scope::All => Ok(true),
            Scope::Template(name) => Ok(row.template == *name),
            Scope::Sandbox(root) => self.is_below(row, *root),
        }
    }

    /// Those of them that the caller can see.
    pub(crate) fn in_reach(
        &self,
        caller: &Caller,
        rows: Vec<SandboxRow>,
    ) -> Result<Vec<SandboxRow>> {
        let mut list = Vec::with_capacity(rows.len());
        for row in rows {
            if self.reaches(caller, &row)? {
                list.push(row);
            }
        }
        Ok(list)
    }

    /// Whether it is that sandbox, or was forked below it. One whose parent
    /// was dropped is below nothing any more.
    fn is_below(&self, row: &SandboxRow, root: Id) -> Result<bool> {
        let mut at = (row.id, row.parent);
        for _ in 0..DEPTH_MAX {
            match at {
                (id, _) if id == root => return Ok(true),
                (_, None) => return Ok(false),
                (_, Some(parent)) => match self.store.sandbox(parent)? {
                    None => return Ok(false),
                    Some(above) => at = (above.id, above.parent),
                },
            }
        }
        Ok(false)
    }

    /// Whether the caller can see a write into reality.
    pub(crate) fn reaches_apply(&self, caller: &Caller, row: &ApplyRow) -> Result<bool> {
        if !caller.reach.has_tenant(&row.tenant) {
            return Ok(false);
        }
        if caller.reach.scope == Scope::All {
            return Ok(true);
        }
        let sandbox = row.sandbox.map_or(Ok(None), |id| self.store.sandbox(id))?;
        sandbox.map_or(Ok(false), |sandbox| self.reaches(caller, &sandbox))
    }

    /// All writes into reality that the caller can see, newest first.
    pub(crate) fn applies_in_reach(&self, caller: &Caller) -> Result<Vec<ApplyRow>> {
        let mut list = Vec::new();
        for row in self.store.applies()? {
            if self.reaches_apply(caller, &row)? {
                list.push(row);
            }
        }
        Ok(list)
    }

    /// Refuses to make a sandbox on reality that its caller could not see.
    pub(crate) fn require_new_within(&self, caller: &Caller, template: &str) -> Result<()> {
        let error = match &caller.reach.scope {
            Scope::All => return Ok(()),
            Scope::Template(name) if name == template => return Ok(()),
            Scope::Template(name) => Error::denied(format!(
                "the key `{}` is for the template `{name}` alone",
                caller.who
            ))
            .hint(format!("ask for it: `--template {name}`")),
            Scope::Sandbox(id) => Error::denied(format!(
                "the key `{}` is for one sandbox and what is forked below it",
                caller.who
            ))
            .hint(format!("name it: `--in {id}`, or fork it")),
        };
        Err(error)
    }

    /// Refuses to make a child whose template its caller could not see.
    pub(crate) fn require_child_within(&self, caller: &Caller, template: &str) -> Result<()> {
        match &caller.reach.scope {
            Scope::Template(_) => self.require_new_within(caller, template),
            _ => Ok(()),
        }
    }

    /// Refuses to write above the sandbox that a key is for.
    pub(crate) fn require_target_within(
        &self,
        caller: &Caller,
        target: Option<&SandboxRow>,
    ) -> Result<()> {
        let within = match (&caller.reach.scope, target) {
            (Scope::Sandbox(_), None) => false,
            (Scope::Sandbox(_), Some(target)) => self.reaches(caller, target)?,
            _ => true,
        };
        if within {
            return Ok(());
        }
        Err(Error::denied(format!(
            "the key `{}` is for one sandbox, and cannot promote out of it",
            caller.who
        ))
        .hint("promote a fork of it into it; who made the key takes it further"))
    }

    /// Refuses a path of the host to whoever is not its user: the door that
    /// they came through takes and gives contents instead.
    pub(crate) fn refuse_host_path(&self, caller: &Caller, verb: &str) -> Result<()> {
        if caller.reach.is_everything() {
            return Ok(());
        }
        Err(Error::denied(format!(
            "the key `{}` cannot {verb} with a path of the host",
            caller.who
        ))
        .hint("send or fetch the content itself; only a key for everything names host paths"))
    }

    /// Finds a sandbox by name or id; without either, the latest one of the
    /// caller's directory.
    pub(crate) fn find(&self, caller: &Caller, selector: Option<&str>) -> Result<SandboxRow> {
        let Some(text) = selector else {
            // Who is in a sandbox means that one.
            return match &caller.door {
                Some(door) => self.find(caller, Some(door.root.as_str())),
                None => self.find_latest(caller),
            };
        };
        let by_id = Id::parse(text).ok().map(|id| self.store.sandbox(id)).transpose()?.flatten();
        let found = match self.seen(caller, by_id)? {
            Some(row) => Some(row),
            None => self.find_named(caller, text)?,
        };
        found.ok_or_else(|| {
            Error::not_found(format!("there is no sandbox `{}`", text.escape_debug()))
                .hint("`fractal list` shows what there is")
        })
    }

    fn seen(&self, caller: &Caller, row: Option<SandboxRow>) -> Result<Option<SandboxRow>> {
        match row {
            Some(row) if self.reaches(caller, &row)? => Ok(Some(row)),
            _ => Ok(None),
        }
    }

    /// In the caller's own tenant first, then as a stage of its project, then
    /// in all others, if the caller reaches those.
    fn find_named(&self, caller: &Caller, name: &str) -> Result<Option<SandboxRow>> {
        let own = self.store.sandbox_named(caller.reach.home(), name)?;
        if let Some(row) = self.seen(caller, own)? {
            return Ok(Some(row));
        }
        let stage = stages::named(self, caller, name)?;
        if let Some(row) = self.seen(caller, stage)? {
            return Ok(Some(row));
        }
        if caller.reach.tenant.is_some() {
            return Ok(None);
        }
        let mut others = self.in_reach(caller, self.store.sandboxes_named(name)?)?;
        if others.len() > 1 {
            let ids: Vec<&str> = others.iter().map(|row| row.id.as_str()).collect();
            let message = format!("several tenants have a sandbox `{name}`: {}", ids.join(", "));
            return Err(Error::invalid(message).hint("name it by its id"));
        }
        Ok(others.pop())
    }

    fn find_latest(&self, caller: &Caller) -> Result<SandboxRow> {
        const LOOK_BACK: u32 = 1_000;
        let limit = if caller.reach.scope == Scope::All { 1 } else { LOOK_BACK };
        let latest = self.store.latest_in(caller.reach.home(), &caller.directory, limit)?;
        for row in latest {
            if self.reaches(caller, &row)? {
                return Ok(row);
            }
        }
        // Where a door keeps its project is none of a key's business.
        let place = match caller.reach.is_everything() {
            true => format!("no sandbox was made in {}", caller.directory.display()),
            false => "there is no sandbox yet".to_owned(),
        };
        Err(Error::not_found(place)
            .hint("`fractal list` shows all of them; `fractal run -- CMD` makes one"))
    }

    /// Writes down that something was refused before anybody was asked to do
    /// it: for doors.
    pub fn record_denied(&self, caller: &Caller, action: &str, sandbox: Option<&str>, why: &str) {
        if self.ready().is_err() {
            return;
        }
        let row = sandbox.and_then(|text| self.find(caller, Some(text)).ok());
        let mut body = record(caller, action, row.as_ref());
        body.error = Some(Code::Denied);
        body.detail = serde_json::json!({ "why": short(why) });
        if let Some(text) = sandbox.filter(|_| row.is_none()) {
            body.detail["sandbox"] = short(text).into();
        }
        // Who is refused is refused, whether or not it can be written down.
        let _ = self.store.transact_relaxed(|tx| tx.append(body));
    }

    /// Writes down that a verb refused, or found nothing.
    pub(crate) fn record_refused(&self, caller: &Caller, action: &str, code: Code, why: &str) {
        if self.ready().is_err() {
            return;
        }
        let mut body = record(caller, action, None);
        body.error = Some(code);
        body.detail = serde_json::json!({ "why": short(why) });
        let _ = self.store.transact_relaxed(|tx| tx.append(body));
    }
}

/// What others sent is written down only as far as it tells something.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    text.chars().take(CHARS_MAX).collect()
}

/// Which records a caller can see.
pub(crate) struct Seen<'a> {
    caller: &'a Caller,
    /// The sandboxes it reaches, where it does not reach all of its tenant.
    sandboxes: Option<HashSet<Id>>,
}

impl<'a> Seen<'a> {
    pub fn new(engine: &Engine, caller: &'a Caller) -> Result<Seen<'a>> {
        if caller.reach.scope == Scope::All {
            return Ok(Seen { caller, sandboxes: None });
        }
        let rows = engine.in_reach(caller, engine.store.sandboxes()?)?;
        Ok(Seen { caller, sandboxes: Some(rows.into_iter().map(|row| row.id).collect()) })
    }

    pub fn has(&self, body: &RecordBody) -> bool {
        let reach = &self.caller.reach;
        reach.has_tenant(body.tenant.as_deref().unwrap_or_default())
            && match (&self.sandboxes, body.sandbox) {
                (None, _) => true,
                (Some(_), None) => body.key.is_some() && body.key == self.caller.key,
                (Some(ids), Some(id)) => ids.contains(&id),
            }
    }
}
