//! Other MCP servers whose tools are offered: `[mcp.NAME]`.
//!
//! A server is a command that is started inside a sandbox. One of the project
//! counts before one of the user of the same name.

use super::{Config, Setting, in_file};
use fractal_model::{Error, Network, Result, parse_bytes, parse_duration_ms};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Servers of one file.
const SERVERS_MAX: usize = 32;

/// Characters of a name: enough of the 64 of a tool's must be left.
const NAME_MAX: usize = 24;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ServerFile {
    #[serde(default)]
    command: Vec<String>,
    url: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    tools: Option<BTreeSet<String>>,
    time: Option<String>,
    memory: Option<String>,
    net: Option<String>,
}

/// An MCP server that is started inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Server {
    /// What its tools' names begin with.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables set inside.
    pub env: BTreeMap<String, String>,
    /// Which of its tools are offered, by its own names; all by default.
    pub tools: Option<BTreeSet<String>>,
    /// Time for one call, where it is not that of all tools.
    pub time_ms: Option<u64>,
    /// Memory, where it needs a bound of its own.
    pub memory_bytes: Option<u64>,
    /// Network, where it is not the sandbox's.
    pub network: Option<Network>,
}

impl Config {
    /// All servers by name, and what is wrong with those that cannot be used.
    pub fn servers(&self) -> (Vec<Server>, Vec<Error>) {
        let (mut servers, mut broken) = (BTreeMap::new(), Vec::new());
        for source in &self.sources {
            for (name, file) in source.file.mcp.iter().take(SERVERS_MAX) {
                if servers.contains_key(name) {
                    continue;
                }
                match file.read(name, &source.path) {
                    Ok(server) => drop(servers.insert(name.clone(), server)),
                    Err(error) => broken.push(error),
                }
            }
            if source.file.mcp.len() > SERVERS_MAX {
                let why = Error::invalid(format!("{SERVERS_MAX} are used, the others are not"));
                broken.push(in_file(&source.path, "mcp", &why));
            }
        }
        (servers.into_values().collect(), broken)
    }

    pub(super) fn server_settings(&self) -> Vec<Setting> {
        let one = |path: &Path, name: &String| Setting {
            name: "mcp".to_owned(),
            value: name.clone(),
            origin: path.display().to_string(),
        };
        let all = self.sources.iter();
        all.flat_map(|source| source.file.mcp.keys().map(|name| one(&source.path, name))).collect()
    }
}

impl ServerFile {
    fn read(&self, name: &str, path: &Path) -> Result<Server> {
        let table = format!("mcp.{name}");
        let at = |key: &str, error: &Error| in_file(path, &format!("{table}.{key}"), error);
        check_name(name).map_err(|error| in_file(path, &table, &error))?;
        if self.url.is_some() {
            let why = Error::new(
                fractal_model::Code::Unsupported,
                "servers that are reached by a URL are not offered: they would act outside of the sandbox",
            );
            let hint = "give a `command`, which is started inside";
            return Err(at("url", &why.hint(hint)));
        }
        if self.command.first().is_none_or(|word| word.is_empty()) {
            let why = Error::invalid("there is none")
                .hint("write it as a list of words, as in command = [\"npx\", \"some-server\"]");
            return Err(at("command", &why));
        }
        let time_ms = self.time.as_deref().map(parse_duration_ms).transpose();
        let memory_bytes = self.memory.as_deref().map(parse_bytes).transpose();
        let network = self.net.as_deref().map(Network::parse).transpose();
        Ok(Server {
            name: name.to_owned(),
            command: self.command.clone(),
            env: self.env.clone(),
            tools: self.tools.clone(),
            time_ms: time_ms.map_err(|error| at("time", &error))?,
            memory_bytes: memory_bytes.map_err(|error| at("memory", &error))?,
            network: network.map_err(|error| at("net", &error))?,
        })
    }
}

/// Without `_`, so that the first one in a tool's name ends the server's.
fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if starts_well && name.len() <= NAME_MAX && name.bytes().all(plain) {
        return Ok(());
    }
    let why = format!("`{}` is no name for a server", name.escape_debug());
    Err(Error::invalid(why).hint(format!(
        "a name is a small letter, then small letters, digits and `-`, at most {NAME_MAX} in all"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    #[test]
    fn servers_are_read_with_their_bounds() {
        let text = "[mcp.files]\ncommand = [\"npx\", \"x\"]\ntools = [\"read_file\"]\n\
                    time = \"5s\"\nmemory = \"64m\"\nnet = \"none\"\nenv = { A = \"b\" }\n";
        let (servers, broken) = read(text).expect("it is valid").servers();
        assert!(broken.is_empty(), "{broken:?}");
        let [server] = servers.as_slice() else { panic!("{servers:?}") };
        assert_eq!((server.name.as_str(), server.time_ms), ("files", Some(5000)));
        assert_eq!((server.memory_bytes, &server.network), (Some(64 << 20), &Some(Network::None)));
    }

    #[test]
    fn mistakes_name_the_line_and_leave_the_others() {
        let check = |table: &str, words: &str| {
            let text = format!("[mcp.good]\ncommand = [\"a\"]\n{table}\n");
            let (servers, broken) = read(&text).expect("it reads").servers();
            assert_eq!(servers.len(), 1, "{table}");
            let error = broken.first().expect(table);
            let all = format!("{error} {}", error.hint.clone().unwrap_or_default());
            assert!(all.contains("/p/fractal.toml") && all.contains(words), "{all}");
        };
        check("[mcp.x]\nurl = \"https://example.org/mcp\"", "outside of the sandbox");
        check("[mcp.x]\ncommand = []", "there is none");
        check("[mcp.a_b]\ncommand = [\"a\"]", "no name for a server");
        check("[mcp.x]\ncommand = [\"a\"]\ntime = \"soon\"", "mcp.x.time");
        check("[mcp.x]\ncommand = [\"a\"]\nnet = \"all\"", "mcp.x.net");
        let error = read("[mcp.x]\ncomand = [\"a\"]\n").expect_err("a typo");
        assert!(error.message.starts_with("/p/fractal.toml:2: unknown field `comand`"), "{error}");
    }
}
