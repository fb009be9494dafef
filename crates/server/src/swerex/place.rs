//! Which sandbox a request is for, and making it.

use crate::agents::Slot;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use fractal::model::{Id, Name, Run, Verb, World};
use fractal::{Action, Caller, Code, Engine, Error};

/// Between the name of a sandbox and that of the template it is made from.
const TEMPLATE: char = '@';
/// How the names of sandboxes begin that belong to keys.
const OF_KEY: &str = "swerex-";

/// A sandbox by name, as one asker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who asks; names are theirs.
    pub of: String,
    pub name: String,
    template: Option<String>,
    /// It belongs to the key and is no longer than that works in it.
    pub is_of_key: bool,
}

impl Place {
    /// What the path names (`NAME` or `NAME@TEMPLATE`), or what belongs to the
    /// key.
    pub fn of(asker: &Asker, named: Option<&String>) -> Result<Place, Error> {
        let of = asker.id();
        let Some(text) = named else {
            let name = format!("{OF_KEY}{}", of.to_ascii_lowercase());
            return Ok(Place { of, name, template: None, is_of_key: true });
        };
        let (name, template) = match text.split_once(TEMPLATE) {
            Some((name, template)) => (name, Some(template.to_owned())),
            None => (text.as_str(), None),
        };
        Name::parse(name)?;
        Ok(Place { of, name: name.to_owned(), template, is_of_key: false })
    }

    /// The sandbox, if there is one that whoever asks may run in.
    pub async fn find(&self, state: &Shared, asker: &Asker) -> Result<Option<Id>, Failure> {
        let name = self.name.clone();
        let job = move |engine: &Engine, caller: &Caller| engine.reached(caller, Verb::Run, &name);
        work::blocking(state, asker, Verb::Show, job).await
    }

    /// A new one. Somebody may have made it meanwhile: then it is that one.
    pub async fn make(&self, state: &Shared, asker: &Asker) -> Result<Id, Failure> {
        let run = Run {
            command: vec!["true".to_owned()],
            name: Some(self.name.clone()),
            template: self.template.clone(),
            world: Some(World::Native),
            ..Run::default()
        };
        let job = move |engine: &Engine, caller: &Caller| match engine.make(caller, &run) {
            Err(error) if error.code == Code::Exists => {
                let found = engine.reached(caller, Verb::Run, run.name.as_deref().unwrap_or(""))?;
                found.ok_or(error)
            }
            made => made.map(|made| made.id),
        };
        work::blocking(state, asker, Need::making(Verb::Fork), job).await
    }

    /// Drops it; one that is gone already is what was wanted.
    pub async fn drop_sandbox(&self, state: &Shared, asker: &Asker, id: Id) -> Result<(), Failure> {
        let action = Action::Drop { sandboxes: vec![id.to_string()], force: true };
        match work::apply(state, asker, action).await {
            Err(failure) if failure.error().code != Code::NotFound => Err(failure),
            _ => Ok(()),
        }
    }
}

/// Where the program works that is for this asker alone: another one may be
/// allowed less.
pub fn slot(asker: &Asker, sandbox: Id) -> Slot {
    Slot { sandbox, key: asker.key.as_ref().map(|key| key.id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_path_names_a_sandbox_and_a_template() {
        let asker = Asker::new(None, PathBuf::from("/"));
        let of = |text: &str| Place::of(&asker, Some(&text.to_owned()));
        let place = of("task-1@agent").expect("it reads");
        assert_eq!((place.name.as_str(), place.template.as_deref()), ("task-1", Some("agent")));
        assert!(!place.is_of_key);
        assert!(of("../x").is_err() && of("").is_err() && of("@agent").is_err());
        let own = Place::of(&asker, None).expect("it reads");
        assert_eq!((own.name.as_str(), own.is_of_key), ("swerex-owner", true));
    }
}
