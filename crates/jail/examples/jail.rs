//! Runs a command in a throw-away clone, without an engine: for measuring
//! and for trying plans. `cargo run --example jail -- [--tier T] [-n N] CMD…`

use fractal_jail::{Input, Output, Spec, Stack, Streams, Top};
use fractal_model::{Limits, Network, Tier};
use std::os::fd::AsFd;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let (mut tier, mut count, mut explain) = (None, 1u32, false);
    let mut limits = Limits::default();
    while let Some(flag) = args.next_if(|arg| arg.starts_with('-')) {
        match flag.as_str() {
            "--tier" => tier = args.next().as_deref().and_then(Tier::parse),
            "-n" => count = args.next().ok_or("-n N")?.parse()?,
            "--pids" => limits.pids = Some(args.next().ok_or("--pids N")?.parse()?),
            "--memory" => limits.memory_bytes = Some(args.next().ok_or("--memory N")?.parse()?),
            "--time" => limits.time_ms = Some(args.next().ok_or("--time MS")?.parse()?),
            "--explain" => explain = true,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let state_dir =
        std::env::temp_dir().join(format!("fractal-jail-example-{}", std::process::id()));
    std::fs::create_dir_all(state_dir.join("layers"))?;
    std::fs::create_dir_all(state_dir.join("cache"))?;
    let tier = match tier {
        Some(tier) => tier,
        None => fractal_jail::probe::best_tier(&state_dir)?,
    };
    let mut spec = Spec {
        command: args.map(Into::into).collect(),
        env: std::env::vars_os().collect(),
        cwd: std::env::current_dir()?,
        stack: Stack {
            layers_dir: state_dir.join("layers"),
            sealed: vec![],
            top: Top::Memory { size_bytes: 1 << 30 },
            state_dir: state_dir.clone(),
            project: std::env::current_dir()?,
            mounts: vec![],
        },
        limits,
        network: Network::None,
        hidden: vec![],
        read_only: vec![],
        tier,
        terminal: false,
        label: format!("example-{}", std::process::id()),
        join: None,
        door: false,
        last_words: None,
    };
    if explain {
        fractal_jail::explain(&spec)?.iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let mut times = Vec::new();
    let mut last = None;
    for index in 0..count {
        spec.label = format!("example-{}-{index}", std::process::id());
        let streams = Streams {
            stdin: Input::Null,
            stdout: Output::Descriptor(std::io::stdout().as_fd().try_clone_to_owned()?),
            stderr: Output::Descriptor(std::io::stderr().as_fd().try_clone_to_owned()?),
            interactive: false,
            caller: None,
        };
        let start = Instant::now();
        last = Some(fractal_jail::run(&spec, streams)?);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    fractal_jail::settle();
    std::fs::remove_dir_all(&state_dir)?;
    if let Some(report) = last {
        eprintln!(
            "{:?} {:?} p50 {:.2} ms p95 {:.2} ms",
            report.ended,
            report.why,
            times[times.len() / 2],
            times[times.len() * 95 / 100]
        );
    }
    Ok(())
}
