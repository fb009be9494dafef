use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use fractal::Reply;
use fractal::model::{IndexReply, IndexVerb, LintReply, format_bytes};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Look after the index of what was learned
///
/// Records are files, and the index is made from them: it may be deleted at any
/// time (it lies in `cache/` of the state directory) and is brought in step
/// before each question.
#[derive(clap::Args)]
pub struct Index {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show what is in it (the default)
    Status,
    /// Throw it away and make it anew from the files
    Rebuild,
    /// Compare it with the files, and change nothing
    ///
    /// Exit status: 0 it says what they say, 1 it does not.
    Verify,
    /// Show what is wrong in records: broken heads, relations that lead
    /// nowhere, ids that several records have
    ///
    /// Exit status: 0 nothing, 1 something.
    Lint,
    /// Make vectors for the records that have none
    Embed,
}

impl Index {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let verb = match self.verb.unwrap_or(Verb::Status) {
            Verb::Status => IndexVerb::Status,
            Verb::Rebuild => IndexVerb::Rebuild,
            Verb::Verify => IndexVerb::Verify,
            Verb::Lint => IndexVerb::Lint,
            Verb::Embed => IndexVerb::Embed,
        };
        let (engine, caller) = (session.engine()?, session.caller_without_settings());
        let mut progress = Progress::new(session);
        let reply = engine.index_with(&caller, verb, &mut |done, of| progress.tell(done, of));
        progress.end();
        match reply? {
            Reply::Index(reply) => tell(session, &reply),
            Reply::Lint(reply) => list(session, &reply),
            _ => Err(unexpected()),
        }
    }
}

/// How far long work is, on one line of a terminal, and now and then elsewhere.
struct Progress {
    live: bool,
    quiet: bool,
    told: Instant,
    shown: bool,
}

impl Progress {
    const LIVE: Duration = Duration::from_millis(200);
    const PLAIN: Duration = Duration::from_secs(10);

    fn new(session: &Session) -> Progress {
        let live = io::stderr().is_terminal();
        Progress { live, quiet: session.is_quiet(), told: Instant::now(), shown: false }
    }

    fn tell(&mut self, done: u64, of: u64) {
        let pause = if self.live { Self::LIVE } else { Self::PLAIN };
        if self.quiet || of == 0 || self.told.elapsed() < pause {
            return;
        }
        self.told = Instant::now();
        self.shown = true;
        let text = format!("{done} of {of} records");
        // Nobody is left to tell when standard error is gone.
        let _ = match self.live {
            true => write!(io::stderr(), "\r{text}\x1b[K"),
            false => writeln!(io::stderr(), "{text}"),
        };
    }

    fn end(&self) {
        if self.live && self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The state of the index.
pub fn tell(session: &Session, reply: &IndexReply) -> Result<u8, Failure> {
    if session.json {
        return session.print_json(reply);
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("records", reply.indexed.to_string()),
        row("relations", reply.edges.to_string()),
        row("size", format_bytes(reply.size_bytes)),
        row(
            "faulty",
            match reply.faulty {
                0 => "none".to_owned(),
                some => format!("{some} (fractal index lint)"),
            },
        ),
    ];
    if let Some(model) = &reply.model {
        rows.push(row("model", plain(model)));
        rows.push(row(
            "without vector",
            match reply.without_vector {
                0 => "none".to_owned(),
                some => format!("{some} (fractal index embed)"),
            },
        ));
    }
    let mut roots = reply.roots.iter();
    rows.extend(roots.next().map(|root| row("places", plain(root))));
    rows.extend(roots.map(|root| row("", plain(root))));
    for note in &reply.notes {
        session.note(&plain(note));
    }
    session.print(&columns(&rows))
}

fn list(session: &Session, reply: &LintReply) -> Result<u8, Failure> {
    let status = u8::from(!reply.faults.is_empty());
    if session.json {
        session.print_json(reply)?;
        return Ok(status);
    }
    for fault in &reply.faults {
        let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
        session.print(&plain(&format!("{}:{}{line}: {}", fault.root, fault.path, fault.what)))?;
        session.print("\n")?;
    }
    let files = plural(usize::try_from(reply.files).unwrap_or(usize::MAX), "file");
    session.note(&match reply.faults.len() {
        0 => format!("{files}: nothing wrong"),
        count => format!("{files}: {}", plural(count, "fault")),
    });
    Ok(status)
}
