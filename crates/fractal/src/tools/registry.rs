//! Which tools there are.

use super::call::Calling;
use super::many::Options;
use super::schema::Schema;
use super::slots::Slots;
use super::tame::tamed;
use super::{Kind, Tool, manifest, mcp, verbs};
use crate::config::Server;
use crate::{Caller, Engine};
use fractal_model::{Code, Error, Policy, Result, ToolCall, ToolInfo, ToolReply};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// Functions that may be at work at once, those that overran included.
const FUNCTIONS_MAX: usize = 64;

/// Characters of a description.
const DESCRIPTION_MAX: usize = 16 << 10;

/// Bytes of a schema of another server, whose checks cost us time.
const SERVER_SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Servers that are asked at once what they offer.
const SERVERS_AT_ONCE: usize = 4;

/// Tools by name. Safe to share between threads; a tool that is taken away
/// goes on for those who are calling it.
#[derive(Debug)]
pub struct ToolRegistry {
    tools: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// Places for functions, which cannot be ended from outside.
    pub(super) functions: Arc<Slots>,
    /// Servers whose tools are added when somebody asks for them.
    servers: Vec<Arc<Server>>,
}

/// A tool with its schemas, ready to check.
#[derive(Debug)]
pub struct Entry {
    pub tool: Tool,
    pub input: Schema,
    pub output: Option<Schema>,
}

impl Default for ToolRegistry {
    fn default() -> ToolRegistry {
        let functions = Slots::new(FUNCTIONS_MAX);
        ToolRegistry { tools: RwLock::default(), functions, servers: Vec::new() }
    }
}

impl ToolRegistry {
    /// No tools.
    pub fn new() -> ToolRegistry {
        ToolRegistry::default()
    }

    /// The verbs of the engine.
    pub fn built_in() -> ToolRegistry {
        let registry = ToolRegistry::default();
        for tool in verbs::all() {
            registry.register(tool).expect("a test registers every built-in tool");
        }
        registry
    }

    /// Adds a tool. Its schemas are checked now, its name must be free.
    pub fn register(&self, tool: Tool) -> Result<()> {
        let entry = Arc::new(entry(tool)?);
        let name = entry.tool.name.clone();
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = tools.get(&name) {
            let why = format!("there is already a tool `{name}` (a {})", other.tool.kind.name());
            return Err(Error::new(Code::Exists, why).hint("choose another name"));
        }
        tools.insert(name, entry);
        Ok(())
    }

    /// Takes a tool away; whether there was one.
    pub fn unregister(&self, name: &str) -> bool {
        self.tools.write().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }

    /// Adds what is described in `<directory>/<name>/tool.toml`. Of two of one
    /// name the first directory's counts. What cannot be read is told, and the
    /// others are added all the same.
    pub fn discover(&self, directories: &[PathBuf]) -> Vec<Error> {
        let mut broken = Vec::new();
        for directory in directories {
            for found in manifest::read_all(directory) {
                let (path, tool) = match found {
                    Ok(found) => found,
                    Err(error) => {
                        broken.push(error);
                        continue;
                    }
                };
                let same = self.get(&tool.name).map(|same| same.kind.clone());
                if matches!(same, Some(Kind::Program(_))) {
                    continue;
                }
                if let Err(error) = self.register(tool) {
                    broken.push(manifest::in_file(&path, &error));
                }
            }
        }
        broken
    }

    /// A registry of these tools and of what the caller's project and the user
    /// describe, and those descriptions that cannot be used. Other MCP servers
    /// are asked what they offer when that is wanted: by a call of one of
    /// their tools, or by [`Engine::tools_of`].
    pub fn with(&self, caller: &Caller) -> (ToolRegistry, Vec<Error>) {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner).clone();
        let functions = Arc::clone(&self.functions);
        let (servers, unusable) = caller.config.servers();
        let servers = servers.into_iter().map(Arc::new).collect();
        let registry = ToolRegistry { tools: RwLock::new(tools), functions, servers };
        let mut broken = registry.discover(&caller.config.tool_directories(&caller.directory));
        broken.extend(unusable);
        (registry, broken)
    }

    /// Adds what servers offer, as far as a policy may allow any of it.
    pub(super) fn discover_servers(
        &self,
        engine: &Engine,
        caller: &Caller,
        policy: &Policy,
    ) -> Vec<Error> {
        let allowed = |server: &&Arc<Server>| {
            let start = format!("{}{}", server.name, mcp::SEPARATOR);
            policy.tools.as_ref().is_none_or(|names| names.iter().any(|it| it.starts_with(&start)))
        };
        let wanted: Vec<&Arc<Server>> = self.servers.iter().filter(allowed).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        // One that hangs does not keep the others.
        let ask = |servers: &[&Arc<Server>], at_work: &mcp::Servers| -> Vec<Result<mcp::Offer>> {
            std::thread::scope(|scope| {
                let one = |server: &&Arc<Server>| {
                    let server = Arc::clone(server);
                    scope.spawn(move || mcp::offer(engine, caller, &server, at_work, None))
                };
                let asked: Vec<_> = servers.iter().map(one).collect();
                let lost = |_| Err(Error::internal("a server's offer was lost"));
                asked.into_iter().map(|it| it.join().unwrap_or_else(lost)).collect()
            })
        };
        mcp::with_servers(engine, caller, |at_work| {
            let offers = wanted.chunks(SERVERS_AT_ONCE).flat_map(|some| ask(some, at_work));
            let add =
                |offer: Result<mcp::Offer>| offer.map_or_else(|it| vec![it], |it| self.add(it));
            offers.flat_map(add).collect()
        })
    }

    /// The server that a tool's name speaks of.
    pub(super) fn server_of(&self, tool: &str) -> Option<&Arc<Server>> {
        mcp::find(&self.servers, tool)
    }

    /// Of two tools of one name the first counts, which may be another call's.
    pub(super) fn add(&self, offer: mcp::Offer) -> Vec<Error> {
        let mut broken = offer.broken;
        for tool in offer.tools {
            let own = match &tool.kind {
                Kind::Mcp(proxied) => proxied.tool.clone(),
                _ => String::new(),
            };
            let is_there = self
                .get(&tool.name)
                .is_some_and(|there| matches!(&there.kind, Kind::Mcp(other) if other.tool == own));
            if !is_there && let Err(error) = self.register(tool) {
                broken.push(error);
            }
        }
        broken
    }

    /// Whether tools may come from servers.
    pub(super) fn has_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<Tool> {
        Some(self.entry(name)?.tool.clone())
    }

    /// Whether this tool works in no sandbox, so that none has to be made for it.
    pub fn is_place_free(&self, name: &str) -> bool {
        let kind = self.entry(name).map(|entry| entry.tool.kind.clone());
        matches!(kind, Some(Kind::Verb(builtin)) if builtin.is_place_free())
    }

    /// What a policy allows, by name.
    pub fn list(&self, policy: &Policy) -> Vec<ToolInfo> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        let allowed = tools.values().filter(|entry| policy.allows_tool(&entry.tool.name));
        allowed.map(|entry| entry.tool.info()).collect()
    }

    /// Carries out one call and records it.
    pub fn call(&self, engine: &Engine, caller: &Caller, call: &ToolCall) -> ToolReply {
        self.call_with(engine, caller, call, &Options::default())
    }

    /// The same with options.
    pub fn call_with(
        &self,
        engine: &Engine,
        caller: &Caller,
        call: &ToolCall,
        options: &Options,
    ) -> ToolReply {
        let slots = Slots::new(1);
        let work = |servers: Option<&mcp::Servers>| {
            Calling { registry: self, engine, caller, options, slots, servers }.call(call)
        };
        match self.has_servers() {
            true => mcp::with_servers(engine, caller, |servers| work(Some(servers))),
            false => work(None),
        }
    }

    pub(super) fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

fn entry(tool: Tool) -> Result<Entry> {
    fractal_model::check_tool_name(&tool.name)?;
    let of = |what: &str| format!("the {what} schema of `{}`", tool.name);
    if tool.description.trim().is_empty() || tool.description.len() > DESCRIPTION_MAX {
        let why = format!("`{}` has no description, or a very long one", tool.name);
        return Err(Error::invalid(why).hint("say what it does, when to use it, what comes back"));
    }
    if tool.time_ms == 0 {
        return Err(Error::invalid(format!("`{}` has no time to run", tool.name)));
    }
    if tool.input.get("type").is_none_or(|kind| kind != "object") {
        let why = format!("{} does not say `\"type\": \"object\"`", of("input"));
        return Err(Error::invalid(why).hint("the input of every tool is an object with fields"));
    }
    let compile = |schema: &Value, what: &str| match &tool.kind {
        Kind::Mcp(_) => {
            super::schema::bounded(schema, SERVER_SCHEMA_BYTES_MAX, &of(what))?;
            Schema::new(&tamed(schema), &of(what))
        }
        _ => Schema::new(schema, &of(what)),
    };
    let input = compile(&tool.input, "input")?;
    let output = tool.output.as_ref().map(|output| compile(output, "output")).transpose()?;
    Ok(Entry { tool, input, output })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str) -> Tool {
        Tool::function(name, "Does nothing.", json!({ "type": "object" }), |_| Ok(json!({})))
    }

    #[test]
    fn tools_come_and_go_by_name() {
        let registry = ToolRegistry::new();
        registry.register(tool("a")).expect("it is free");
        let taken = registry.register(tool("a")).expect_err("it is taken");
        assert_eq!(taken.code, Code::Exists);
        assert!(registry.get("a").is_some() && registry.get("b").is_none());
        assert!(registry.unregister("a") && !registry.unregister("a"));
        assert!(registry.list(&Policy::default()).is_empty());
    }

    #[test]
    fn what_cannot_be_offered_is_refused() {
        let registry = ToolRegistry::new();
        let refused = |tool| registry.register(tool).expect_err("it is refused").message;
        assert!(refused(tool("A")).contains("no name for a tool"));
        assert!(refused(Tool { description: " ".into(), ..tool("a") }).contains("no description"));
        assert!(refused(Tool { input: json!({}), ..tool("a") }).contains("input schema of `a`"));
        let typo = json!({ "type": "object", "properties": { "n": { "type": "int" } } });
        let why = refused(Tool { input: typo, ..tool("a") });
        assert!(why.contains("/properties/n/type"), "{why}");
        let output = Some(json!({ "type": 3 }));
        assert!(refused(Tool { output, ..tool("a") }).contains("output schema of `a`"));
    }

    #[test]
    fn a_policy_narrows_what_is_offered() {
        let registry = ToolRegistry::built_in();
        let names = |policy: &Policy| -> Vec<String> {
            registry.list(policy).into_iter().map(|tool| tool.name).collect()
        };
        let all = names(&Policy::default());
        let mut expect = vec![
            "diff", "edit", "find", "fork", "promote", "read", "rollback", "run", "snapshot",
            "try", "write",
        ];
        if cfg!(feature = "knowledge") {
            expect.extend(["note", "recall"]);
            expect.sort_unstable();
        }
        assert_eq!(all, expect);
        let only = |names: &[&str]| Policy {
            tools: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..Policy::default()
        };
        let both = only(&["read", "find", "gone"]).meet(&only(&["read", "run"]));
        assert_eq!(names(&both), ["read"]);
    }
}
