//! Roles: named policies for keys, built in and configured.
//!
//! A role of a built-in name is that one made narrower; another name stands
//! on a built-in one or lists its verbs. The nearest file that has a role
//! says what it is.

use super::{Config, LimitsFile, Setting, in_file};
use fractal_model::{Error, Name, Network, Policy, ROLE_NAMES, Result, Role, Tier, Verb};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoleFile {
    base: Option<String>,
    allow: Option<BTreeSet<Verb>>,
    net: Option<String>,
    isolation: Option<String>,
    tools: Option<BTreeSet<String>>,
    #[serde(default)]
    limits: LimitsFile,
}

impl Config {
    /// All roles, the built-in ones first.
    pub fn roles(&self) -> Result<Vec<Role>> {
        let configured = self.sources.iter().flat_map(|source| source.file.role.keys().cloned());
        let others: BTreeSet<String> =
            configured.filter(|name| !ROLE_NAMES.contains(&name.as_str())).collect();
        let names = ROLE_NAMES.map(str::to_owned).into_iter().chain(others);
        names.map(|name| self.role(&name)).collect()
    }

    fn role(&self, name: &str) -> Result<Role> {
        match self.first(|file| file.role.get(name).cloned()) {
            Some((file, path)) => file.read(name, path),
            None => Role::built_in(name)
                .ok_or_else(|| Error::internal(format!("the role `{name}` is in no file"))),
        }
    }

    pub(super) fn role_settings(&self) -> Vec<Setting> {
        let one = |path: &Path, name: &String| Setting {
            name: "role".to_owned(),
            value: name.clone(),
            origin: path.display().to_string(),
        };
        let all = self.sources.iter();
        all.flat_map(|source| source.file.role.keys().map(|name| one(&source.path, name))).collect()
    }
}

impl RoleFile {
    fn read(&self, name: &str, path: &Path) -> Result<Role> {
        let table = format!("role.{name}");
        let at = |key: &str, error: &Error| in_file(path, &format!("{table}.{key}"), error);
        Name::parse(name).map_err(|error| in_file(path, &table, &error))?;
        let base = self.base(name).map_err(|error| at("base", &error))?;
        let network = match &self.net {
            Some(text) => Network::parse(text).map_err(|error| at("net", &error))?,
            None => Network::default(),
        };
        let isolation = self.isolation.as_deref().map(read_tier).transpose();
        let own = Policy {
            limits: self.limits.read(path, &format!("{table}.limits"))?,
            network,
            allow: self.allow.clone(),
            isolation: isolation.map_err(|error| at("isolation", &error))?,
            tools: self.tools.clone(),
            ..Policy::default()
        };
        let origin = path.display().to_string();
        Ok(Role { name: name.to_owned(), policy: base.meet(&own), origin })
    }

    /// What the role stands on: a role without one must say what it allows,
    /// since saying nothing would allow everything.
    fn base(&self, name: &str) -> Result<Policy> {
        let own_name = ROLE_NAMES.contains(&name).then_some(name);
        match (own_name, self.base.as_deref()) {
            (Some(_), Some(_)) => Err(Error::invalid(format!("`{name}` stands on itself"))
                .hint("leave `base` out, or give the role another name")),
            (None, None) if self.allow.is_none() => {
                Err(Error::invalid(format!("the role `{name}` needs `allow`, or a `base`"))
                    .hint(format!("the built-in roles are {}", ROLE_NAMES.join(", "))))
            }
            (None, None) => Ok(Policy::default()),
            (Some(base), None) | (None, Some(base)) => {
                let role = Role::built_in(base).ok_or_else(|| {
                    Error::invalid(format!("`{base}` is none of: {}", ROLE_NAMES.join(", ")))
                })?;
                Ok(role.policy)
            }
        }
    }
}

fn read_tier(text: &str) -> Result<Tier> {
    Tier::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Tier::LADDER.iter().map(|tier| tier.name()).collect();
        Error::invalid(format!("`{text}` is none of: {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    fn role(text: &str, name: &str) -> Result<Role> {
        let roles = read(text)?.roles()?;
        Ok(roles.into_iter().find(|role| role.name == name).expect("it is listed"))
    }

    #[test]
    fn roles_of_a_file_stand_on_built_in_ones_and_never_widen_them() {
        let narrow = "[role.runner]\nallow = [\"run\", \"promote\"]\nnet = \"none\"\n\
                      [role.runner.limits]\npids = 9\n";
        let runner = role(narrow, "runner").expect("it is valid").policy;
        assert!(
            runner.allows(Verb::Run) && !runner.allows(Verb::Promote) && !runner.allows(Verb::Fork)
        );
        assert_eq!((runner.network, runner.limits.pids), (Network::None, Some(9)));
        let ci = "[role.ci]\nbase = \"operator\"\nisolation = \"rootless\"\n";
        let ci = role(ci, "ci").expect("it is valid");
        assert!(ci.policy.allows(Verb::Promote) && !ci.policy.allows(Verb::Key));
        assert_eq!(ci.policy.isolation, Some(Tier::Rootless));
        assert_eq!(ci.origin, "/p/fractal.toml");
        let tools = "[role.t]\nbase = \"runner\"\ntools = [\"read\"]\n";
        let tools = role(tools, "t").expect("it is valid").policy;
        assert!(tools.allows_tool("read") && !tools.allows_tool("run"));
        let lists = role("[role.x]\nallow = [\"list\"]\n", "x").expect("it is valid").policy;
        assert!(lists.allows(Verb::List) && !lists.allows(Verb::Show));
        assert_eq!(read("").expect("it is valid").roles().expect("built in").len(), 5);
    }

    #[test]
    fn mistakes_name_the_file_and_what_is_allowed() {
        let check = |text: &str, words: &str| {
            let error = role(text, "x").expect_err(text);
            let all = format!("{error} {}", error.hint.clone().unwrap_or_default());
            assert!(all.contains("/p/fractal.toml") && all.contains(words), "{all}");
        };
        check("[role.x]\nalow = []\n", "fractal.toml:2: unknown field `alow`");
        check("[role.x]\nallow = [\"rnu\"]\n", "fractal.toml:2: unknown variant `rnu`");
        check("[role.x]\n", "needs `allow`");
        check("[role.x]\nbase = \"boss\"\n", "none of: viewer");
        check("[role.x]\nbase = \"viewer\"\nnet = \"all\"\n", "not a network rule");
        check("[role.x]\nbase = \"viewer\"\nisolation = \"much\"\n", "none of: clone");
        check("[role.admin]\nbase = \"viewer\"\n", "stands on itself");
    }
}
