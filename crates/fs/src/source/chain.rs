//! Who is being asked by whom: a source may read the view it serves, and so
//! ask itself. A question that comes up again while it is being answered has
//! no answer, and a row of questions without end has none either.

use super::Source;
use crate::error::{Fault, Kind};
use fractal_model::SandboxPath;
use std::cell::RefCell;
use std::sync::Arc;

/// How many sources may ask each other in a row. Each of them may ask twice
/// for one answer, so that what a row costs doubles with its length.
const LINKS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Read,
    Stat,
}

#[derive(Clone, PartialEq, Eq)]
struct Question {
    source: usize,
    verb: Verb,
    at: SandboxPath,
}

/// The questions that are being answered, the outermost first.
#[derive(Clone, Default)]
pub(crate) struct Chain(Vec<Question>);

thread_local! {
    static NOW: RefCell<Chain> = RefCell::default();
}

/// Takes the question off the chain when it is answered.
pub(crate) struct Asked;

impl Drop for Asked {
    fn drop(&mut self) {
        NOW.with_borrow_mut(|chain| drop(chain.0.pop()));
    }
}

/// Puts a question on this thread's chain, if it can be answered at all.
pub(crate) fn enter(
    source: &Arc<dyn Source>,
    verb: Verb,
    at: &SandboxPath,
) -> Result<Asked, Fault> {
    let source_at = Arc::as_ptr(source).cast::<()>() as usize;
    let question = Question { source: source_at, verb, at: at.clone() };
    NOW.with_borrow_mut(|chain| {
        if chain.0.contains(&question) {
            let reason = format!("the {} asks for {at} to make {at}", source.kind());
            return Err(Fault::because(Kind::Source, reason));
        }
        if chain.0.len() >= LINKS_MAX {
            let reason = format!("{LINKS_MAX} sources ask each other in a row");
            return Err(Fault::because(Kind::Source, reason));
        }
        chain.0.push(question);
        Ok(Asked)
    })
}

/// What this thread is answering, for another thread that goes on with it.
pub(crate) fn current() -> Chain {
    NOW.with_borrow(Chain::clone)
}

/// Goes on with what another thread began.
pub(crate) fn go_on(chain: Chain) {
    NOW.set(chain);
}
