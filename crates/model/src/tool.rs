//! Tools as data: what is called, and what comes back.
//!
//! A tool is a named operation with an input schema. How it runs is the
//! engine's affair; every surface speaks of it in these words.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request to use one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The tool's name.
    pub tool: String,
    /// What it is given; the tool's input schema says what may stand here.
    #[serde(default = "empty")]
    pub input: Value,
    /// The sandbox it works in, where the input does not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Time for one try; never more than the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Several of them at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCalls {
    /// The calls; the answers have the same order.
    pub calls: Vec<ToolCall>,
    /// How many run at once; as many as there are cores by default.
    #[serde(default)]
    pub jobs: Option<u32>,
    /// How often a call of an idempotent tool is tried at most.
    #[serde(default)]
    pub tries: Option<u32>,
}

/// How one call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolReply {
    /// The tool.
    pub tool: String,
    /// The sandbox it worked in, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// How often it was tried.
    pub tries: u32,
    /// From the first try to the answer.
    pub wall_ms: u64,
    /// Whether it is a verb, a function or a program, where it exists. For
    /// whoever counts calls; the answer does not tell it.
    #[serde(skip)]
    pub kind: Option<&'static str>,
    /// What the tool answered, or why it did not.
    #[serde(flatten)]
    pub answer: ToolAnswer,
}

/// `{"output": …}` or `{"error": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ToolAnswer {
    /// What it answered, as its output schema says.
    Output(Value),
    /// Why it did not.
    Error(Error),
}

impl ToolReply {
    /// What the tool answered, or why it did not.
    pub fn result(self) -> Result<Value> {
        match self.answer {
            ToolAnswer::Output(value) => Ok(value),
            ToolAnswer::Error(error) => Err(error),
        }
    }

    /// The error, if it is one.
    pub fn error(&self) -> Option<&Error> {
        match &self.answer {
            ToolAnswer::Output(_) => None,
            ToolAnswer::Error(error) => Some(error),
        }
    }
}

/// One tool as it is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolInfo {
    /// Its name.
    pub name: String,
    /// What it does, when to use it and what comes back.
    pub description: String,
    /// `verb`, `function`, `program` or `mcp`.
    pub kind: String,
    /// JSON Schema of what it is given.
    pub input: Value,
    /// JSON Schema of what it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Whether doing it twice is as good as once.
    pub idempotent: bool,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether it may take something away for good.
    pub destructive: bool,
    /// Time for one try.
    pub time_ms: u64,
    /// The directory of its description, for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// The answer to `tools`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolsReply {
    /// By name.
    pub tools: Vec<ToolInfo>,
    /// Descriptions that could not be read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<Error>,
}

/// Refuses what is no name of a tool.
pub fn check_tool_name(name: &str) -> Result<()> {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if starts_well && name.len() <= 64 && bytes.all(inner) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is no name for a tool", name.escape_debug())).hint(
        "a name is a small letter, then up to 63 small letters, digits, `-` and `_`, as in `word-count`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;
    use serde_json::json;

    #[test]
    fn an_answer_is_an_output_or_an_error_and_reads_back() {
        let reply = |answer| ToolReply {
            tool: "t".into(),
            sandbox: None,
            tries: 1,
            wall_ms: 2,
            kind: None,
            answer,
        };
        let check = |answer, expect: Value| {
            let reply = Reply::Tool(Box::new(reply(answer)));
            let text = serde_json::to_value(&reply).expect("replies are JSON");
            assert_eq!(text, expect);
            assert_eq!(serde_json::from_value::<Reply>(text).expect("it reads back"), reply);
        };
        check(
            ToolAnswer::Output(json!({ "sum": 3 })),
            json!({ "tool": "t", "tries": 1, "wall_ms": 2, "output": { "sum": 3 } }),
        );
        check(
            ToolAnswer::Error(Error::invalid("no")),
            json!({ "tool": "t", "tries": 1, "wall_ms": 2, "error": { "code": "invalid", "message": "no" } }),
        );
    }

    #[test]
    fn names_are_small_and_plain() {
        for good in ["a", "word-count", "a_1"] {
            assert!(check_tool_name(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "-a", "a b", "ü", "a/b", "..", &"a".repeat(65)] {
            assert!(check_tool_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_call_without_input_has_an_empty_one() {
        let call: ToolCall = serde_json::from_value(json!({ "tool": "t" })).expect("it reads");
        assert_eq!(call.input, json!({}));
        assert!(serde_json::from_value::<ToolCall>(json!({ "tool": "t", "inptu": 1 })).is_err());
    }
}
