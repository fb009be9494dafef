//! Notes that were written and questions that were asked, as verbs and as
//! tools of agents.

use super::family::{Family, Histogram};
use super::{Counts, bump, lock};
use fractal::model::{ToolAnswer, ToolReply};
use fractal::{Action, Code};
use std::time::Duration;

/// What the built-in tools are called.
const NOTE: &str = "note";
const RECALL: &str = "recall";

/// What is counted here.
#[derive(Clone, Copy)]
pub enum Asked {
    Note,
    Question,
}

impl Asked {
    /// What an action asks for, if that is counted here.
    pub fn by(action: &Action) -> Option<Asked> {
        match action {
            Action::Note(_) => Some(Asked::Note),
            Action::Find(_) => Some(Asked::Question),
            _ => None,
        }
    }
}

#[derive(Default)]
pub struct Knowledge {
    notes: Counts<&'static str>,
    questions: Counts<&'static str>,
    find_time: Histogram,
}

impl Knowledge {
    pub fn noted(&self, error: Option<Code>) {
        bump(&self.notes, error.map_or("ok", Code::name));
    }

    /// A question was answered by so many records.
    pub fn answered(&self, hits: usize, took: Duration) {
        bump(&self.questions, if hits == 0 { "nothing" } else { "found" });
        self.find_time.note(took);
    }

    pub fn refused(&self, asked: Asked, code: Code) {
        match asked {
            Asked::Note => self.noted(Some(code)),
            Asked::Question => bump(&self.questions, code.name()),
        }
    }

    /// The same through a tool. Its name says which only where the tool is
    /// one of ours.
    pub fn tool(&self, call: &ToolReply) {
        let error = call.error().map(|error| error.code);
        match (call.tool.as_str(), call.kind, error) {
            (NOTE, Some("verb"), error) => self.noted(error),
            (RECALL, Some("verb"), Some(code)) => self.refused(Asked::Question, code),
            (RECALL, Some("verb"), None) => {
                let hits = match &call.answer {
                    ToolAnswer::Output(output) => output["hits"].as_array().map_or(0, Vec::len),
                    ToolAnswer::Error(_) => 0,
                };
                self.answered(hits, Duration::from_millis(call.wall_ms));
            }
            _ => {}
        }
    }

    pub fn families(&self) -> [Family; 3] {
        let by = |name, about, counts: &Counts<&'static str>| {
            let counts = lock(counts);
            Family::counters(name, about, "outcome", counts.iter().map(|(of, n)| (*of, *n)))
        };
        [
            by("fractal_notes_total", "Notes written, or refused.", &self.notes),
            by("fractal_questions_total", "Questions to what was learned.", &self.questions),
            self.find_time.family("fractal_find_seconds", "Time until a question was answered."),
        ]
    }
}
