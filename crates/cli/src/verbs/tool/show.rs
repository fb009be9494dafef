use super::{one, tools};
use crate::failure::Failure;
use crate::session::Session;
use crate::table::plain;
use crate::terminal;
use fractal::model::{ToolInfo, format_duration_ms};
use serde_json::Value;

/// Show what a tool does, takes and answers
///
/// Example:
///
///   fractal tool show edit
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Show {
    /// The tool
    #[arg(value_name = "NAME")]
    name: String,
    /// The sandbox it is to work in [default: a new one]
    #[arg(long = "in", value_name = "S")]
    sandbox: Option<String>,
}

impl Show {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let tool = one(tools(session, self.sandbox)?, &self.name)?;
        if session.json {
            return session.print_json(&tool);
        }
        session.print(&text(&tool))
    }
}

fn text(tool: &ToolInfo) -> String {
    let mut lines = vec![format!("{} ({})", tool.name, marks(tool)), String::new()];
    let about = tool.description.lines();
    lines.extend(about.flat_map(|line| terminal::wrapped(&plain(line), terminal::width(), "")));
    lines.push(String::new());
    lines.push(format!("input: {}", pretty(&tool.input)));
    lines.extend(tool.output.as_ref().map(|output| format!("output: {}", pretty(output))));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `program, idempotent, at most 1 minute`.
fn marks(tool: &ToolInfo) -> String {
    let flags = [
        (tool.read_only, "changes nothing"),
        (tool.destructive, "may take something away"),
        (tool.idempotent, "idempotent"),
    ];
    let mut words = vec![tool.kind.clone()];
    words.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
    words.push(format!("at most {}", format_duration_ms(tool.time_ms)));
    words.join(", ")
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
