use crate::bounds::duration;
use crate::failure::Failure;
use crate::session::Session;
use fractal::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve this directory's clones to other programs, over HTTP
///
/// Every verb is there under its own name: `fractal fork x` is `POST
/// /v1/sandboxes/x/fork`. `GET /v1/openapi.json` describes all of it, and
/// `/docs` shows it to people. Programs of the same user reach the server by a
/// socket in the state directory and need no key; a port is opened with
/// `--listen`, and whoever comes through it needs a key (`fractal key create`),
/// also from this machine.
///
/// On SIGTERM or Ctrl-C no new work is taken, what runs may finish within
/// `--drain`, and the rest is stopped and recorded so. A server that was killed
/// has lost nothing: start it again.
#[derive(clap::Args)]
pub struct Serve {
    /// Also listen on this address, for everybody who has a key, as in
    /// 127.0.0.1:8321; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// Speak TLS on these addresses, with this certificate (PEM, those that
    /// vouch for it after it); a renewed file is taken without a restart
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Also let in whoever has a token (JWT) signed by an issuer that this
    /// file names; docs/guide/tokens.md tells what stands in it
    #[arg(long, value_name = "FILE", env = "FRACTAL_TOKENS", hide_env_values = true)]
    tokens: Option<PathBuf>,
    /// Where the socket is [default: server.sock in the state directory]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Make no socket
    #[arg(long, conflicts_with = "socket", requires = "listen")]
    no_socket: bool,
    /// Answer to this name too; others are refused, so that a page whose name
    /// was rebound to this address cannot ask
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Let pages of this site ask, as in https://example.org
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,
    /// Runs and other heavy verbs at once [default: four per processor, at
    /// least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    at_once: Option<u32>,
    /// Requests that may wait for a place before others are sent away
    #[arg(long, value_name = "N", default_value_t = 1000)]
    waiting: usize,
    /// Sandboxes that may exist before new ones are refused
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    sandboxes: u64,
    /// Bytes that layers may take before new sandboxes are refused, as in 50g
    #[arg(long, value_name = "SIZE", value_parser = fractal::model::parse_bytes)]
    disk: Option<u64>,
    /// Memory of the machine that stays free: with less, new sandboxes are
    /// refused
    #[arg(long, value_name = "SIZE", value_parser = fractal::model::parse_bytes, default_value = "256m")]
    memory_free: u64,
    /// Bytes of a file or archive that may be sent or fetched whole, as in 500m
    #[arg(long, value_name = "SIZE", value_parser = fractal::model::parse_bytes, default_value = "1g")]
    body: u64,
    /// How long running work may go on after the server was told to stop
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    drain: u64,
    /// Tell this collector by OpenTelemetry's protocol what happens, as in
    /// http://127.0.0.1:4318; elsewhere than on this machine by https. Headers
    /// for it come from OTEL_EXPORTER_OTLP_HEADERS, the server's name there
    /// from OTEL_SERVICE_NAME
    #[arg(long, value_name = "URL", env = "FRACTAL_OTLP", hide_env_values = true)]
    otlp: Option<String>,
    /// Show agents what the protocol's conformance suite looks for
    #[arg(long, hide = true)]
    mcp_fixtures: bool,
    /// How much is told on standard error
    #[arg(long, value_enum, default_value_t = Level::Info)]
    log: Level,
    /// Lines of JSON instead of text on standard error
    #[arg(long)]
    log_json: bool,
}

/// How much is told.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl Serve {
    #[cfg(not(feature = "server"))]
    pub fn call(self, _: &Session) -> Result<u8, Failure> {
        let error =
            Error::new(fractal::Code::Unsupported, "this fractal was built without the server");
        Err(error.hint("build it with the feature `server`").into())
    }

    #[cfg(feature = "server")]
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        start_log(self.log, self.log_json)?;
        let socket = match self.no_socket {
            true => None,
            false => Some(self.socket.clone().unwrap_or(session.home()?.join("server.sock"))),
        };
        // Command lines look for it in the state directory alone.
        let is_usual = self.socket.is_none() && !self.no_socket;
        let run_socket = is_usual.then(|| session.home().map(|home| home.join("run.sock")));
        let run_socket = run_socket.transpose()?;
        let shown = socket.clone();
        let engine = session.engine()?;
        // A broken file is told of now, not with the first request.
        let caller = session.caller()?;
        let providers = self.tokens.clone().map(|file| tokens(session, file)).transpose()?;
        let collector = self.otlp.as_deref().map(collector).transpose()?;
        let settings = fractal_server::Settings {
            collector,
            socket,
            run_socket,
            providers: providers.into_iter().collect(),
            ..self.settings(session, caller.environment)
        };
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        fractal_server::serve(engine, settings, |addresses| {
            tell(session, shown.as_deref(), scheme, addresses);
        })?;
        Ok(0)
    }

    #[cfg(feature = "server")]
    fn settings(
        self,
        session: &Session,
        environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    ) -> fractal_server::Settings {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let usual = fractal_server::Budget::for_cores(cores);
        let budget = fractal_server::Budget {
            at_once: self.at_once.map_or(usual.at_once, |number| number as usize),
            waiting: self.waiting,
            sandboxes: self.sandboxes,
            disk_bytes: self.disk,
            body_bytes: self.body,
            memory_free_bytes: self.memory_free,
        };
        fractal_server::Settings {
            directory: session.directory().to_path_buf(),
            environment,
            user_file: crate::session::user_file(),
            socket: None,
            run_socket: None,
            listen: self.listen,
            tls: self
                .tls_cert
                .zip(self.tls_key)
                .map(|(certificate, key)| fractal_server::TlsFiles { certificate, key }),
            hosts: self.host.iter().map(|name| name.to_ascii_lowercase()).collect(),
            origins: self.origin.into_iter().collect(),
            budget,
            drain: std::time::Duration::from_millis(self.drain),
            collector: None,
            providers: Vec::new(),
            mcp_fixtures: self.mcp_fixtures,
        }
    }
}

/// Whose tokens let somebody in.
#[cfg(feature = "server")]
fn tokens(
    session: &Session,
    file: PathBuf,
) -> Result<std::sync::Arc<dyn fractal_server::Authenticate>, Error> {
    let directory = session.directory().to_path_buf();
    let tokens = fractal_server::Tokens::load(file, directory, crate::session::user_file())?;
    Ok(std::sync::Arc::new(tokens))
}

/// Who is told what happens; the variables are those of every program that
/// speaks to one.
#[cfg(feature = "server")]
fn collector(url: &str) -> Result<fractal_server::Collector, Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    fractal_server::Collector::new(
        url,
        variable("OTEL_EXPORTER_OTLP_HEADERS").as_deref(),
        variable("OTEL_SERVICE_NAME"),
        variable("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from),
    )
}

/// Says where the server is, once it is there.
#[cfg(feature = "server")]
fn tell(
    session: &Session,
    socket: Option<&std::path::Path>,
    scheme: &str,
    addresses: &[SocketAddr],
) {
    let url = |address: &SocketAddr| format!("{scheme}://{address}");
    let urls: Vec<String> = addresses.iter().map(url).collect();
    if session.json {
        let ready = serde_json::json!({ "socket": socket, "listen": urls });
        // Whoever started us and does not listen will find out otherwise.
        let _ = session.print_json(&ready);
        return;
    }
    if let Some(socket) = socket {
        session.note(&format!("listening on {}", socket.display()));
    }
    for url in urls {
        session.note(&format!("listening on {url} ({url}/docs tells how to ask)"));
    }
}

#[cfg(feature = "server")]
fn start_log(level: Level, json: bool) -> Result<(), Error> {
    let level = match level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false);
    let started = match json {
        true => lines.json().try_init(),
        false => lines.try_init(),
    };
    started.map_err(|error| Error::internal(format!("cannot write a log: {error}")))
}
