//! The graph of what was learned in languages that are drawn.

use crate::GraphReply;
use std::collections::BTreeMap;

impl GraphReply {
    /// The graph in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        let quote = |text: &str| {
            let text: String = text.chars().filter(|c| !c.is_control()).collect();
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        };
        let mut out = String::from("digraph fractal {\n  rankdir=LR;\n");
        for node in &self.nodes {
            let label = format!("{}: {}", node.kind, node.title);
            out += &format!("  {} [label={}];\n", quote(&node.key), quote(&label));
        }
        for edge in &self.edges {
            let (from, to) = (quote(&edge.from), quote(&edge.to));
            out += &format!("  {from} -> {to} [label={}];\n", quote(&edge.kind));
        }
        out + "}\n"
    }

    /// The graph as Mermaid, which many pages draw.
    pub fn to_mermaid(&self) -> String {
        // Its quotes know entities alone, and names are simplest as numbers.
        let quote = |text: &str| {
            let safe = text.chars().filter(|c| !c.is_control()).map(|c| match c {
                c if c.is_alphanumeric() || " .,:;/_+-=()".contains(c) => c.to_string(),
                c => format!("#{};", u32::from(c)),
            });
            format!("\"{}\"", safe.collect::<String>())
        };
        let place: BTreeMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(at, node)| (node.key.as_str(), at)).collect();
        let mut out = String::from("graph LR\n");
        for (at, node) in self.nodes.iter().enumerate() {
            out += &format!("  n{at}[{}]\n", quote(&format!("{}: {}", node.kind, node.title)));
        }
        for edge in &self.edges {
            let (Some(from), Some(to)) =
                (place.get(edge.from.as_str()), place.get(edge.to.as_str()))
            else {
                continue;
            };
            out += &format!("  n{from} -->|{}| n{to}\n", quote(&edge.kind));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraphEdge, GraphNode};

    fn one(title: &str) -> GraphReply {
        let node = |key: &str| GraphNode {
            key: key.to_owned(),
            kind: "insight".to_owned(),
            title: title.to_owned(),
            root: None,
            path: None,
            file: None,
        };
        let edge = GraphEdge { from: "A".into(), kind: "cites".into(), to: "B".into() };
        GraphReply { nodes: vec![node("A"), node("B")], edges: vec![edge], cut: false }
    }

    #[test]
    fn no_title_gets_out_of_its_quotes() {
        let graph = one("x\"]; evil [label=\"\n\\");
        assert!(graph.to_dot().contains(r#""A" [label="insight: x\"]; evil [label=\"\\"];"#));
        let mermaid = graph.to_mermaid();
        assert!(
            mermaid.contains("n0[\"insight: x#34;#93;; evil #91;label=#34;#92;\"]"),
            "{mermaid}"
        );
        assert_eq!(mermaid.lines().count(), 4);
    }
}
