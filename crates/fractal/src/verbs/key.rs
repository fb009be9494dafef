//! `key`: who else may ask, and for what.
//!
//! A secret is shown once, when it is made; what is kept is its hash. A key
//! is bounded by the caller who makes it, and a caller sees and ends only keys
//! whose reach is within its own.

use super::run::place::check_ttl;
use crate::{Caller, Engine, KeyBounds, Template, doorway, record};
use fractal_model::{
    Code, Error, Id, KEY_TTL_MS, Key, KeyMade, KeyVerb, Name, Policy, Reach, Reply, Result, Role,
    Scope, Verb, hash_secret, write_secret,
};
use fractal_store::{KeyRow, Reads, new_id, now_ms};
use serde_json::json;

/// The word for the local user's own tenant, which has no name of its own.
pub const OWNER: &str = "owner";

pub fn key(engine: &Engine, caller: &Caller, verb: KeyVerb) -> Result<Reply> {
    match verb {
        KeyVerb::Create {
            role,
            name,
            tenant,
            scope,
            ask,
            ttl_ms,
            endless,
            rate_per_minute,
            concurrent,
        } => {
            check_ttl(ttl_ms)?;
            let now = now_ms();
            let expires_ms = (!endless).then(|| now.saturating_add(ttl_ms.unwrap_or(KEY_TTL_MS)));
            let asked = Asked { role, name, tenant, scope, ask, expires_ms, now };
            let mut key = asked.key(engine, caller)?;
            (key.rate_per_minute, key.concurrent) = (rate_per_minute, concurrent);
            create(engine, caller, key).map(|made| Reply::KeyMade(Box::new(made)))
        }
        KeyVerb::List => {
            let keys = visible(engine, caller)?.into_iter().map(|row| row.key).collect();
            Ok(Reply::Keys { keys })
        }
        KeyVerb::Show { key } => Ok(Reply::Key(Box::new(find(engine, caller, &key)?.key))),
        KeyVerb::Rotate { key, grace_ms } => {
            rotate(engine, caller, &key, grace_ms).map(|made| Reply::KeyMade(Box::new(made)))
        }
        KeyVerb::Revoke { key } => {
            revoke(engine, caller, &key).map(|key| Reply::Key(Box::new(key)))
        }
        KeyVerb::Roles => Ok(Reply::Roles { roles: caller.config.roles()? }),
    }
}

/// What a new key is to be, as it was asked.
struct Asked {
    role: String,
    name: Option<String>,
    tenant: Option<String>,
    scope: Option<String>,
    ask: Policy,
    expires_ms: Option<u64>,
    now: u64,
}

impl Asked {
    /// The key as the role says, not yet bounded by its creator.
    fn key(self, engine: &Engine, caller: &Caller) -> Result<Key> {
        self.ask.check()?;
        let role = find_role(caller, &self.role)?;
        let id = new_id();
        let (scope, tenant_of_scope) = read_scope(engine, caller, self.scope.as_deref())?;
        let tenant = match (self.tenant, tenant_of_scope) {
            (Some(name), _) => Some(read_tenant(&name)?),
            (None, Some(tenant)) => Some(tenant),
            // Within a tenant, everything that is made there belongs to it.
            (None, None) if caller.reach.tenant.is_some() => caller.reach.tenant.clone(),
            (None, None) if role.policy.allows(Verb::Key) && scope == Scope::All => None,
            (None, None) => Some(id.to_string()),
        };
        let name = match self.name {
            Some(name) => read_name(&name)?,
            None => format!("{}-{}", role.name, id.as_str()[20..].to_lowercase()),
        };
        Ok(Key {
            id,
            name,
            role: role.name,
            policy: role.policy.meet(&self.ask),
            tenant,
            scope,
            rate_per_minute: None,
            concurrent: None,
            created_ms: self.now,
            expires_ms: self.expires_ms,
            revoked_ms: None,
        })
    }
}

fn find_role(caller: &Caller, name: &str) -> Result<Role> {
    let roles = caller.config.roles()?;
    let names: Vec<String> = roles.iter().map(|role| role.name.clone()).collect();
    roles.into_iter().find(|role| role.name == name).ok_or_else(|| {
        Error::not_found(format!("there is no role `{}`", name.escape_debug()))
            .hint(format!("there are: {}", names.join(", ")))
    })
}

/// The journal calls the local user `owner`: no key may pass for them.
fn read_name(text: &str) -> Result<String> {
    let name = Name::parse(text)?.to_string();
    if name == OWNER {
        return Err(Error::invalid(format!("`{OWNER}` is what the journal calls the local user"))
            .hint("choose another name for the key"));
    }
    Ok(name)
}

fn read_tenant(text: &str) -> Result<String> {
    if text == OWNER || text.is_empty() {
        return Ok(String::new());
    }
    Name::parse(text).map(|name| name.to_string())
}

/// The scope, and whose the sandbox is that it names.
fn read_scope(
    engine: &Engine,
    caller: &Caller,
    text: Option<&str>,
) -> Result<(Scope, Option<String>)> {
    match text {
        None | Some("*") => Ok((Scope::All, None)),
        Some(text) => match text.strip_prefix("template:") {
            Some(name) => Ok((Scope::Template(Template::find(caller, name)?.name), None)),
            None => {
                let row = engine.find(caller, Some(text))?;
                Ok((Scope::Sandbox(row.id), Some(row.tenant)))
            }
        },
    }
}

pub(crate) fn create(engine: &Engine, caller: &Caller, key: Key) -> Result<KeyMade> {
    let sandbox_of = |scope: &Scope| match scope {
        Scope::Sandbox(id) => engine.store.sandbox(*id),
        _ => Ok(None),
    };
    let of_scope = sandbox_of(&key.scope)?.map(|row| row.tenant);
    if of_scope.is_some_and(|tenant| key.tenant.as_ref() != Some(&tenant)) {
        return Err(Error::invalid("the sandbox of the scope belongs to another tenant")
            .hint("leave `--tenant` out: a scope has its sandbox's tenant"));
    }
    let key = bounded(engine, caller, key)?;
    let secret = new_secret(key.id);
    let row = KeyRow { key: key.clone(), hash: hash_secret(&secret), old: None };
    let mut body = record(caller, "key", None);
    body.detail = json!({
        "verb": "create", "key": key.id, "name": key.name, "role": key.role,
        "tenant": key.tenant, "scope": key.scope, "expires_ms": key.expires_ms,
    });
    engine.store.transact(|tx| {
        tx.insert_key(&row)?;
        tx.append(body)
    })?;
    Ok(KeyMade { secret, key })
}

/// Nobody makes a key that is wider than they are.
fn bounded(engine: &Engine, caller: &Caller, key: Key) -> Result<Key> {
    let mut own = Key {
        policy: caller.policy.clone(),
        tenant: caller.reach.tenant.clone(),
        scope: caller.reach.scope.clone(),
        rate_per_minute: None,
        concurrent: None,
        expires_ms: None,
        ..key.clone()
    };
    if let Some(id) = caller.key {
        // As it is now: it may have ended since the caller came in. A token's
        // key is in no table, and is as it was signed.
        let row = engine.store.key(id)?;
        let bounds = row.as_ref().map_or(caller.bounds, |row| KeyBounds::of(&row.key));
        let is_over = bounds.expires_ms.is_some_and(|end| end <= now_ms());
        if is_over || row.is_some_and(|row| row.key.ended(now_ms()).is_some()) {
            return Err(Error::denied("the key of the caller has ended"));
        }
        own.rate_per_minute = bounds.rate_per_minute;
        own.concurrent = bounds.concurrent;
        own.expires_ms = bounds.expires_ms;
    }
    key.bounded_by(&own)
}

fn new_secret(id: Id) -> String {
    let mut dice = [0u8; 32];
    rustix::rand::getrandom(&mut dice, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel never fails a read this short once it is up");
    write_secret(id, dice)
}

/// Keys whose reach is within the caller's, oldest first.
fn visible(engine: &Engine, caller: &Caller) -> Result<Vec<KeyRow>> {
    let mut list = engine.store.keys()?;
    // Every run with a door has had one, and nobody looks for them.
    list.retain(|row| row.key.revoked_ms.is_none() || !doorway::is_doors(&row.key));
    let mut kept = Vec::new();
    for row in list.drain(..) {
        if is_within(engine, caller, &row.key.reach())? {
            kept.push(row);
        }
    }
    Ok(kept)
}

fn is_within(engine: &Engine, caller: &Caller, reach: &Reach) -> Result<bool> {
    let own = &caller.reach;
    if own.tenant.is_some() && own.tenant != reach.tenant {
        return Ok(false);
    }
    match (&own.scope, &reach.scope) {
        (Scope::All, _) => Ok(true),
        (own, other) if own == other => Ok(true),
        (_, Scope::Sandbox(id)) => {
            let row = engine.store.sandbox(*id)?;
            row.map_or(Ok(false), |row| engine.reaches(caller, &row))
        }
        _ => Ok(false),
    }
}

/// By id, or by a name that one key has; keys that were revoked go by id.
fn find(engine: &Engine, caller: &Caller, text: &str) -> Result<KeyRow> {
    let rows = visible(engine, caller)?;
    let by_id = rows.iter().find(|row| row.key.id.as_str() == text);
    let mut named = rows.iter().filter(|row| row.key.name == text && row.key.revoked_ms.is_none());
    match (by_id, named.next(), named.next()) {
        (Some(row), ..) | (None, Some(row), None) => Ok(row.clone()),
        (None, Some(_), Some(_)) => {
            let named = rows.iter().filter(|row| row.key.name == text);
            let ids: Vec<&str> = named.map(|row| row.key.id.as_str()).collect();
            Err(Error::invalid(format!("several keys are called `{text}`: {}", ids.join(", ")))
                .hint("name it by its id"))
        }
        (None, None, _) => {
            Err(Error::not_found(format!("there is no key `{}`", text.escape_debug()))
                .hint("`fractal key list` shows what there is"))
        }
    }
}

fn rotate(engine: &Engine, caller: &Caller, text: &str, grace_ms: Option<u64>) -> Result<KeyMade> {
    let row = find(engine, caller, text)?;
    if let Some(how) = row.key.ended(now_ms()) {
        return Err(Error::new(Code::Denied, format!("the key `{}` is {how}", row.key.name))
            .hint("make a new one: `fractal key create --role ROLE`"));
    }
    // A wider key's secret is not for a narrower caller to see.
    if !row.key.policy.is_within(&caller.policy) {
        return Err(Error::denied(format!(
            "the key `{}` may do more than its caller",
            row.key.name
        )));
    }
    let secret = new_secret(row.key.id);
    let until_ms = grace_ms.map(|grace| now_ms().saturating_add(grace));
    let mut body = record(caller, "key", None);
    body.detail = json!({
        "verb": "rotate", "key": row.key.id, "name": row.key.name, "grace_ms": grace_ms,
    });
    engine.store.transact(|tx| {
        let old = until_ms.map(|until_ms| (row.hash.as_str(), until_ms));
        tx.set_secret(row.key.id, &hash_secret(&secret), old)?;
        tx.append(body)
    })?;
    Ok(KeyMade { secret, key: row.key })
}

/// Twice is no error: it is over either way.
fn revoke(engine: &Engine, caller: &Caller, text: &str) -> Result<Key> {
    let row = find(engine, caller, text)?;
    end(engine, caller, row.key.id, &row.key.name)?;
    let ended = engine.store.key(row.key.id)?.map(|row| row.key);
    ended.ok_or_else(|| Error::internal("a key that was revoked is gone"))
}

/// Ends a key, once.
pub(crate) fn end(engine: &Engine, caller: &Caller, id: Id, name: &str) -> Result<()> {
    let mut body = record(caller, "key", None);
    body.detail = json!({ "verb": "revoke", "key": id, "name": name });
    Ok(engine.store.transact(|tx| match tx.revoke_key(id, now_ms())? {
        true => tx.append(body).map(drop),
        false => Ok(()),
    })?)
}
