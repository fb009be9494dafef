//! Servers that answer in place of what is embedded, where the user has some.
//!
//! They are copies that are brought in step before they are asked. One that is
//! down, or not in step yet, is not asked: what is embedded answers everything,
//! and the reply says so.

use super::{failed, view_name};
use crate::{Caller, Engine};
use fractal_index::Index;
use fractal_index::embed::Embedder;
use fractal_index::servers::neo4j::{self, Neo4j};
use fractal_index::servers::qdrant::{self, Qdrant};
use fractal_index::servers::{Follower, Pace};
use fractal_model::{Code, Error, Result};
use std::fs;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

/// Who asks waits so long for a server to be brought in step.
const PACE: Pace = Pace { batch: 1000, budget: Duration::from_secs(2) };

impl Engine {
    /// What this view of the records is called on servers that others use, too:
    /// no two state directories have the same id.
    fn place_on_servers(&self, caller: &Caller) -> Result<String> {
        let path = self.home().join("keys/place");
        let cannot = |error: std::io::Error| {
            Error::internal(format!("cannot use {}: {error}", path.display()))
        };
        let id = match fs::read_to_string(&path) {
            Ok(id) => id,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(self.home().join("keys")).map_err(cannot)?;
                match fs::File::create_new(&path) {
                    Ok(mut file) => {
                        let id = fractal_store::new_id().to_string();
                        file.write_all(id.as_bytes()).map_err(cannot)?;
                        id
                    }
                    // Somebody else was faster.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        fs::read_to_string(&path).map_err(cannot)?
                    }
                    Err(error) => return Err(cannot(error)),
                }
            }
            Err(error) => return Err(cannot(error)),
        };
        match id.trim() {
            // Whoever makes it has not written it yet.
            "" => Err(Error::new(Code::Busy, "the place on servers is being made").hint("again")),
            id => Ok(format!("{id}-{}", view_name(caller))),
        }
    }

    pub(crate) fn graph_server(&self, caller: &Caller) -> Option<Result<Neo4j>> {
        let asked = caller.config.index_servers();
        let password = asked.graph_password_variable.as_deref();
        let settings = neo4j::Settings {
            url: asked.graph?,
            user: asked.graph_user.unwrap_or_else(|| "neo4j".to_owned()),
            password: password.and_then(|name| caller.variable(name)).unwrap_or_default(),
            database: asked.graph_database,
            place: match self.place_on_servers(caller) {
                Ok(place) => place,
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Neo4j::new(settings).map_err(failed))
    }

    pub(crate) fn vector_server(
        &self,
        caller: &Caller,
        model: &dyn Embedder,
    ) -> Option<Result<Qdrant>> {
        let asked = caller.config.index_servers();
        let key = asked.vectors_key_variable.as_deref();
        let settings = qdrant::Settings {
            url: asked.vectors?,
            api_key: key.and_then(|name| caller.variable(name)),
            place: match self.place_on_servers(caller) {
                Ok(place) => place,
                Err(error) => return Some(Err(error)),
            },
            model: model.name().to_owned(),
            dimensions: model.dimensions(),
        };
        Some(Qdrant::new(settings).map_err(failed))
    }

    /// Has servers answer that are in step; of the others it is said why not.
    pub(crate) fn ask_servers(
        &self,
        caller: &Caller,
        index: &mut Index,
        model: Option<&Arc<dyn Embedder>>,
        without: &mut Vec<String>,
    ) {
        match self.graph_server(caller) {
            None => {}
            Some(Err(error)) => without.push(format!("graph server: {}", error.message)),
            Some(Ok(server)) => match in_step(index, &server) {
                Ok(()) => index.related_by(Arc::new(server)),
                Err(why) => without.push(format!("graph server: {why}")),
            },
        }
        let Some(model) = model else { return };
        match self.vector_server(caller, model.as_ref()) {
            None => {}
            Some(Err(error)) => without.push(format!("vector server: {}", error.message)),
            Some(Ok(server)) => {
                let vectors = |num: u64| index.vectors_of(model.as_ref(), num);
                match in_step(index, &server.fed(&vectors)) {
                    Ok(()) => index.near_by(Arc::new(server)),
                    Err(why) => without.push(format!("vector server: {why}")),
                }
            }
        }
    }

    /// How far behind each server is, and what differs where that is asked for.
    pub(crate) fn tell_servers(
        &self,
        caller: &Caller,
        index: &Index,
        model: Option<&Arc<dyn Embedder>>,
        work: &dyn Fn(&Index, &dyn Follower) -> String,
    ) -> Vec<String> {
        let mut told = Vec::new();
        match self.graph_server(caller) {
            None => {}
            Some(Err(error)) => told.push(format!("graph server: {}", error.message)),
            Some(Ok(server)) => told.push(work(index, &server)),
        }
        let model = model.map(|model| (model, self.vector_server(caller, model.as_ref())));
        match model {
            None | Some((_, None)) => {}
            Some((_, Some(Err(error)))) => told.push(format!("vector server: {}", error.message)),
            Some((model, Some(Ok(server)))) => {
                let vectors = |num: u64| index.vectors_of(model.as_ref(), num);
                told.push(work(index, &server.fed(&vectors)));
            }
        }
        told
    }
}

fn in_step(index: &Index, server: &dyn Follower) -> std::result::Result<(), String> {
    match index.follow(server, PACE, &mut |_, _| ()) {
        Ok(followed) if followed.lag == 0 => Ok(()),
        Ok(followed) => Err(format!("{} changes behind, asked here instead", followed.lag)),
        Err(error) => Err(error.to_string()),
    }
}

/// For `index status`.
pub(crate) fn lag(index: &Index, server: &dyn Follower) -> String {
    match index.lag(server) {
        Ok(0) => format!("{}: in step", server.name()),
        Ok(lag) => format!("{}: {lag} changes behind", server.name()),
        Err(error) => error.to_string(),
    }
}

/// For `index rebuild`: everything anew.
pub(crate) fn afresh(index: &Index, server: &dyn Follower) -> String {
    let pace = Pace { budget: Duration::MAX, ..PACE };
    let followed = index.unfollow(server).and_then(|()| index.follow(server, pace, &mut |_, _| ()));
    match followed {
        Ok(followed) => format!("{}: {} records sent", server.name(), followed.sent),
        Err(error) => error.to_string(),
    }
}

/// For `index verify`: what differs.
pub(crate) fn compared(index: &Index, server: &dyn Follower) -> String {
    match index.verify_server(server) {
        Ok(verified) if verified.lag == 0 && verified.differs.is_empty() => String::new(),
        Ok(verified) => {
            let differs = verified.differs.into_iter().take(5).collect::<Vec<_>>().join("; ");
            format!("{}: {} changes behind; {differs}", server.name(), verified.lag)
        }
        Err(error) => error.to_string(),
    }
}
