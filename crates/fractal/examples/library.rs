//! The engine as a library: run something in a clone, look, fork, compare.
//!
//! `cargo run -p fractal --example library`

use fractal::{Action, Caller, Engine, Error, Reply, Run};

fn main() -> Result<(), Error> {
    let home = std::env::temp_dir().join(format!("fractal-example-{}", std::process::id()));
    let result = play(&Engine::open(&home)?);
    let _ = std::fs::remove_dir_all(&home);
    result
}

fn play(engine: &Engine) -> Result<(), Error> {
    let mut caller = Caller::owner(std::env::temp_dir());
    caller.environment = std::env::vars_os().collect();
    let sh = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();

    let first = Run {
        command: sh("echo hello > greeting; rm -rf /etc/hostname"),
        name: Some("first".into()),
        ..Run::default()
    };
    if let Reply::Run(reply) = engine.apply(&caller, Action::Run(first))? {
        println!(
            "exit {} in {} ms, tier {}",
            reply.exit,
            reply.usage.wall_ms,
            reply.isolation.tier.name()
        );
        for change in &reply.changes {
            println!("{} {}", change.kind.letter(), change.path);
        }
    }
    let fork = Action::Fork {
        sandbox: Some("first".into()),
        name: Some("second".into()),
        ask: fractal::Policy::default(),
        network: None,
        ttl_ms: None,
        world: None,
    };
    engine.apply(&caller, fork)?;
    let look =
        Run { command: sh("cat greeting"), sandbox: Some("second".into()), ..Run::default() };
    if let Reply::Run(reply) = engine.apply(&caller, Action::Run(look))? {
        print!("the fork sees: {}", reply.stdout);
    }
    engine.apply(
        &caller,
        Action::Drop { sandboxes: vec!["first".into(), "second".into()], force: false },
    )?;
    Ok(())
}
