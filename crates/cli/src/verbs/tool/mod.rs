mod call;
mod list;
mod new;
mod show;

use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::model::{ToolInfo, ToolsReply};
use fractal::{Action, Error, Reply};

/// List, show, call and make tools
///
/// A tool is a named operation with an input schema: a verb of fractal; a
/// program of your own that is described by `tools/NAME/tool.toml` beside
/// fractal.toml (or beside your own settings) and runs inside a sandbox, with
/// JSON on its input and output; or a tool of another MCP server, which
/// `[mcp.NAME]` in fractal.toml names and which runs inside a sandbox, too.
/// Agents are offered the same ones.
#[derive(clap::Args)]
pub struct Tool {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    #[command(visible_alias = "ls")]
    List(list::List),
    Show(show::Show),
    Call(call::Call),
    New(new::New),
}

impl Tool {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        match self.verb {
            Verb::List(args) => args.call(session),
            Verb::Show(args) => args.call(session),
            Verb::Call(args) => args.call(session),
            Verb::New(args) => args.call(session),
        }
    }
}

/// What may be used here; says which descriptions are broken.
fn tools(session: &Session, sandbox: Option<String>) -> Result<ToolsReply, Failure> {
    let Reply::Tools(reply) = session.apply(Action::Tools { sandbox })? else {
        return Err(unexpected());
    };
    for error in &reply.broken {
        session.note(&format!("warning: not used: {}", error.message));
    }
    Ok(reply)
}

fn one(tools: ToolsReply, name: &str) -> Result<ToolInfo, Error> {
    let file = format!("/{name}/tool.toml");
    let broken = tools.broken.into_iter().find(|error| error.message.contains(&file));
    tools.tools.into_iter().find(|tool| tool.name == name).ok_or_else(|| {
        broken.unwrap_or_else(|| {
            Error::not_found(format!("there is no tool `{}`", name.escape_debug()))
                .hint("`fractal tool list` shows what there is")
        })
    })
}
