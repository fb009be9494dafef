use super::{day, moment, place};
use crate::failure::{Failure, colours};
use crate::session::{Session, unexpected};
use crate::table::{plain, plural};
use crate::terminal::{width, wrapped};
use fractal::model::{Find as Asked, FindReply, Hit};
use fractal::{Action, Reply};
use std::io::{self, IsTerminal};

/// Ask what was learned
///
/// Searches the records of this project's experiments, your notes, and what
/// sandboxes keep in `knowledge` and `memory` of volumes: by words, by meaning
/// where there is a model (`fractal model add`), and by what stands in relation
/// to what was found. What somebody verified counts more; what is stale,
/// deprecated or superseded counts less and says so.
///
///   fractal find "why did the upgrade fail"
///   fractal find timeout --kind failure --since 30d --explain
///
/// Exit status: 0 something was found, 1 nothing was.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Find {
    /// The question, in words
    #[arg(required = true, value_name = "QUESTION")]
    text: Vec<String>,
    /// Only records of this kind (repeatable)
    #[arg(short, long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only records with this tag (repeatable: with all of them)
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only records with this outcome, as `failed`
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
    /// Only records of this sandbox
    #[arg(long, value_name = "S")]
    sandbox: Option<String>,
    /// Not before: a time like 2026-11-15, or a duration ago like 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Before: the same
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
    /// At most so many
    #[arg(short = 'n', long = "limit", value_name = "COUNT", default_value_t = 10)]
    limit: u32,
    /// Show every score
    #[arg(long)]
    explain: bool,
}

impl Find {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let asked = Asked {
            text: self.text.join(" "),
            kinds: self.kinds,
            tags: self.tags,
            outcome: self.outcome,
            sandbox: self.sandbox,
            since_ms: self.since,
            until_ms: self.until,
            limit: Some(self.limit),
        };
        let Reply::Find(reply) = session.apply(Action::Find(Box::new(asked)))? else {
            return Err(unexpected());
        };
        let status = u8::from(reply.hits.is_empty());
        if session.json {
            session.print_json(&reply)?;
            return Ok(status);
        }
        remarks(session, &reply);
        for (index, hit) in reply.hits.iter().enumerate() {
            session.print(&shown(session, index + 1, hit, self.explain))?;
        }
        Ok(status)
    }
}

fn remarks(session: &Session, reply: &FindReply) {
    for why in &reply.without {
        session.note(&format!("without {}", plain(why.strip_prefix("no ").unwrap_or(why))));
    }
    if reply.hits.is_empty() {
        let among = plural(usize::try_from(reply.records).unwrap_or(usize::MAX), "record");
        session.note(&format!("nothing found among {among} (fractal note writes one)"));
    }
}

fn shown(session: &Session, number: usize, hit: &Hit, explain: bool) -> String {
    let mut about = vec![plain(&hit.kind.to_lowercase())];
    // Of a failure nobody asks whether it failed.
    let is_plain = hit.kind.eq_ignore_ascii_case("failure") && hit.outcome == "failed";
    let outcome = Some(&hit.outcome).filter(|_| !is_plain);
    let said = outcome.into_iter().chain([&hit.status]).filter(|it| !it.is_empty());
    about.extend(said.map(|it| plain(it)));
    about.extend(hit.at_ms.map(|_| day(hit.at_ms)));
    about.extend(hit.marks.iter().filter(|mark| **mark != hit.status).map(|mark| plain(mark)));
    let mut text = format!("{number:>2}  {}\n", plain(&hit.title));
    let mut line = |content: &str| {
        let lines = wrapped(content, width().saturating_sub(4), "");
        text.extend(lines.iter().map(|line| format!("    {line}\n")));
    };
    line(&about.join(" · "));
    line(&place(session, hit.file.as_deref(), &hit.root, &hit.path));
    if !hit.snippet.is_empty() {
        line(&marked(&plain(&hit.snippet)));
    }
    line(&format!("found by {}", plain(&hit.why.join(", "))));
    if explain {
        let it = &hit.scores;
        line(&format!(
            "score {:.4}: words {:.4}, meaning {:.4}, relations {:.4}, weight {:.2}",
            hit.score, it.text, it.meaning, it.graph, it.weight
        ));
        line(&format!("record {}", plain(&hit.key)));
    }
    text.push('\n');
    text
}

/// Words of the question stand out on a terminal, and as they are elsewhere.
fn marked(text: &str) -> String {
    let (start, end) = match colours() && io::stdout().is_terminal() {
        true => ("\x1b[1m", "\x1b[0m"),
        false => ("", ""),
    };
    text.replace('⟦', start).replace('⟧', end)
}
