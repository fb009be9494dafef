//! Many calls at once, functions, retries.

use super::done;
use crate::world::World;
use fractal::model::{ToolCall, ToolReply};
use fractal::tools::{Cancel, Options, Tool, ToolRegistry};
use fractal::{Code, Error};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn tool(
    name: &str,
    code: impl Fn(&ToolCall) -> fractal::Result<Value> + Send + Sync + 'static,
) -> Tool {
    Tool::function(name, "A test.", json!({ "type": "object" }), code)
}

fn calls(tool: &str, count: usize) -> Vec<ToolCall> {
    let one =
        |n: usize| ToolCall { tool: tool.into(), input: json!({ "n": n }), ..ToolCall::default() };
    (0..count).map(one).collect()
}

fn many(
    world: &World,
    registry: &ToolRegistry,
    calls: &[ToolCall],
    options: &Options,
) -> Vec<ToolReply> {
    registry.call_many(&world.engine, &world.caller, calls, options).unwrap()
}

fn codes(replies: &[ToolReply]) -> Vec<Option<Code>> {
    replies.iter().map(|reply| reply.error().map(|error| error.code)).collect()
}

#[test]
fn a_hundred_calls_run_side_by_side_in_order_and_fail_alone() {
    const JOBS: usize = 10;
    let world = World::new();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let registry = ToolRegistry::new();
    let (at_once, peak) = (Arc::clone(&now), Arc::clone(&most));
    let work = move |call: &ToolCall| {
        peak.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        at_once.fetch_sub(1, Ordering::SeqCst);
        match call.input["n"].as_u64().unwrap() {
            7 => Err(Error::denied("not this one")),
            42 => panic!("a hole in the floor"),
            n => Ok(json!({ "n": n })),
        }
    };
    registry.register(tool("wait", work)).unwrap();
    let mut calls = calls("wait", 100);
    calls[99].tool = "gone".into();
    let start = Instant::now();
    let replies =
        many(&world, &registry, &calls, &Options { jobs: Some(JOBS), ..Options::default() });
    eprintln!("100 calls of 100 ms, {JOBS} at once: {} ms", start.elapsed().as_millis());
    assert_eq!(most.load(Ordering::SeqCst), JOBS);
    for (n, reply) in replies.iter().enumerate() {
        match n {
            7 => assert_eq!(reply.error().unwrap().code, Code::Denied),
            42 => {
                let error = reply.error().unwrap();
                assert!(
                    error.code == Code::Internal && error.message.contains("a hole in the floor")
                );
            }
            99 => assert_eq!(reply.error().unwrap().code, Code::NotFound),
            _ => assert_eq!(done(reply), json!({ "n": n })),
        }
    }
}

#[test]
fn who_overruns_is_answered_for_and_counts_until_it_ends() {
    let world = World::new();
    let registry = ToolRegistry::new();
    let slow = tool("slow", |call| {
        let ms = if call.input["n"] == 0 { 1500 } else { 10 };
        std::thread::sleep(Duration::from_millis(ms));
        Ok(json!({}))
    });
    registry.register(Tool { time_ms: 300, ..slow }).unwrap();
    let one = Options { jobs: Some(1), ..Options::default() };
    // The only place is taken by the first until long after it was answered.
    let replies = many(&world, &registry, &calls("slow", 3), &one);
    assert_eq!(codes(&replies), [Some(Code::Timeout), Some(Code::Busy), Some(Code::Busy)]);
    std::thread::sleep(Duration::from_millis(1500));
    let two = Options { jobs: Some(2), ..Options::default() };
    let replies = many(&world, &registry, &calls("slow", 3), &two);
    assert_eq!(codes(&replies), [Some(Code::Timeout), None, None]);
}

#[test]
fn only_idempotent_tools_are_tried_again() {
    let world = World::new();
    let registry = ToolRegistry::new();
    let tool_of = |name: &str, idempotent: bool, code: Code| {
        let tries = AtomicUsize::new(0);
        let work = move |_: &ToolCall| match tries.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(Error::new(code, "not yet")),
            _ => Ok(json!({})),
        };
        Tool { idempotent, ..tool(name, work) }
    };
    registry.register(tool_of("again", true, Code::Busy)).unwrap();
    registry.register(tool_of("once", false, Code::Busy)).unwrap();
    registry.register(tool_of("wrong", true, Code::Invalid)).unwrap();
    registry.register(tool_of("late", true, Code::Timeout)).unwrap();
    let ask =
        |name: &str, options: &Options| many(&world, &registry, &calls(name, 1), options).remove(0);
    let check = |name: &str, options: &Options, tries: u32, code: Option<Code>| {
        let reply = ask(name, options);
        assert_eq!((reply.tries, reply.error().map(|error| error.code)), (tries, code), "{name}");
    };
    let usual = Options::default();
    check("again", &usual, 3, None);
    check("once", &usual, 1, Some(Code::Busy));
    check("wrong", &usual, 1, Some(Code::Invalid));
    check("late", &usual, 1, Some(Code::Timeout));
    check("late", &Options { retry_timeout: true, ..usual }, 2, None);
}

#[test]
fn what_is_called_off_ends_soon() {
    let world = World::new();
    let registry = ToolRegistry::new();
    let cancel = Cancel::default();
    let token = cancel.clone();
    registry
        .register(tool("wait", move |call| {
            if call.input["n"] == 1 {
                token.cancel();
            }
            std::thread::sleep(Duration::from_secs(3));
            Ok(json!({}))
        }))
        .unwrap();
    let options = Options { jobs: Some(2), cancel, ..Options::default() };
    let start = Instant::now();
    let replies = many(&world, &registry, &calls("wait", 50), &options);
    assert!(start.elapsed() < Duration::from_secs(3), "nobody waited for the functions");
    assert!(codes(&replies).iter().all(|code| *code == Some(Code::Failed)));
    assert!(replies[30].error().unwrap().message.contains("called off"));
}

#[test]
fn answers_of_functions_are_checked_and_bounded() {
    let world = World::new();
    let registry = ToolRegistry::new();
    let typed = tool("typed", |_| Ok(json!({ "n": "text" })));
    let output = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    registry.register(Tool { output: Some(output), ..typed }).unwrap();
    registry.register(tool("large", |_| Ok(json!("x".repeat(2000))))).unwrap();
    let options = Options { output_bytes: Some(1000), ..Options::default() };
    let typed = many(&world, &registry, &calls("typed", 1), &options).remove(0);
    assert!(
        typed.error().unwrap().message.contains("/n: it is not of type \"integer\""),
        "{typed:?}"
    );
    let large = many(&world, &registry, &calls("large", 1), &options).remove(0);
    assert_eq!(large.error().unwrap().code, Code::Limit, "{large:?}");
    let few = registry.call_many(&world.engine, &world.caller, &calls("large", 1001), &options);
    assert_eq!(few.unwrap_err().code, Code::Limit);
}
