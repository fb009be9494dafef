//! How what was learned is found: `[index]`.
//!
//! Only the user's own file says so. A project's could send every note of the
//! user to an endpoint of its choice.

use super::{Config, FILE_NAME, Setting, in_file};
use fractal_model::{Error, Result};
use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct IndexFile {
    model: Option<String>,
    text_weight: Option<f64>,
    graph_weight: Option<f64>,
    endpoint: Option<EndpointFile>,
    graph: Option<String>,
    graph_user: Option<String>,
    graph_password_variable: Option<String>,
    graph_database: Option<String>,
    vectors: Option<String>,
    vectors_key_variable: Option<String>,
}

/// Servers that answer in place of what is embedded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexServers {
    /// For relations: `bolt://host:7687`.
    pub graph: Option<String>,
    /// Who asks it; `neo4j` by default.
    pub graph_user: Option<String>,
    /// The variable that holds its password.
    pub graph_password_variable: Option<String>,
    /// Its database, if not its own choice.
    pub graph_database: Option<String>,
    /// For nearness: `http://host:6334`.
    pub vectors: Option<String>,
    /// The variable that holds its key.
    pub vectors_key_variable: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct EndpointFile {
    url: String,
    model: String,
    key_variable: Option<String>,
    dimensions: Option<usize>,
}

/// Where vectors come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelChoice {
    /// The model that was added last, if any.
    Latest,
    /// None: words and relations alone.
    None,
    /// One that was added, by name, or a directory that holds one.
    Named(String),
    /// An endpoint that speaks OpenAI's protocol.
    Endpoint {
        /// What comes before `/embeddings`.
        url: String,
        /// The model as it calls it.
        model: String,
        /// The variable that holds what proves who asks.
        key_variable: Option<String>,
        /// How many numbers a vector has.
        dimensions: Option<usize>,
    },
}

impl Config {
    fn index_file(&self) -> Option<&IndexFile> {
        let users = self.sources.iter().filter(|source| !source.path.ends_with(FILE_NAME));
        users.map(|source| &source.file.index).next()
    }

    /// Where vectors come from.
    pub fn model_choice(&self) -> ModelChoice {
        let Some(file) = self.index_file() else { return ModelChoice::Latest };
        match (&file.endpoint, file.model.as_deref()) {
            (_, Some("none")) => ModelChoice::None,
            (Some(endpoint), None) => ModelChoice::Endpoint {
                url: endpoint.url.clone(),
                model: endpoint.model.clone(),
                key_variable: endpoint.key_variable.clone(),
                dimensions: endpoint.dimensions,
            },
            (_, Some(name)) => ModelChoice::Named(name.to_owned()),
            (None, None) => ModelChoice::Latest,
        }
    }

    /// Servers that answer in place of what is embedded; `sqlite` means none.
    pub fn index_servers(&self) -> IndexServers {
        let Some(file) = self.index_file().cloned() else { return IndexServers::default() };
        let server = |url: Option<String>| url.filter(|url| url != "sqlite");
        IndexServers {
            graph: server(file.graph),
            graph_user: file.graph_user,
            graph_password_variable: file.graph_password_variable,
            graph_database: file.graph_database,
            vectors: server(file.vectors),
            vectors_key_variable: file.vectors_key_variable,
        }
    }

    /// How much each kind of evidence counts.
    pub fn mix(&self) -> fractal_index::Mix {
        let default = fractal_index::Mix::default();
        let file = self.index_file();
        fractal_index::Mix {
            text: file.and_then(|file| file.text_weight).unwrap_or(default.text),
            graph: file.and_then(|file| file.graph_weight).unwrap_or(default.graph),
        }
    }

    pub(super) fn index_settings(&self) -> Vec<Setting> {
        let (mix, model) = (
            self.mix(),
            match self.model_choice() {
                ModelChoice::Latest => "latest".to_owned(),
                ModelChoice::None => "none".to_owned(),
                ModelChoice::Named(name) => name,
                ModelChoice::Endpoint { url, model, .. } => format!("{model} at {url}"),
            },
        );
        let set = |is_set: fn(&IndexFile) -> bool| move |file: &super::File| is_set(&file.index);
        vec![
            self.setting(
                "index.model",
                model,
                set(|file| file.model.is_some() || file.endpoint.is_some()),
            ),
            self.setting(
                "index.graph",
                self.index_servers().graph.map_or_else(|| "sqlite".to_owned(), |url| shown(&url)),
                set(|file| file.graph.is_some()),
            ),
            self.setting(
                "index.vectors",
                self.index_servers().vectors.map_or_else(|| "sqlite".to_owned(), |url| shown(&url)),
                set(|file| file.vectors.is_some()),
            ),
            self.setting(
                "index.text-weight",
                mix.text.to_string(),
                set(|file| file.text_weight.is_some()),
            ),
            self.setting(
                "index.graph-weight",
                mix.graph.to_string(),
                set(|file| file.graph_weight.is_some()),
            ),
        ]
    }
}

/// What no weight can be, and what a project may not say.
pub(super) fn check(path: &std::path::Path, file: &IndexFile) -> Result<()> {
    let is_set = file.model.is_some()
        || file.endpoint.is_some()
        || file.text_weight.is_some()
        || file.graph_weight.is_some()
        || file.graph.is_some()
        || file.vectors.is_some();
    if is_set && path.ends_with(FILE_NAME) {
        let error = Error::invalid("only the user's own settings say how notes are searched")
            .hint("move it to ~/.config/fractal/config.toml");
        return Err(in_file(path, "index", &error));
    }
    for (name, weight) in [("text-weight", file.text_weight), ("graph-weight", file.graph_weight)] {
        if weight.is_some_and(|weight| !(0.0..=1.0).contains(&weight)) {
            let what = format!("index.{name}");
            return Err(in_file(path, &what, &Error::invalid("must be from 0 to 1")));
        }
    }
    Ok(())
}

/// An address without the part in which a password could stand.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}
