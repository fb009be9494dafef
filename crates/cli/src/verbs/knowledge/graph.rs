use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain};
use fractal::model::{GraphAsk, GraphReply};
use fractal::{Action, Reply};
use std::collections::BTreeMap;

/// Show what stands in relation to what
///
/// Without a record: everything. A record is named by its id or path; files,
/// packages and sandboxes as `file:src/main.rs`, `package:serde`, `sandbox:x`.
///
///   fractal graph 01JD…            what is next to it
///   fractal graph 01JD… --to 01JE… the shortest way between two
///   fractal graph 01JD… --fixes    what fixed failures like this one
///   fractal graph file:src/pool.rs what else touched this file
///   fractal graph --dot | dot -Tsvg > graph.svg
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Graph {
    /// What to look at
    #[arg(value_name = "RECORD")]
    around: Option<String>,
    /// The shortest way from it to this one
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["depth", "fixes"])]
    to: Option<String>,
    /// So many steps around it [default: 1]
    #[arg(short, long, value_name = "STEPS")]
    depth: Option<u32>,
    /// What fixed failures like it
    #[arg(long, conflicts_with = "depth")]
    fixes: bool,
    /// In the language of Graphviz
    #[arg(long, group = "form")]
    dot: bool,
    /// As a Mermaid diagram
    #[arg(long, group = "form")]
    mermaid: bool,
}

impl Graph {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let asked =
            GraphAsk { around: self.around, to: self.to, depth: self.depth, fixes: self.fixes };
        let Reply::Graph(reply) = session.apply(Action::Graph(asked))? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        if reply.cut {
            session.note("there is more than is shown");
        }
        match (self.dot, self.mermaid) {
            (true, _) => session.print(&reply.to_dot()),
            (_, true) => session.print(&reply.to_mermaid()),
            _ => tell(session, &reply),
        }
    }
}

/// One line per relation, with titles; lone records as they are.
fn tell(session: &Session, reply: &GraphReply) -> Result<u8, Failure> {
    let names: BTreeMap<&str, String> = reply
        .nodes
        .iter()
        .map(|node| (node.key.as_str(), plain(&format!("{}: {}", node.kind, node.title))))
        .collect();
    let name = |key: &str| names.get(key).cloned().unwrap_or_else(|| plain(key));
    let mut rows: Vec<Vec<String>> = reply
        .edges
        .iter()
        .map(|edge| vec![name(&edge.from), plain(&edge.kind), name(&edge.to)])
        .collect();
    let is_alone = |key: &str| !reply.edges.iter().any(|edge| edge.from == key || edge.to == key);
    rows.extend(
        reply.nodes.iter().filter(|node| is_alone(&node.key)).map(|node| vec![name(&node.key)]),
    );
    if reply.edges.is_empty() {
        session.note("no relations");
    }
    session.print(&columns(&rows))
}
