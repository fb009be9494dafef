//! Keys: who may ask, for what, and about which sandboxes.
//!
//! A key carries a policy (what it may do) and a reach (what it can see). Both
//! only ever shrink: whoever makes a key bounds it by what they have, and the
//! property test below holds that law. Nothing here knows a secret; what one
//! looks like is in `secret`.

use crate::{Error, Id, Policy, Result, Verb};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A key without its secret, which is shown once and never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Key {
    /// Its id, which is part of the secret.
    pub id: Id,
    /// What people and the journal call it; unique among keys of its tenant
    /// that are not revoked.
    pub name: String,
    /// The role that it was made from.
    pub role: String,
    /// What it may do: the role as it was then, within its creator's policy.
    pub policy: Policy,
    /// Whose sandboxes it sees: `None` for everybody's, `""` for those of the
    /// local user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Which of those.
    #[serde(default)]
    pub scope: Scope,
    /// Requests per minute that a door lets through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
    /// Requests at once that a door lets through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// When it was made.
    pub created_ms: u64,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// When it was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<u64>,
}

/// Which sandboxes of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All of them.
    #[default]
    All,
    /// Those of one template; new ones must use it.
    Template(String),
    /// One sandbox and everything forked below it.
    Sandbox(Id),
}

/// What a caller can see. For everything else it is as if it did not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reach {
    /// Whose sandboxes; `None` for everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Which of those.
    #[serde(default)]
    pub scope: Scope,
}

impl Reach {
    /// Whether nothing is out of reach.
    pub fn is_everything(&self) -> bool {
        *self == Reach::default()
    }

    /// The tenant that new things belong to.
    pub fn home(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }

    /// Whether things of this tenant can be seen at all.
    pub fn has_tenant(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|own| own == tenant)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::All => f.write_str("*"),
            Scope::Template(name) => write!(f, "template:{name}"),
            Scope::Sandbox(id) => write!(f, "{id}"),
        }
    }
}

impl Key {
    /// What it can see.
    pub fn reach(&self) -> Reach {
        Reach { tenant: self.tenant.clone(), scope: self.scope.clone() }
    }

    /// Why it cannot be used at this time, if it cannot.
    pub fn ended(&self, now_ms: u64) -> Option<&'static str> {
        match (self.revoked_ms, self.expires_ms) {
            (Some(_), _) => Some("revoked"),
            (None, Some(expires_ms)) if expires_ms <= now_ms => Some("expired"),
            _ => None,
        }
    }

    /// The same key with nothing that its creator does not have. A sandbox as
    /// scope is taken as it is: it was found within the creator's own reach.
    pub fn bounded_by(mut self, creator: &Key) -> Result<Key> {
        self.policy = self.policy.meet(&creator.policy);
        self.tenant = match (self.tenant, &creator.tenant) {
            (asked, None) => asked,
            (None, Some(own)) => Some(own.clone()),
            (Some(asked), Some(own)) if asked == *own => Some(asked),
            (Some(_), Some(_)) => return Err(beyond("tenant")),
        };
        self.scope = self.scope.bounded_by(&creator.scope)?;
        self.rate_per_minute = least(self.rate_per_minute, creator.rate_per_minute);
        self.concurrent = least(self.concurrent, creator.concurrent);
        self.expires_ms = least(self.expires_ms, creator.expires_ms);
        Ok(self)
    }
}

impl Scope {
    fn bounded_by(self, own: &Scope) -> Result<Scope> {
        match (self, own) {
            (asked, Scope::All) => Ok(asked),
            (Scope::All, own) => Ok(own.clone()),
            (asked @ Scope::Sandbox(_), _) => Ok(asked),
            (asked, own) if asked == *own => Ok(asked),
            _ => Err(beyond("scope")),
        }
    }
}

fn beyond(what: &str) -> Error {
    Error::denied(format!("a key cannot be given a {what} beyond that of its creator"))
}

fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (bound, None) | (None, bound) => bound,
    }
}

/// A named policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Role {
    /// Its name.
    pub name: String,
    /// What keys of it may do.
    pub policy: Policy,
    /// The file that says so, or `built in`.
    pub origin: String,
}

/// The roles that are always there, narrowest first.
pub const ROLE_NAMES: [&str; 5] = ["viewer", "approver", "runner", "operator", "admin"];

/// What looks and changes nothing.
const VIEWS: [Verb; 7] =
    [Verb::List, Verb::Show, Verb::Diff, Verb::Log, Verb::Stages, Verb::Verify, Verb::Find];
/// What decides about other people's work.
const VOTES: [Verb; 2] = [Verb::Approve, Verb::Reject];
/// What works in sandboxes and leaves reality alone.
const WORKS: [Verb; 14] = [
    Verb::Run,
    Verb::Fork,
    Verb::Snapshot,
    Verb::Rollback,
    Verb::Drop,
    Verb::Copy,
    Verb::Try,
    Verb::Compare,
    Verb::Update,
    Verb::Import,
    Verb::Export,
    Verb::Tool,
    Verb::Note,
    Verb::Skunk,
];
/// What reaches reality, or what outlives sandboxes.
const OPERATES: [Verb; 6] =
    [Verb::Promote, Verb::Undo, Verb::Guard, Verb::Volume, Verb::Gc, Verb::Index];

impl Role {
    /// One of [`ROLE_NAMES`].
    pub fn built_in(name: &str) -> Option<Role> {
        let verbs: Option<Vec<&[Verb]>> = match name {
            "viewer" => Some(vec![&VIEWS]),
            "approver" => Some(vec![&VIEWS, &VOTES]),
            "runner" => Some(vec![&VIEWS, &WORKS]),
            "operator" => Some(vec![&VIEWS, &WORKS, &OPERATES]),
            "admin" => None,
            _ => return None,
        };
        let allow = verbs.map(|lists| lists.concat().into_iter().collect());
        let policy = Policy { allow, ..Policy::default() };
        Some(Role { name: name.to_owned(), policy, origin: "built in".to_owned() })
    }
}

/// What can be done with keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "key", rename_all = "lowercase")]
#[allow(clippy::large_enum_variant)] // one request lives at a time
pub enum KeyVerb {
    /// Makes one and shows its secret, once.
    Create {
        /// The role it is made from.
        role: String,
        /// Its name; one is made up otherwise.
        #[serde(default)]
        name: Option<String>,
        /// Whose sandboxes it sees; by default a tenant of its own, and for
        /// an admin everybody's. `owner` is the local user.
        #[serde(default)]
        tenant: Option<String>,
        /// `*`, `template:NAME`, or a sandbox by name or id.
        #[serde(default)]
        scope: Option<String>,
        /// What is asked to be narrower than the role.
        #[serde(default)]
        ask: Policy,
        /// How long it lives; [`KEY_TTL_MS`] by default.
        #[serde(default)]
        ttl_ms: Option<u64>,
        /// That it does not end by itself.
        #[serde(default)]
        endless: bool,
        /// Requests per minute.
        #[serde(default)]
        rate_per_minute: Option<u32>,
        /// Requests at once.
        #[serde(default)]
        concurrent: Option<u32>,
    },
    /// Those within the caller's reach, oldest first.
    List,
    /// One of them.
    Show {
        /// Its id or name.
        #[serde(rename = "name")]
        key: String,
    },
    /// Gives it a new secret and shows that, once.
    Rotate {
        /// Its id or name.
        #[serde(rename = "name")]
        key: String,
        /// How long the old secret stays good; not at all by default.
        #[serde(default)]
        grace_ms: Option<u64>,
    },
    /// Ends it, at once and for good.
    Revoke {
        /// Its id or name.
        #[serde(rename = "name")]
        key: String,
    },
    /// The roles there are.
    Roles,
}

/// How long a key lives if nobody says.
pub const KEY_TTL_MS: u64 = 30 * 86_400_000;

/// A key beside the secret that is shown once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyMade {
    /// The secret.
    pub secret: String,
    /// The key.
    #[serde(flatten)]
    pub key: Key,
}

/// A secret must not get into a log by way of an error message.
impl fmt::Debug for KeyMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMade").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
