use crate::bounds::{Bounds, duration};
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use crate::time::{distance, now_ms};
use fractal::model::{Key as Made, KeyMade, KeyVerb, Role, format_iso_ms};
use fractal::{Action, Error, Policy, Reply};

/// Make keys for others, list and end them
///
/// A key lets somebody else ask, through the server: what it may do is its
/// role (a named policy), which sandboxes it sees are its tenant and scope. Its
/// secret is shown once; only a hash of it is kept. Nobody makes a key that is
/// wider than they are.
///
///   KEY=$(fractal key create --role runner --ttl 7d)
///   fractal key create --role viewer --scope mybox
///   fractal key revoke runner-4k2q9x
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Key {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Create(Box<Create>),
    /// List keys, also those that have ended
    #[command(visible_alias = "ls")]
    List,
    /// Show one key and its policy
    Show {
        /// Its name or id
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Give a key a new secret and print it
    ///
    /// The old one ends at once, or after `--grace`.
    Rotate {
        /// Its name or id
        #[arg(value_name = "KEY")]
        key: String,
        /// How long the old secret stays good, as in 10m
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        grace: Option<u64>,
    },
    /// End a key, at once and for good
    Revoke {
        /// Its name or id
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// List the roles there are, with what they allow
    Roles,
}

/// Make a key and print its secret
///
/// The secret alone goes to standard output, once; it cannot be shown again.
#[derive(clap::Args)]
struct Create {
    /// What it may do: viewer, approver, runner, operator, admin, or a role of
    /// the settings
    #[arg(long, value_name = "ROLE")]
    role: String,
    /// Its name in the journal [default: the role and some letters]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Which sandboxes: `*`, `template:NAME`, or a sandbox and what is forked
    /// below it
    #[arg(long, value_name = "SCOPE", default_value = "*")]
    scope: String,
    /// Whose sandboxes: a name that several keys may share, or `owner` for
    /// those of this command line [default: its own; that of the scope's
    /// sandbox; everybody's for an admin]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// How long it lives, as in 12h, or `never` for a key without an end
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = ttl)]
    ttl: Ttl,
    /// Requests per minute that the server lets through
    #[arg(long, value_name = "COUNT")]
    rate: Option<u32>,
    /// Requests at once that the server lets through
    #[arg(long, value_name = "COUNT")]
    concurrent: Option<u32>,
    /// Tools that it may use, with commas between them [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    #[command(flatten)]
    bounds: Bounds,
}

#[derive(Clone, Copy)]
enum Ttl {
    Ms(u64),
    Never,
}

fn ttl(text: &str) -> Result<Ttl, Error> {
    match text {
        "never" => Ok(Ttl::Never),
        text => duration(text).map(Ttl::Ms),
    }
}

impl Create {
    fn verb(self, session: &Session) -> Result<KeyVerb, Error> {
        let mut ask: Policy = self.bounds.policy(session)?;
        if let Some(network) = self.bounds.net {
            ask = ask.meet(&Policy { network, ..Policy::default() });
        }
        let tools = self.tools.map(|names| names.into_iter().collect());
        ask = ask.meet(&Policy { tools, ..Policy::default() });
        let (ttl_ms, endless) = match self.ttl {
            Ttl::Ms(ms) => (Some(ms), false),
            Ttl::Never => (None, true),
        };
        Ok(KeyVerb::Create {
            role: self.role,
            name: self.name,
            tenant: self.tenant,
            scope: Some(self.scope),
            ask,
            ttl_ms,
            endless,
            rate_per_minute: self.rate,
            concurrent: self.concurrent,
        })
    }
}

impl Key {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let verb = match self.verb {
            Verb::Create(create) => create.verb(session)?,
            Verb::List => KeyVerb::List,
            Verb::Show { key } => KeyVerb::Show { key },
            Verb::Rotate { key, grace } => KeyVerb::Rotate { key, grace_ms: grace },
            Verb::Revoke { key } => KeyVerb::Revoke { key },
            Verb::Roles => KeyVerb::Roles,
        };
        let is_show = matches!(verb, KeyVerb::Show { .. });
        let reply = session.apply(Action::Key(verb))?;
        if session.json {
            return session.print_json(&reply);
        }
        match reply {
            Reply::KeyMade(made) => print_secret(session, &made),
            Reply::Keys { keys } if keys.is_empty() => {
                session.note("there are no keys (fractal key create --role ROLE makes one)");
                Ok(0)
            }
            Reply::Keys { keys } => session.print(&columns(&list(&keys))),
            Reply::Key(key) if is_show => session.print(&columns(&details(&key))),
            Reply::Key(key) => {
                session.note(&format!("revoked {} ({})", plain(&key.name), key.id));
                Ok(0)
            }
            Reply::Roles { roles } => session.print(&columns(&described(&roles))),
            _ => Err(unexpected()),
        }
    }
}

/// Standard output has the secret alone, so that a shell can keep it.
fn print_secret(session: &Session, made: &KeyMade) -> Result<u8, Failure> {
    session.print(&format!("{}\n", made.secret))?;
    let key = &made.key;
    session.note(&format!(
        "key {} ({}), role {}, {}",
        plain(&key.name),
        key.id,
        plain(&key.role),
        ends(key)
    ));
    session.note("the secret is not kept and cannot be shown again");
    Ok(0)
}

fn ends(key: &Made) -> String {
    let until = |ms: u64| distance(&format_iso_ms(ms));
    match (key.ended(now_ms()), key.expires_ms) {
        (Some(how), _) => how.to_owned(),
        (None, Some(ms)) => format!("ends in {}", until(ms)),
        (None, None) => "does not end".to_owned(),
    }
}

fn tenant(key: &Made) -> String {
    match key.tenant.as_deref() {
        None => "everybody".to_owned(),
        Some("") => "owner".to_owned(),
        Some(own) if own == key.id.as_str() => "its own".to_owned(),
        Some(name) => plain(name),
    }
}

fn list(keys: &[Made]) -> Vec<Vec<String>> {
    let head = ["NAME", "ROLE", "TENANT", "SCOPE", "STATE", "ID"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(keys.iter().map(|key| {
        vec![
            plain(&key.name),
            plain(&key.role),
            tenant(key),
            plain(&key.scope.to_string()),
            ends(key),
            key.id.to_string(),
        ]
    }));
    rows
}

fn details(key: &Made) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let or_none =
        |count: Option<u32>| count.map_or("no limit".to_owned(), |count| count.to_string());
    vec![
        row("name", plain(&key.name)),
        row("id", key.id.to_string()),
        row("role", plain(&key.role)),
        row("allows", verbs(&key.policy)),
        row("bounds", bounds(&key.policy)),
        row("tenant", tenant(key)),
        row("scope", plain(&key.scope.to_string())),
        row("created", format!("{} ago", distance(&format_iso_ms(key.created_ms)))),
        row("state", ends(key)),
        row("per minute", or_none(key.rate_per_minute)),
        row("at once", or_none(key.concurrent)),
    ]
}

fn described(roles: &[Role]) -> Vec<Vec<String>> {
    let head = ["ROLE", "FROM", "ALLOWS"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(
        roles.iter().map(|role| vec![plain(&role.name), plain(&role.origin), verbs(&role.policy)]),
    );
    rows
}

fn verbs(policy: &Policy) -> String {
    match &policy.allow {
        None => "everything".to_owned(),
        Some(verbs) if verbs.is_empty() => "nothing".to_owned(),
        Some(verbs) => {
            let names: Vec<String> =
                verbs.iter().map(|verb| format!("{verb:?}").to_lowercase()).collect();
            names.join(" ")
        }
    }
}

/// What else the policy says, as its JSON has it.
fn bounds(policy: &Policy) -> String {
    let others = Policy { allow: None, ..policy.clone() };
    match others == Policy::default() {
        true => "none".to_owned(),
        false => {
            let text = serde_json::to_string(&others).unwrap_or_default();
            let paths = policy.hidden.len() + policy.read_only.len();
            if paths > 0 { format!("{} and limits", plural(paths, "path")) } else { text }
        }
    }
}
