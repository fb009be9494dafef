//! From an answer's JSON to the reply that the engine gave.
//!
//! A reply is told by its shape, and shapes of two verbs can be alike; so it
//! is read as what the action asked for, never as whatever fits first.

use fractal::model::{Error, IndexVerb, KeyVerb, SkunkInfo, SkunkVerb, VolumeVerb};
use fractal::{Action, Reply};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads the reply to this action.
pub fn reply(action: &Action, body: &[u8]) -> Result<Reply, Error> {
    match action {
        Action::Run(_) => read(body).map(Reply::Run),
        Action::Fork { .. } | Action::Rollback { .. } | Action::Import { .. } => {
            read(body).map(Reply::Sandbox)
        }
        Action::Snapshot { .. } => read(body).map(Reply::Snapshot),
        Action::Diff { .. } => read(body).map(Reply::Diff),
        Action::List => read(body).map(Reply::List),
        Action::Show { .. } => read(body).map(Reply::Show),
        Action::Log { .. } => read(body).map(Reply::Log),
        Action::Drop { .. } | Action::Volume(VolumeVerb::Rm { .. }) => {
            read(body).map(|Done { dropped }| Reply::Done { dropped })
        }
        Action::Copy { .. } | Action::Export { .. } => read(body).map(Reply::Archive),
        Action::Volume(VolumeVerb::List) => {
            read(body).map(|Volumes { volumes }| Reply::Volumes { volumes })
        }
        Action::Volume(_) => read(body).map(Reply::Volume),
        Action::Gc { .. } => read(body).map(Reply::Gc),
        Action::Try(_) | Action::Compare { .. } => read(body).map(Reply::Try),
        Action::Promote(_) | Action::Update { .. } | Action::Undo { .. } => {
            read(body).map(Reply::Promote)
        }
        Action::Verify { .. } => read(body).map(Reply::Verify),
        Action::Guard(_) => read(body).map(Reply::Guard),
        Action::Approve(_) | Action::Reject(_) => read(body).map(Reply::Vote),
        Action::Stages => read(body).map(Reply::Stages),
        Action::Key(verb) => key(verb, body),
        Action::Audit { .. } => read(body).map(Reply::Audit),
        Action::AuditVerify { .. } => read(body).map(Reply::AuditVerify),
        Action::Tool(_) => read(body).map(Reply::Tool),
        Action::Calls(_) => read(body).map(|Calls { results }| Reply::Calls { results }),
        Action::Tools { .. } => read(body).map(Reply::Tools),
        Action::Note(_) => read(body).map(Reply::Note),
        Action::Find(_) => read(body).map(Reply::Find),
        Action::Graph(_) => read(body).map(Reply::Graph),
        Action::Learned { .. } => read(body).map(Reply::Learned),
        Action::Skunk(verb) => skunk(verb, body),
        Action::Index(IndexVerb::Verify | IndexVerb::Lint) => read(body).map(Reply::Lint),
        Action::Index(_) => read(body).map(Reply::Index),
    }
}

fn skunk(verb: &SkunkVerb, body: &[u8]) -> Result<Reply, Error> {
    match verb {
        SkunkVerb::List { .. } => read(body).map(|Skunks { skunks }| Reply::Skunks { skunks }),
        SkunkVerb::Extract(_) => read(body).map(Reply::Extract),
        _ => read(body).map(Reply::Skunk),
    }
}

fn key(verb: &KeyVerb, body: &[u8]) -> Result<Reply, Error> {
    match verb {
        KeyVerb::Create { .. } | KeyVerb::Rotate { .. } => read(body).map(Reply::KeyMade),
        KeyVerb::List => read(body).map(|Keys { keys }| Reply::Keys { keys }),
        KeyVerb::Show { .. } | KeyVerb::Revoke { .. } => read(body).map(Reply::Key),
        KeyVerb::Roles => read(body).map(|Roles { roles }| Reply::Roles { roles }),
    }
}

/// Reads the error of a refusal.
pub fn error(body: &[u8]) -> Error {
    read(body).map_or_else(|error| error, |Failed { error }| error)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        Error::internal(format!("the server's answer does not read: {error}"))
            .hint("`--no-server` works without it")
    })
}

#[derive(Deserialize)]
struct Failed {
    error: Error,
}

#[derive(Deserialize)]
struct Skunks {
    skunks: Vec<SkunkInfo>,
}

#[derive(Deserialize)]
struct Done {
    dropped: Vec<String>,
}

#[derive(Deserialize)]
struct Volumes {
    volumes: Vec<fractal::model::VolumeInfo>,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<fractal::model::Key>,
}

#[derive(Deserialize)]
struct Roles {
    roles: Vec<fractal::model::Role>,
}

#[derive(Deserialize)]
struct Calls {
    results: Vec<fractal::model::ToolReply>,
}
