use super::place;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::plain;
use fractal::model::{Note as Asked, NoteRelation};
use fractal::{Action, Error, Reply};
use std::io::{IsTerminal, Read};

/// Write down what was learned
///
/// The note becomes a Markdown file that people and programs read: in the
/// experiment one stands in or names, and otherwise among your own notes.
/// `fractal find` brings it back. Text on standard input becomes its body.
///
///   fractal note "Keepalive must be below the balancer's limit" --fixes ID
///   make 2>&1 | tail -50 | fractal note "The linker needs 4 GiB" --kind failure
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Note {
    /// What it says, in one line
    title: String,
    /// Everything else, in Markdown [default: standard input, unless that is a terminal]
    #[arg(short, long, value_name = "TEXT")]
    body: Option<String>,
    /// insight, failure, decision, pattern or problem [default: insight]
    #[arg(short, long, value_name = "KIND")]
    kind: Option<String>,
    /// A word to find it by (repeatable)
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The experiment that it belongs to
    #[arg(long, env = "FRACTAL_EXPERIMENT", value_name = "NAME", hide_env_values = true)]
    experiment: Option<String>,
    /// The sandbox that it tells of
    #[arg(long, value_name = "S")]
    sandbox: Option<String>,
    /// What came of it, in a word
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
    /// A record that this fixes, by id or path (repeatable)
    #[arg(long, value_name = "RECORD")]
    fixes: Vec<String>,
    /// A record that this replaces (repeatable)
    #[arg(long, value_name = "RECORD")]
    supersedes: Vec<String>,
    /// A record that this shows to be wrong (repeatable)
    #[arg(long, value_name = "RECORD")]
    refutes: Vec<String>,
    /// A relation: TYPE=RECORD, or TYPE=file:PATH, package:NAME, sandbox:NAME (repeatable)
    #[arg(long, value_name = "TYPE=TO", value_parser = relation)]
    relate: Vec<NoteRelation>,
    /// You have seen that it holds
    #[arg(long)]
    verified: bool,
}

fn relation(text: &str) -> Result<NoteRelation, Error> {
    let (kind, to) = text.split_once('=').ok_or_else(|| {
        Error::invalid(format!("`{}` is no relation", text.escape_debug()))
            .hint("write `--relate depends-on=package:serde`")
    })?;
    Ok(NoteRelation { kind: kind.to_owned(), to: to.to_owned() })
}

impl Note {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let body = match self.body {
            Some(body) => body,
            None => piped()?,
        };
        let mut relations = self.relate;
        let named =
            [("fixes", self.fixes), ("supersedes", self.supersedes), ("refutes", self.refutes)];
        for (kind, records) in named {
            let one = |to: String| NoteRelation { kind: kind.to_owned(), to };
            relations.extend(records.into_iter().map(one));
        }
        let asked = Asked {
            title: self.title,
            body,
            kind: self.kind,
            tags: self.tags,
            outcome: self.outcome,
            experiment: self.experiment,
            sandbox: self.sandbox,
            relations,
            verified: self.verified,
        };
        let Reply::Note(reply) = session.apply(Action::Note(Box::new(asked)))? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        let kind = plain(&reply.kind.to_lowercase());
        session.note(&format!("noted as {kind} {}", reply.noted));
        let place = place(session, reply.file.as_deref(), &reply.root, &reply.path);
        session.print(&format!("{place}\n"))
    }
}

/// What is piped to us. Nothing is waited for that nobody sends.
fn piped() -> Result<String, Error> {
    const BYTES_MAX: u64 = (1 << 20) + 1;
    let input = std::io::stdin();
    if input.is_terminal() || !is_sent() {
        return Ok(String::new());
    }
    let mut text = Vec::new();
    input.lock().take(BYTES_MAX).read_to_end(&mut text).map_err(|error| {
        Error::invalid(format!("cannot read standard input: {error}"))
            .hint("give it as `--body TEXT`")
    })?;
    String::from_utf8(text).map_err(|_| {
        Error::invalid("what is on standard input is no UTF-8 text")
            .hint("give it as `--body TEXT`")
    })
}

/// Whether standard input is a pipe or a file: under a service manager it may
/// be a socket that never ends.
fn is_sent() -> bool {
    use rustix::fs::{FileType, fstat};
    let kind = fstat(std::io::stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::RegularFile))
}
