use super::tools;
use crate::failure::Failure;
use crate::session::Session;
use crate::table::{columns, plain};
use crate::terminal;
use fractal::model::ToolInfo;

/// List the tools that may be used
///
/// Examples:
///
///   fractal tool list
///
///   fractal tool list --in box     which of them `box` allows
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct List {
    /// The sandbox to ask for [default: a new one]
    #[arg(long = "in", value_name = "S")]
    sandbox: Option<String>,
}

impl List {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let reply = tools(session, self.sandbox)?;
        if session.json {
            return session.print_json(&reply);
        }
        let head = ["NAME", "KIND", "DESCRIPTION"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> =
            [head].into_iter().chain(reply.tools.iter().map(row)).collect();
        let width = terminal::width();
        let lines = columns(&rows);
        let lines = lines.lines().map(|line| format!("{}\n", terminal::cut(line, width)));
        session.print(&lines.collect::<String>())
    }
}

/// Its first sentence says what it does.
fn row(tool: &ToolInfo) -> Vec<String> {
    let about = tool.description.split_once(". ").map_or(tool.description.as_str(), |(one, _)| one);
    vec![tool.name.clone(), tool.kind.clone(), plain(about.trim_end_matches('.'))]
}
