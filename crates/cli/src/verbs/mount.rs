use crate::failure::Failure;
use crate::session::Session;
#[cfg(feature = "mount")]
use {
    crate::session::unexpected,
    fractal::model::{SandboxPath, World},
    fractal::{Action, Mounting, Reply, RunIo, Told},
};

/// Show a sandbox as a real directory, for every program of this machine
///
/// Editors, compilers and everything else work in DIR as in any other
/// directory; what they write lands in the sandbox and nowhere else, at the
/// latest some seconds after it was written. Until `umount DIR` or Ctrl-C this
/// command stays; then `fractal diff S` shows what was done. With `--json` it
/// prints one object when DIR can be used.
///
/// Programs in DIR are ordinary processes of this machine: what they write
/// elsewhere is not held back. Use `fractal run` to fence a program in.
#[derive(clap::Args)]
#[command(override_usage = "fractal mount [OPTIONS] [S] DIR")]
pub struct Mount {
    /// The sandbox [default: the latest one of this directory], and an existing
    /// directory
    #[arg(value_name = "S DIR", num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Show this directory of the sandbox instead of its project, as in /
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Nothing can be written through the mount
    #[arg(long)]
    read_only: bool,
}

impl Mount {
    #[cfg(not(feature = "mount"))]
    pub fn call(self, _: &Session) -> Result<u8, Failure> {
        let error = fractal::Error::new(
            fractal::Code::Unsupported,
            "this fractal was built without mounts",
        );
        Err(error.hint("build it with the feature `mount`").into())
    }

    #[cfg(feature = "mount")]
    pub fn call(mut self, session: &Session) -> Result<u8, Failure> {
        let dir = self.words.pop().unwrap_or_default();
        let top = self.path.as_deref().map(SandboxPath::parse).transpose()?;
        let (engine, caller) = (session.engine()?, session.caller()?);
        let sandbox = match self.words.pop() {
            Some(sandbox) => sandbox,
            None => latest(session)?,
        };
        let mounting = Mounting {
            dir: session.absolute(&dir)?.into(),
            top,
            read_only: self.read_only,
            interactive: true,
            stop: Default::default(),
            tell: telling(session, &sandbox),
        };
        let run = fractal::Run {
            command: vec!["mount".to_owned(), dir],
            sandbox: Some(sandbox),
            world: Some(World::Virtual),
            ..fractal::Run::default()
        };
        let reply = engine.run(&caller, run, RunIo::mounted(mounting))?;
        if !session.json {
            super::run::remarks(session, &reply, true, false);
        }
        Ok(0)
    }
}

#[cfg(feature = "mount")]
fn latest(session: &Session) -> Result<String, Failure> {
    let reply = session.apply(Action::Show { sandbox: None })?;
    let Reply::Show(shown) = reply else { return Err(unexpected()) };
    Ok(shown.info.name.clone())
}

/// Says when the directory can be used, and what cannot be kept.
#[cfg(feature = "mount")]
fn telling(session: &Session, sandbox: &str) -> Box<dyn FnMut(Told<'_>)> {
    let (session, sandbox) = (session.clone(), sandbox.to_owned());
    Box::new(move |told| {
        match told {
        Told::Ready(dir) if session.json => {
            let ready = serde_json::json!({ "sandbox": sandbox, "dir": dir });
            // Whoever asked and went away can still unmount.
            let _ = session.print_json(&ready);
        }
        Told::Ready(dir) => {
            let dir = dir.display();
            session.note(&format!("{sandbox} is at {dir} (umount {dir}, or Ctrl-C, ends it)"));
        }
        Told::Stuck(error) => session.complain(&format!(
            "cannot put what was written into {sandbox}: {}\n  it is kept in memory and tried again",
            error.message
        )),
    }
    })
}
