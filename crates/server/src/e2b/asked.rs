//! What clients ask for, as they write it. Fields that are new to us are
//! passed over: these clients are older and newer than we are.

use fractal::model::Network;
use fractal::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds that a sandbox lives when nobody says how long.
const USUAL_S: u64 = 300;
/// The longest that a client may ask for: a week.
const LONGEST_S: u64 = 7 * 24 * 3600;
/// Metadata and variables of one sandbox.
const PAIRS_MAX: usize = 512;
const PAIRS_BYTES_MAX: usize = 256 << 10;
/// All addresses, as clients write them.
const EVERYWHERE: &str = "0.0.0.0/0";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct New {
    #[serde(rename = "templateID")]
    pub template_id: String,
    pub timeout: Option<i64>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub env_vars: Option<BTreeMap<String, String>>,
    pub auto_pause: Option<bool>,
    pub auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    pub allow_internet_access: Option<bool>,
    pub network: Option<Rules>,
    pub volume_mounts: Option<Vec<Value>>,
    pub mcp: Option<Value>,
    pub iam: Option<Value>,
}

/// `{"enabled": true}`, or the bare word of older clients.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum AutoResume {
    Plain(bool),
    Said { enabled: bool },
}

impl AutoResume {
    pub fn is_on(&self) -> bool {
        match self {
            AutoResume::Plain(is_on) | AutoResume::Said { enabled: is_on } => *is_on,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rules {
    pub allow_out: Option<Vec<String>>,
    pub deny_out: Option<Vec<String>>,
    pub rules: Option<Value>,
    pub egress_proxy: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Time {
    pub timeout: Option<i64>,
    pub duration: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ForkAsked {
    pub timeout: Option<i64>,
    pub count: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: Option<String>,
}

/// Milliseconds for so many seconds, within bounds.
pub fn time_ms(seconds: Option<i64>) -> Result<u64> {
    let seconds = match seconds {
        None => USUAL_S,
        Some(seconds) => u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= LONGEST_S)
            .ok_or_else(|| Error::invalid(format!("a timeout is 0 to {LONGEST_S} seconds")))?,
    };
    Ok(seconds * 1000)
}

impl New {
    /// Refuses what would be promised and not held.
    pub fn check(&self) -> Result<()> {
        let unsupported = |what: &str| Err(Error::invalid(format!("{what} is not to be had here")));
        for (name, pairs) in [("metadata", &self.metadata), ("envVars", &self.env_vars)] {
            let pairs = pairs.iter().flatten();
            let bytes: usize = pairs.clone().map(|(key, value)| key.len() + value.len()).sum();
            if pairs.count() > PAIRS_MAX || bytes > PAIRS_BYTES_MAX {
                return Err(Error::invalid(format!("there is too much in `{name}`")));
            }
        }
        for name in self.env_vars.iter().flatten().map(|(name, _)| name) {
            if name.is_empty() || name.contains(['=', '\0']) {
                let name = name.escape_debug();
                return Err(Error::invalid(format!("`{name}` is no name of a variable")));
            }
        }
        if self.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
            return Err(Error::invalid("volumes are not mounted by this door")
                .hint("name a template that mounts them"));
        }
        if self.mcp.as_ref().is_some_and(|mcp| !mcp.is_null()) {
            return unsupported("an MCP gateway");
        }
        if self.iam.as_ref().is_some_and(|iam| !iam.is_null()) {
            return unsupported("a workload identity");
        }
        Ok(())
    }

    /// What it wants to reach, and whether it said so.
    pub fn network(&self) -> Result<(Network, bool)> {
        let all = || Network::Allow(BTreeSet::from(["*".to_owned()]));
        let rules = self.network.as_ref();
        if rules.is_some_and(|rules| rules.rules.is_some() || rules.egress_proxy.is_some()) {
            return Err(Error::invalid("requests are not rewritten on their way out"));
        }
        let listed = |list: fn(&Rules) -> &Option<Vec<String>>| {
            rules.and_then(|rules| list(rules).as_deref()).unwrap_or_default()
        };
        let (allowed, denied) = (listed(|rules| &rules.allow_out), listed(|rules| &rules.deny_out));
        let denies_all = denied.iter().any(|rule| rule == EVERYWHERE);
        if denied.len() > usize::from(denies_all) {
            return Err(Error::invalid("single addresses cannot be denied")
                .hint(format!("deny {EVERYWHERE} and allow names of hosts")));
        }
        if self.allow_internet_access == Some(false) || (denies_all && allowed.is_empty()) {
            return Ok((Network::None, true));
        }
        if allowed.is_empty() || allowed.iter().any(|rule| rule == EVERYWHERE) {
            return Ok((all(), self.allow_internet_access.is_some() || !allowed.is_empty()));
        }
        Ok((Network::parse(&format!("allow:{}", allowed.join(",")))?, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_network_become_ours_or_are_refused() {
        let check = |json: &str, expect: Option<(&str, bool)>| {
            let new: New = serde_json::from_str(json).expect("it reads");
            let network = new.network().ok();
            let expect = expect.map(|(text, said)| (Network::parse(text).expect("a rule"), said));
            assert_eq!(network, expect, "{json}");
        };
        check("{}", Some(("allow:*", false)));
        check(r#"{"allow_internet_access":false}"#, Some(("none", true)));
        check(r#"{"network":{"denyOut":["0.0.0.0/0"]}}"#, Some(("none", true)));
        let both = r#"{"network":{"allowOut":["a.org"],"denyOut":["0.0.0.0/0"]}}"#;
        check(both, Some(("allow:a.org", true)));
        check(r#"{"network":{"denyOut":["1.2.3.4"]}}"#, None);
        check(r#"{"network":{"rules":{"a":[]}}}"#, None);
    }

    #[test]
    fn a_timeout_has_bounds() {
        assert_eq!(time_ms(None).ok(), Some(300_000));
        assert_eq!(time_ms(Some(0)).ok(), Some(0));
        assert!(time_ms(Some(-1)).is_err());
        assert!(time_ms(Some(i64::MAX)).is_err());
    }
}
