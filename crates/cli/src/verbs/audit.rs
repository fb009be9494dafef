use super::log::outcome;
use crate::bounds::duration;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use crate::time::{now_ms, stamp};
use fractal::model::{AuditReply, AuditVerifyReply, Record, parse_iso_ms};
use fractal::{Action, Error, Reply};

/// Show who did what, and what was refused
///
/// One line per record of the journal, newest first: number, time (UTC), who,
/// verb, sandbox, outcome. Refused requests and bad secrets are in it; secrets
/// and values of variables never are. `fractal audit verify` checks that the
/// journal is still what was written.
///
///   fractal audit --since 24h --denied
///   fractal audit --key ci --sandbox mybox
///   fractal audit --jsonl > audit.jsonl
///   fractal audit verify --expect HASH
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub struct Audit {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Not before: a time like 2026-11-15T20:43:57Z, or a duration ago like 24h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Before: the same
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
    /// Only what this key asked, by name or id; `owner` for the local user
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only this verb; `authenticate` for bad secrets
    #[arg(long, value_name = "VERB")]
    action: Option<String>,
    /// Only this sandbox, by id or by the name it had then
    #[arg(long, value_name = "S")]
    sandbox: Option<String>,
    /// Only what was refused
    #[arg(long)]
    denied: bool,
    /// At most so many records [default: 50; all with --jsonl]
    #[arg(short = 'n', long = "limit", value_name = "COUNT")]
    limit: Option<u64>,
    /// Print every record as a line of JSON, oldest first
    #[arg(long)]
    jsonl: bool,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Check that no record was edited, removed or reordered
    ///
    /// Every record carries the hash of the one before. Prints how many records
    /// fit and the hash of the last one; keep that elsewhere, and `--expect` it
    /// later: whoever can rewrite the whole journal can also make a new chain
    /// that fits, but not one with a hash that you noted.
    ///
    /// Exit status: 0 it is whole, 125 it is not.
    Verify {
        /// A hash that an earlier check printed, which must still be there
        #[arg(long, value_name = "HASH")]
        expect: Option<String>,
    },
}

/// An ISO time, or how long ago.
fn moment(text: &str) -> Result<u64, Error> {
    match parse_iso_ms(text) {
        Some(ms) if text.contains('-') => Ok(ms),
        _ => duration(text).map(|ago| now_ms().saturating_sub(ago)).map_err(|_| {
            Error::invalid(format!("`{}` is neither a time nor a duration", text.escape_debug()))
                .hint("write 2026-11-15T20:43:57Z, or a duration ago like 24h")
        }),
    }
}

impl Audit {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        if let Some(Verb::Verify { expect }) = self.verb {
            return verify(session, expect);
        }
        if self.jsonl {
            return self.export(session);
        }
        let reply = ask(session, self.action(self.limit, None))?;
        if session.json {
            return session.print_json(&reply);
        }
        if reply.records.is_empty() {
            session.note("no record is like that");
        }
        let rows: Vec<Vec<String>> = reply.records.iter().map(row).collect();
        session.print(&columns(&rows))
    }

    fn action(&self, limit: Option<u64>, after: Option<u64>) -> Action {
        Action::Audit {
            since_ms: self.since,
            until_ms: self.until,
            key: self.key.clone(),
            action: self.action.clone(),
            sandbox: self.sandbox.clone(),
            denied: self.denied,
            limit,
            after,
        }
    }

    /// Page by page: a journal may be longer than memory is large.
    fn export(&self, session: &Session) -> Result<u8, Failure> {
        const PAGE: u64 = 1_000;
        let (mut after, mut left) = (0, self.limit.unwrap_or(u64::MAX));
        while left > 0 {
            let reply = ask(session, self.action(Some(PAGE.min(left)), Some(after)))?;
            for record in &reply.records {
                session.print_json(record)?;
                after = record.seq;
            }
            left -= reply.records.len() as u64;
            if !reply.more {
                break;
            }
        }
        Ok(0)
    }
}

fn ask(session: &Session, action: Action) -> Result<AuditReply, Failure> {
    match session.apply(action)? {
        Reply::Audit(reply) => Ok(reply),
        _ => Err(unexpected()),
    }
}

/// Everything that others wrote is escaped, so that no record can look like
/// two, or like another one.
fn row(record: &Record) -> Vec<String> {
    let body = &record.body;
    vec![
        record.seq.to_string(),
        stamp(body.time_ms),
        plain(&body.who),
        plain(&body.action),
        body.name.as_deref().map_or_else(|| "-".to_owned(), plain),
        outcome(body),
    ]
}

fn verify(session: &Session, expect: Option<String>) -> Result<u8, Failure> {
    const BROKEN: u8 = 125;
    let reply = match session.apply(Action::AuditVerify { expect })? {
        Reply::AuditVerify(reply) => reply,
        _ => return Err(unexpected()),
    };
    if session.json {
        session.print_json(&reply)?;
    } else {
        let AuditVerifyReply { checked, head, .. } = &reply;
        let count = plural(usize::try_from(*checked).unwrap_or(usize::MAX), "record");
        session.print(&format!("{count} fit\nhead {head}\n"))?;
    }
    match reply.broken {
        None => Ok(0),
        Some(broken) => {
            session.complain(&format!(
                "error: the journal is broken at record {}: {}",
                broken.seq,
                plain(&broken.why)
            ));
            Ok(BROKEN)
        }
    }
}
