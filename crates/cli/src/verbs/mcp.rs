use crate::failure::Failure;
use crate::session::Session;

/// Offer fractal to an agent, by the Model Context Protocol
///
/// Started by the agent, on standard input and output; one line in its
/// configuration is enough: `{"command": "fractal", "args": ["mcp"]}`. The agent
/// works in a sandbox of its own, which is made with its first call, and reaches
/// the real files by `promote` alone. With FRACTAL_KEY it may do what that key
/// may, and no more. `fractal serve --listen` offers the same at /mcp.
#[derive(clap::Args)]
pub struct Mcp {
    /// Act with this key instead of as the owner
    #[arg(long, env = "FRACTAL_KEY", value_name = "SECRET", hide_env_values = true)]
    key: Option<String>,
}

impl Mcp {
    #[cfg(not(feature = "server"))]
    pub fn call(self, _: &Session) -> Result<u8, Failure> {
        let error = fractal::Error::new(
            fractal::Code::Unsupported,
            "this fractal was built without the server",
        );
        Err(error.hint("build it with the feature `server`").into())
    }

    #[cfg(feature = "server")]
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let engine = session.engine()?;
        let caller = session.caller()?;
        let settings = fractal_server::Settings::local(
            session.directory().to_path_buf(),
            caller.environment,
            crate::session::user_file(),
        );
        fractal_server::serve_mcp(engine, settings, self.key.as_deref())?;
        Ok(0)
    }
}
