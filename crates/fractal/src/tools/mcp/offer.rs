//! What a server offers, found out once and remembered.
//!
//! It is asked in a throw-away fork of reality, as whoever wants to know, and
//! what it said is kept in the state directory's cache for an hour. What was
//! kept is read as if the server had just said it.

use super::serving::{Failure, TOOLS_MAX};
use super::wire::{Patience, Trouble};
use super::{Proxied, SEPARATOR, Servers, carrying, cut, with_noise};
use crate::config::Server;
use crate::tools::slots::Slots;
use crate::tools::{Cancel, Kind, TIME_MS, Tool, schema};
use crate::{Caller, Engine, fingerprint};
use fractal_model::{Code, Error, Result, Run, Verb, check_tool_name, format_duration_ms};
use fractal_store::now_ms;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to start and say what it offers.
const START_MS: u64 = 30_000;

/// How long what it said is believed.
const BELIEVED_MS: u64 = 3_600_000;

/// How long nobody asks one that failed again.
const FAILED: Duration = Duration::from_secs(20);

/// Bytes of all that one offers.
const OFFER_BYTES_MAX: usize = 4 << 20;

/// Bytes of a description; the rest is cut off and marked.
const DESCRIPTION_BYTES_MAX: usize = 8 << 10;

/// Tools that are not offered of which it is told why.
const TOLD_MAX: usize = 16;

/// What this process knows of servers.
#[derive(Debug, Default)]
pub struct Known {
    kept: OnceLock<Servers>,
    /// One at a time asks the same: others find what it found.
    turns: Mutex<BTreeMap<String, Arc<Slots>>>,
    failed: Mutex<BTreeMap<String, (Instant, Error)>>,
}

impl Known {
    pub fn kept(&self) -> Option<&Servers> {
        self.kept.get()
    }

    /// Whether it was not so before.
    pub fn keep(&self, servers: Servers) -> bool {
        self.kept.set(servers).is_ok()
    }
}

/// The tools of a server, and why others are not among them.
#[derive(Debug, Default)]
pub struct Offer {
    pub tools: Vec<Tool>,
    pub broken: Vec<Error>,
}

/// The server that a tool's name speaks of.
pub fn find<'a>(servers: &'a [Arc<Server>], tool: &str) -> Option<&'a Arc<Server>> {
    let (name, _) = tool.split_once(SEPARATOR)?;
    servers.iter().find(|server| server.name == name)
}

/// What a server offers, from the cache or from itself.
pub fn offer(
    engine: &Engine,
    caller: &Caller,
    server: &Arc<Server>,
    servers: &Servers,
    time_ms: Option<u64>,
) -> Result<Offer> {
    let file = cached(engine, caller, server);
    if let Some(list) = read(&file) {
        return Ok(read_all(server, &list));
    }
    if !caller.policy.allows(Verb::Run) {
        let why = format!("what the server `{}` offers is not known yet", server.name);
        return Err(Error::denied(why).hint("somebody who may `run` has to ask for it first"));
    }
    let time_ms = time_ms.unwrap_or(START_MS).min(START_MS);
    let never = Cancel::default();
    let until = Instant::now() + Duration::from_millis(time_ms);
    let patience = Patience { until, cancel: &never };
    let known = &engine.mcp;
    let name = file.display().to_string();
    let mut turns = known.turns.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = Arc::clone(turns.entry(name.clone()).or_insert_with(|| Slots::new(1)));
    drop(turns);
    let _turn = turn.take(patience.left(), &never);
    // Somebody may have asked while we waited.
    if let Some(list) = read(&file) {
        return Ok(read_all(server, &list));
    }
    let mut failed = known.failed.lock().unwrap_or_else(PoisonError::into_inner);
    failed.retain(|_, (when, _)| when.elapsed() < FAILED);
    if let Some((_, error)) = failed.get(&name) {
        return Err(error.clone());
    }
    drop(failed);
    let asked = ask(caller, server, servers, patience, time_ms);
    let list = asked.inspect_err(|error| {
        // Who may not run anything says nothing about the server.
        if error.code != Code::Denied {
            let mut failed = known.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.insert(name, (Instant::now(), error.clone()));
        }
    })?;
    write(&file, &list);
    Ok(read_all(server, &list))
}

fn ask(
    caller: &Caller,
    server: &Server,
    servers: &Servers,
    patience: Patience<'_>,
    time_ms: u64,
) -> Result<Vec<Value>> {
    let run = carrying(server, &caller.directory, &caller.policy, time_ms);
    let run = Run { discard: true, ..run };
    let list = servers
        .start(server, caller, run, patience)
        .and_then(|serving| serving.list(patience))
        .map_err(|failure| told(failure, server, time_ms))?;
    schema::bounded(&json!(list), OFFER_BYTES_MAX, &format!("what `{}` offers", server.name))?;
    Ok(list)
}

fn told(failure: Failure, server: &Server, time_ms: u64) -> Error {
    let name = &server.name;
    match failure {
        Failure::Refused(error) => error,
        Failure::Said { code, message } => {
            let why = format!("the server `{name}` says: {} ({code})", cut(&message));
            Error::new(Code::Failed, why)
        }
        Failure::Trouble(Trouble::Broken(why), noise) => {
            let why = why.unwrap_or_else(|| "it does not listen".to_owned());
            with_noise(Error::new(Code::Failed, format!("the server `{name}`: {why}")), noise)
        }
        Failure::Trouble(_, noise) => {
            let time = format_duration_ms(time_ms);
            let why = format!("the server `{name}` did not say within {time} what it offers");
            with_noise(Error::new(Code::Timeout, why), noise)
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Cached {
    time_ms: u64,
    tools: Vec<Value>,
}

/// Where an offer is kept: with other settings, in another project or with
/// other programs it is another one.
fn cached(engine: &Engine, caller: &Caller, server: &Server) -> PathBuf {
    let path = caller.environment.iter().find(|(name, _)| name == "PATH");
    let name = fingerprint(&[
        &serde_json::to_vec(server).unwrap_or_default(),
        caller.directory.as_os_str().as_encoded_bytes(),
        caller.config.default_template().as_bytes(),
        path.map_or(b"".as_slice(), |(_, value)| value.as_encoded_bytes()),
    ]);
    engine.home().join("cache").join(format!("mcp-{}.json", &name[..32]))
}

fn read(file: &Path) -> Option<Vec<Value>> {
    let text = crate::config::read_regular(file).ok()?;
    let cached: Cached = serde_json::from_str(&text).ok()?;
    let age_ms = now_ms().checked_sub(cached.time_ms)?;
    (age_ms < BELIEVED_MS && cached.tools.len() <= TOOLS_MAX + 1).then_some(cached.tools)
}

/// What cannot be kept is asked for again.
fn write(file: &Path, tools: &[Value]) {
    let cached = Cached { time_ms: now_ms(), tools: tools.to_vec() };
    let text = serde_json::to_vec(&cached).unwrap_or_default();
    let beside = file.with_extension(format!("{}.new", fractal_store::new_id()));
    if std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file)).is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    forget_old(file.parent().unwrap_or(file));
}

/// What nobody believes any more is of settings that are no more, or was left
/// by a process that was killed.
fn forget_old(cache: &Path) {
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
    let ours =
        |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"mcp-");
    for entry in entries.filter(ours) {
        let age = entry.metadata().and_then(|meta| meta.modified()).map(|when| when.elapsed());
        if matches!(age, Ok(Ok(age)) if age > Duration::from_millis(24 * BELIEVED_MS)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The tools of a list. One that cannot be offered does not stand in the way
/// of the others.
fn read_all(server: &Arc<Server>, list: &[Value]) -> Offer {
    let mut offer = Offer::default();
    let mut missing = server.tools.clone().unwrap_or_default();
    for raw in list.iter().take(TOOLS_MAX) {
        let name = raw.get("name").and_then(Value::as_str).unwrap_or_default();
        if server.tools.as_ref().is_some_and(|wanted| !wanted.contains(name)) {
            continue;
        }
        missing.remove(name);
        match tool(server, name, raw) {
            Ok(tool) => offer.tools.push(tool),
            Err(error) => offer.broken.push(error),
        }
    }
    let about = |why: String| Error::invalid(format!("the server `{}` {why}", server.name));
    offer.broken.extend(missing.iter().map(|name| {
        about(format!("has no tool `{}`", name.escape_debug()))
            .hint(format!("mend `tools` of [mcp.{}]", server.name))
    }));
    if list.len() > TOOLS_MAX {
        let why = about(format!("offers more than {TOOLS_MAX} tools: the others are left out"));
        offer.broken.insert(0, why.hint("name those that you want in `tools` of its settings"));
    }
    if offer.broken.len() > TOLD_MAX {
        let more = offer.broken.len() - TOLD_MAX;
        offer.broken.truncate(TOLD_MAX);
        offer.broken.push(about(format!("has {more} more tools that are left out")));
    }
    offer
}

fn tool(server: &Arc<Server>, own: &str, raw: &Value) -> Result<Tool> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = offered_name(&server.name, own)?;
    let notes = raw.get("annotations").cloned().unwrap_or_default();
    let flag = |name: &str| notes.get(name).and_then(Value::as_bool);
    let read_only = flag("readOnlyHint").unwrap_or(false);
    let output = raw.get("outputSchema").filter(|schema| schema.is_object()).cloned();
    let about = text(raw, "description").or_else(|| text(raw, "title"));
    let about = about.filter(|about| !about.trim().is_empty());
    Ok(Tool {
        description: about.map_or_else(
            || {
                format!(
                    "The tool `{own}` of the server `{}`, which says nothing of it.",
                    server.name
                )
            },
            |about| shortened(&about),
        ),
        input: raw.get("inputSchema").cloned().unwrap_or_else(|| json!({ "type": "object" })),
        idempotent: read_only || flag("idempotentHint").unwrap_or(false),
        read_only,
        // The protocol's own default: who says nothing may take away.
        destructive: !read_only && flag("destructiveHint").unwrap_or(true),
        time_ms: server.time_ms.unwrap_or(TIME_MS),
        kind: Kind::Mcp(Box::new(Proxied {
            server: Arc::clone(server),
            tool: own.to_owned(),
            structured: output.is_some(),
        })),
        output: Some(output.unwrap_or_else(content_schema)),
        name,
    })
}

/// `files` and `readFile` are `files_readfile`: agents know small letters,
/// digits, `-` and `_`.
fn offered_name(server: &str, own: &str) -> Result<String> {
    let shown: String = own.chars().take(80).collect();
    let refuse = |why: &str| {
        let why = format!("the tool `{}` of the server `{server}` {why}", shown.escape_debug());
        Err(Error::invalid(why).hint("it is left out"))
    };
    let known = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if own.is_empty() || !own.chars().all(known) {
        return refuse("has a name that the protocol does not allow");
    }
    let plain = own.to_ascii_lowercase().replace(['.', '/'], "-");
    let name = format!("{server}{SEPARATOR}{plain}");
    match check_tool_name(&name) {
        Ok(()) => Ok(name),
        Err(_) => refuse("has a name that is too long"),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= DESCRIPTION_BYTES_MAX) {
        Some(at) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Of an answer whose form the server does not tell: what the protocol says.
fn content_schema() -> Value {
    let block = json!({
        "type": "object",
        "properties": { "type": { "type": "string" } },
        "required": ["type"],
    });
    json!({
        "type": "object",
        "properties": {
            "content": { "type": "array", "items": block },
            "structuredContent": { "type": "object" },
        },
        "required": ["content"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(tools: Option<&[&str]>) -> Arc<Server> {
        let tools = tools.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Arc::new(Server {
            name: "s".to_owned(),
            command: vec!["x".to_owned()],
            env: BTreeMap::new(),
            tools,
            time_ms: None,
            memory_bytes: None,
            network: None,
        })
    }

    fn raw(name: &str) -> Value {
        json!({ "name": name, "description": "D.", "inputSchema": { "type": "object" } })
    }

    #[test]
    fn names_are_made_plain_and_odd_ones_left_out() {
        let check = |own: &str, expect: Option<&str>| {
            assert_eq!(offered_name("s", own).ok().as_deref(), expect, "{own}");
        };
        check("read_file", Some("s_read_file"));
        check("getUser", Some("s_getuser"));
        check("admin.tools/list", Some("s_admin-tools-list"));
        let long = "x".repeat(63);
        let odd = ["", "a b", "rm -rf", "\u{1b}[31m", "ü", "a\nb", "a`b", long.as_str()];
        odd.into_iter().for_each(|own| check(own, None));
    }

    #[test]
    fn hints_become_marks_and_silence_is_careful() {
        let marks = |notes: Value| {
            let mut raw = raw("t");
            raw["annotations"] = notes;
            let tool = tool(&server(None), "t", &raw).expect("it is one");
            (tool.read_only, tool.idempotent, tool.destructive)
        };
        assert_eq!(marks(json!({})), (false, false, true));
        assert_eq!(marks(json!({ "readOnlyHint": true })), (true, true, false));
        let once = json!({ "idempotentHint": true, "destructiveHint": false });
        assert_eq!(marks(once), (false, true, false));
        assert_eq!(marks(json!("no object")), (false, false, true));
    }

    #[test]
    fn lists_are_bounded_and_filtered_and_what_is_left_out_is_told() {
        let list: Vec<Value> = (0..=TOOLS_MAX).map(|n| raw(&format!("t{n}"))).collect();
        let offer = read_all(&server(None), &list);
        assert_eq!((offer.tools.len(), offer.broken.len()), (TOOLS_MAX, 1));
        let offer = read_all(&server(Some(&["t1", "gone"])), &list[..9]);
        assert_eq!((offer.tools.len(), offer.tools[0].name.as_str()), (1, "s_t1"));
        assert!(offer.broken[0].message.contains("has no tool `gone`"), "{:?}", offer.broken);
        let odd: Vec<Value> = (0..99).map(|n| raw(&format!("a b {n}"))).collect();
        let offer = read_all(&server(None), &odd);
        assert_eq!((offer.tools.len(), offer.broken.len()), (0, TOLD_MAX + 1));
        let offer = read_all(&server(None), &[json!(3), json!({}), json!(null)]);
        assert_eq!((offer.tools.len(), offer.broken.len()), (0, 3));
    }
}
