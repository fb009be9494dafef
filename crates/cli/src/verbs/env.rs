use crate::failure::Failure;
use crate::session::Session;
use clap::ValueEnum;

/// Print the variables that make another client work in sandboxes here
///
/// `eval "$(fractal env e2b)"` and programs that use E2B work in sandboxes of
/// the server that listens on `--url`. A key is made for them, which `fractal
/// key list` shows and `fractal key revoke` ends.
#[derive(clap::Args)]
pub struct Env {
    /// Whose client
    client: Client,
    /// Where the server listens
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8321")]
    url: String,
    /// What the key may do
    #[arg(long, value_name = "ROLE", default_value = "runner")]
    role: String,
    /// The key's name [default: one that is free]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Client {
    E2b,
}

impl Env {
    #[cfg(not(feature = "server"))]
    pub fn call(self, _: &Session) -> Result<u8, Failure> {
        let Client::E2b = self.client;
        let error = fractal::Error::new(
            fractal::Code::Unsupported,
            "this fractal was built without the server",
        );
        Err(error.hint("build it with the feature `server`").into())
    }

    #[cfg(feature = "server")]
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        use fractal::model::KeyVerb;
        use fractal::{Action, Error, Policy, Reply};
        let Client::E2b = self.client;
        let url = self.url.trim_end_matches('/');
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]@".contains(&byte);
        if !(url.starts_with("http://") || url.starts_with("https://")) || !url.bytes().all(is_safe)
        {
            let error =
                Error::invalid(format!("`{}` is no address of a server", url.escape_debug()));
            return Err(error.hint("give one as in `--url http://127.0.0.1:8321`").into());
        }
        let create = KeyVerb::Create {
            role: self.role,
            name: self.name,
            tenant: None,
            scope: None,
            ask: Policy::default(),
            ttl_ms: None,
            endless: false,
            rate_per_minute: None,
            concurrent: None,
        };
        let Reply::KeyMade(made) = session.apply(Action::Key(create))? else {
            return Err(crate::session::unexpected());
        };
        let key = fractal_server::dressed_key(&made.secret);
        let variables =
            [("E2B_API_URL", url), ("E2B_SANDBOX_URL", url), ("E2B_API_KEY", key.as_str())];
        if session.json {
            let all: std::collections::BTreeMap<_, _> = variables.into_iter().collect();
            return session.print_json(&all);
        }
        session.note(&format!(
            "made the key `{}` (fractal key revoke {})",
            made.key.name, made.key.name
        ));
        let lines = variables.map(|(name, value)| format!("export {name}={value}\n"));
        session.print(&lines.concat())
    }
}
