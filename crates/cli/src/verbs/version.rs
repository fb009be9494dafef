use crate::failure::Failure;
use crate::session::Session;

/// Print the version
#[derive(clap::Args)]
pub struct Version {}

impl Version {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        if session.json {
            return session.print_json(&serde_json::json!({ "version": version }));
        }
        session.print(&format!("fractal {version}\n"))
    }
}
