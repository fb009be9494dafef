//! What these clients ask for and is not had here: refused in words that they
//! show, so that nobody looks for a mistake of their own.

use super::Refused;
use crate::state::Shared;
use axum::Router;
use axum::routing::{MethodRouter, any};
use fractal::{Code, Error};

const VOLUMES: [&str; 2] =
    ["volumes are not mounted by this door", "name a template that mounts them"];
const SECRETS: [&str; 2] =
    ["secrets are not kept by this door", "give what a sandbox needs as its variables"];
const TEMPLATES: [&str; 2] = [
    "templates are not built by this door",
    "write them in fractal.toml, or start from a snapshot",
];

/// Where such questions go, and why they are refused.
const ALL: [(&str, [&str; 2]); 15] = [
    ("/volumes", VOLUMES),
    ("/volumes/{*rest}", VOLUMES),
    ("/volumecontent/{*rest}", VOLUMES),
    ("/secrets", SECRETS),
    ("/secrets/{*rest}", SECRETS),
    ("/templates", TEMPLATES),
    ("/templates/tags", TEMPLATES),
    ("/templates/{template}/tags", TEMPLATES),
    ("/templates/{template}/tags/{*rest}", TEMPLATES),
    ("/templates/{template}/builds/{*rest}", TEMPLATES),
    ("/templates/{template}/files/{*rest}", TEMPLATES),
    ("/v2/templates", TEMPLATES),
    ("/v2/templates/{*rest}", TEMPLATES),
    ("/v3/templates", TEMPLATES),
    ("/v3/templates/{*rest}", TEMPLATES),
];

pub fn routes() -> Router<Shared> {
    ALL.into_iter().fold(Router::new(), |router, (path, why)| router.route(path, refuse(why)))
}

fn refuse([why, hint]: [&'static str; 2]) -> MethodRouter<Shared> {
    any(move || async move { Refused::from(Error::new(Code::Unsupported, why).hint(hint)) })
}
