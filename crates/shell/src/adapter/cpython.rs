//! CPython as bashkit's makers translate it: bytes, and how to load them. What
//! they mean is the business of [`crate::python`].

pub(crate) use bashkit_cpython_wasm::{STDLIB_ZIP, STDLIB_ZIP_PATH, engine_config, load_module};
