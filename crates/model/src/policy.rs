//! What a sandbox, key or request may do: a lattice with one operation.
//!
//! `a.meet(&b)` is the most that both allow. It is associative, commutative
//! and idempotent, and `Policy::default()` (everything) is its unit; the
//! property tests below hold these laws. Nothing in the system ever widens a
//! policy: a child is its parent's policy met with what was asked.

use crate::{Error, Result, SandboxPath};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The verbs a policy can allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Verb {
    Run,
    Fork,
    Snapshot,
    Rollback,
    Diff,
    Drop,
    Copy,
    Export,
    Import,
    List,
    Show,
    Log,
    Volume,
    Gc,
    Try,
    Compare,
    Promote,
    Guard,
    Undo,
    Update,
    Verify,
    Approve,
    Reject,
    Stages,
    Key,
    Audit,
    Tool,
    Note,
    Find,
    Skunk,
    Index,
}

impl Verb {
    /// Whether it acts on settings. Limits, checks and expiry come from them,
    /// and whoever acts on one must not go on without; a broken file must not
    /// stand in the way of looking and cleaning up. So a verb needs them
    /// unless it is known not to.
    pub fn needs_settings(self) -> bool {
        let looks = matches!(self, Verb::Diff | Verb::List | Verb::Show | Verb::Log | Verb::Export)
            || matches!(self, Verb::Audit | Verb::Find | Verb::Note | Verb::Index);
        let moves = matches!(self, Verb::Fork | Verb::Snapshot | Verb::Rollback | Verb::Copy);
        let cleans_up = matches!(self, Verb::Drop | Verb::Volume | Verb::Gc | Verb::Undo);
        !(looks || moves || cleans_up)
    }
}

/// How strongly a run is fenced in, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// landlock and seccomp around a copy of the project.
    Copied,
    /// Namespaces of an unprivileged user; the system is read-only.
    Rootless,
    /// A clone of the machine by root whose files cannot be idmapped.
    Masked,
    /// A clone of the whole machine by root, with shifted user ids.
    Clone,
    /// No process and nothing of the machine: a tree in memory and a shell
    /// that knows nothing else. No rung of the ladder, but another world.
    Virtual,
}

impl Tier {
    /// All tiers of real programs, strongest first.
    pub const LADDER: [Tier; 4] = [Tier::Clone, Tier::Masked, Tier::Rootless, Tier::Copied];

    /// The word for it on every surface.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Clone => "clone",
            Tier::Masked => "masked",
            Tier::Rootless => "rootless",
            Tier::Copied => "copied",
            Tier::Virtual => "virtual",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Tier> {
        Tier::LADDER.into_iter().find(|tier| tier.name() == text)
    }
}

/// What a run may reach over the network, narrowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Only its own loopback.
    None,
    /// The named hosts, through a proxy.
    Allow(BTreeSet<String>),
    /// The host's network as it is.
    #[default]
    Host,
}

impl Network {
    fn meet(&self, other: &Network) -> Network {
        match (self, other) {
            (Network::None, _) | (_, Network::None) => Network::None,
            (Network::Host, narrower) | (narrower, Network::Host) => narrower.clone(),
            (Network::Allow(a), Network::Allow(b)) => {
                let both: BTreeSet<String> = a.intersection(b).cloned().collect();
                if both.is_empty() { Network::None } else { Network::Allow(both) }
            }
        }
    }

    /// Reads `none`, `host` or `allow:HOST,HOST`.
    pub fn parse(text: &str) -> crate::Result<Network> {
        let hosts = match text {
            "none" => return Ok(Network::None),
            "host" => return Ok(Network::Host),
            _ => text.strip_prefix("allow:"),
        };
        let names: BTreeSet<String> = hosts
            .unwrap_or_default()
            .split(',')
            .map(|host| host.trim().to_ascii_lowercase())
            .filter(|host| !host.is_empty())
            .collect();
        let host_like = |host: &String| {
            host.len() <= 253
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:*_[]".contains(&b))
        };
        if names.is_empty() || !names.iter().all(host_like) {
            return Err(crate::Error::invalid(format!(
                "`{}` is not a network rule",
                text.escape_debug()
            ))
            .hint("use --net none, --net host or --net allow:example.org,*.example.com"));
        }
        Ok(Network::Allow(names))
    }
}

/// Hard bounds of a run; `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Thousandths of a cpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Memory of all processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads alive at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Bytes written to the sandbox's top layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Wall-clock time of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Bytes of output before the run is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

impl Limits {
    /// The most that both allow.
    #[must_use]
    pub fn meet(&self, other: &Limits) -> Limits {
        Limits {
            cpu_milli: least(self.cpu_milli, other.cpu_milli),
            memory_bytes: least(self.memory_bytes, other.memory_bytes),
            pids: least(self.pids, other.pids),
            disk_bytes: least(self.disk_bytes, other.disk_bytes),
            time_ms: least(self.time_ms, other.time_ms),
            output_bytes: least(self.output_bytes, other.output_bytes),
        }
    }
}

/// A limit that was asked to be wider than it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wider {
    /// Its name.
    pub name: &'static str,
    /// What was asked, as people write it.
    pub asked: String,
    /// What is allowed.
    pub allowed: String,
}

impl Limits {
    /// The first limit that asks for more than `bound` has.
    pub fn first_wider(&self, bound: &Limits) -> Option<Wider> {
        type Show = fn(u64) -> String;
        let cpus: Show = |milli| (milli as f64 / 1000.0).to_string();
        let plain: Show = |value| value.to_string();
        let bytes: Show = crate::format_bytes;
        let pairs = [
            ("memory", self.memory_bytes, bound.memory_bytes, bytes),
            ("cpus", self.cpu_milli, bound.cpu_milli, cpus),
            ("pids", self.pids, bound.pids, plain),
            ("disk", self.disk_bytes, bound.disk_bytes, bytes),
            ("time", self.time_ms, bound.time_ms, crate::format_duration_ms),
            ("output", self.output_bytes, bound.output_bytes, bytes),
        ];
        pairs.into_iter().find_map(|(name, asked, allowed, show)| {
            let (asked, allowed) = (asked?, allowed?);
            (asked > allowed).then(|| Wider { name, asked: show(asked), allowed: show(allowed) })
        })
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (bound, None) | (None, bound) => bound,
    }
}

/// Everything that bounds a sandbox, a key or a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Policy {
    /// Hard bounds of each run.
    #[serde(default)]
    pub limits: Limits,
    /// What the network rule allows.
    #[serde(default)]
    pub network: Network,
    /// Host paths that appear empty inside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hidden: BTreeSet<String>,
    /// Paths that cannot be written inside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub read_only: BTreeSet<String>,
    /// Verbs allowed; `None` allows every verb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeSet<Verb>>,
    /// The weakest tier a run may fall back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Tier>,
    /// Tools allowed, by name; `None` allows every tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
}

/// A program and what watches over it.
const PIDS_MIN: u64 = 2;

impl Policy {
    /// Refuses what no run could hold to, before it is kept for a sandbox.
    pub fn check(&self) -> Result<()> {
        if let Some(pids) = self.limits.pids.filter(|pids| *pids < PIDS_MIN) {
            return Err(Error::invalid(format!("no program runs with {pids} processes"))
                .hint(format!("{PIDS_MIN} are the least")));
        }
        let paths = self.hidden.iter().chain(&self.read_only);
        paths.map(SandboxPath::parse).try_for_each(|path| path.map(drop))
    }

    /// The most that both policies allow.
    #[must_use]
    pub fn meet(&self, other: &Policy) -> Policy {
        Policy {
            limits: self.limits.meet(&other.limits),
            network: self.network.meet(&other.network),
            hidden: self.hidden.union(&other.hidden).cloned().collect(),
            read_only: self.read_only.union(&other.read_only).cloned().collect(),
            allow: match (&self.allow, &other.allow) {
                (Some(a), Some(b)) => Some(a.intersection(b).copied().collect()),
                (verbs, None) | (None, verbs) => verbs.clone(),
            },
            isolation: self.isolation.max(other.isolation),
            tools: match (&self.tools, &other.tools) {
                (Some(a), Some(b)) => Some(a.intersection(b).cloned().collect()),
                (names, None) | (None, names) => names.clone(),
            },
        }
    }

    /// Whether everything `self` allows is allowed by `other` too.
    pub fn is_within(&self, other: &Policy) -> bool {
        self.meet(other) == *self
    }

    /// Whether the verb may be used at all.
    pub fn allows(&self, verb: Verb) -> bool {
        self.allow.as_ref().is_none_or(|verbs| verbs.contains(&verb))
    }

    /// Whether the tool may be used at all.
    pub fn allows_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|names| names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_network() -> impl Strategy<Value = Network> {
        prop_oneof![
            Just(Network::None),
            Just(Network::Host),
            proptest::collection::btree_set("[abc]", 1..4).prop_map(Network::Allow),
        ]
    }

    prop_compose! {
        fn any_policy()(
            bounds in proptest::collection::vec(proptest::option::of(0u64..5), 6),
            network in any_network(),
            hidden in proptest::collection::btree_set("[ab]", 0..3),
            read_only in proptest::collection::btree_set("[ab]", 0..3),
            allow in proptest::option::of(proptest::collection::btree_set(
                prop_oneof![Just(Verb::Run), Just(Verb::Fork), Just(Verb::Drop)], 0..3)),
            isolation in proptest::option::of(prop_oneof![Just(Tier::Copied), Just(Tier::Clone)]),
            tools in proptest::option::of(proptest::collection::btree_set("[ab]", 0..3)),
        ) -> Policy {
            Policy {
                limits: Limits {
                    cpu_milli: bounds[0], memory_bytes: bounds[1], pids: bounds[2],
                    disk_bytes: bounds[3], time_ms: bounds[4], output_bytes: bounds[5],
                },
                network, hidden, read_only, allow, isolation, tools,
            }
        }
    }

    proptest! {
        #[test]
        fn meet_is_a_lattice_operation(a in any_policy(), b in any_policy(), c in any_policy()) {
            prop_assert_eq!(a.meet(&a), a.clone());
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
            prop_assert_eq!(a.meet(&Policy::default()), a.clone());
            prop_assert!(a.meet(&b).is_within(&a));
            prop_assert!(a.meet(&b).is_within(&b));
        }
    }

    #[test]
    fn network_rules_read() {
        assert_eq!(Network::parse("none"), Ok(Network::None));
        assert!(
            matches!(Network::parse("allow:a.org,*.b.com"), Ok(Network::Allow(set)) if set.len() == 2)
        );
        for bad in ["", "all", "allow:", "allow:a b", "allow:http://x"] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }
}
