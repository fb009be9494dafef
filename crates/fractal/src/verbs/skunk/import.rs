//! `skunk import`: an experiment of a directory that exists.
//!
//! A directory that already lies where experiments do is adopted where it is;
//! any other is copied, and stays as it was.

use super::new::{cannot, place};
use super::{boxed_away, checked_title, discard, draft, show, write_down};
use crate::knowledge::experiment::{self, Experiment};
use crate::knowledge::{failed, project_of};
use crate::{Caller, Engine};
use fractal_index::bundle::{Bundle, HOME, PROBLEM, SUFFIX, slug};
use fractal_jail::layer::{CopyOptions, Layer, View, copy_out};
use fractal_model::{Code, Error, Result, SandboxPath, SkunkReply};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

/// What makes an environment leaves one of these behind.
const MANIFESTS: [(&str, &str); 4] = [
    ("pyproject.toml", "uv"),
    ("Cargo.toml", "cargo"),
    ("package.json", "npm"),
    ("requirements.txt", "pip"),
];

pub fn import(
    engine: &Engine,
    caller: &Caller,
    from: &str,
    title: Option<&str>,
) -> Result<SkunkReply> {
    let source = caller.directory.join(from);
    let source = source.canonicalize().map_err(|error| cannot("find", &source, &error))?;
    if !source.is_dir() {
        return Err(Error::invalid(format!("{} is no directory", source.display())));
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let readable = name.trim_end_matches(SUFFIX).replace(['-', '_'], " ");
    let title = checked_title(title.unwrap_or(&readable))?;
    let project = project_of(&caller.directory);
    let home = project.join(HOME);
    // The project itself may have been named by another path.
    let in_place = source.parent().is_some_and(|dir| {
        home.canonicalize().is_ok_and(|home| dir == home)
            || Bundle::containing(dir).is_some_and(|it| it.dir() == dir)
    });
    if project.canonicalize().is_ok_and(|project| project.starts_with(&source)) {
        return Err(Error::invalid("the project cannot be an experiment of itself")
            .hint("name a directory within it, or outside of it"));
    }
    let problem = draft(caller, title, &[], with(&source), "");
    let bundle = match in_place && name.ends_with(SUFFIX) {
        true => Bundle::adopt(&source, &problem).map_err(failed)?,
        false => copied(&source, &home, title, &problem)?,
    };
    let _ = bundle.refresh();
    let experiment = Experiment::at(caller, bundle);
    write_down(engine, caller, "import", &experiment)?;
    show(engine, caller, &experiment::named(caller, &experiment.name)?)
}

fn with(source: &Path) -> &'static str {
    let has = |(file, _): &&(&str, &str)| source.join(file).is_file();
    MANIFESTS.iter().find(has).map_or(super::tools::EMPTY, |(_, tool)| tool)
}

fn copied(
    source: &Path,
    home: &Path,
    title: &str,
    problem: &fractal_index::record::Draft,
) -> Result<Bundle> {
    let dir = home.join(format!("{}{SUFFIX}", slug(title)));
    if dir.symlink_metadata().is_ok() {
        return Err(Error::new(Code::Exists, format!("there is already {}", dir.display()))
            .hint("give it another title: `--title TITLE`"));
    }
    fs::create_dir_all(home).map_err(|error| cannot("make", home, &error))?;
    let beside = boxed_away(home);
    let done = copy(source, home, &beside).and_then(|()| {
        // It may bring a problem along; that one stays.
        match beside.join(PROBLEM).symlink_metadata().is_ok() {
            true => Ok(()),
            false => {
                Bundle::of_notes(&beside).and_then(|it| it.add_problem(problem)).map_err(failed)
            }
        }
    });
    let done = done.and_then(|()| place(&beside, &dir));
    if let Err(error) = done {
        discard(&beside);
        return Err(error);
    }
    Bundle::open(&dir).map_err(failed)
}

/// Copies without following a link inside, as a layer is copied.
fn copy(source: &Path, home: &Path, beside: &Path) -> Result<()> {
    let parent = source.parent().unwrap_or(Path::new("/"));
    let name = source.file_name().unwrap_or_default();
    let view = View { host: Some(Layer::open(parent)?), ..View::default() };
    let path = SandboxPath::root().join(name.as_encoded_bytes())?;
    let to = fs::File::open(home).map_err(|error| cannot("open", home, &error))?;
    let options = CopyOptions { keep_owner: true, ..CopyOptions::default() };
    let target = beside.file_name().unwrap_or_default();
    let copied = copy_out(&view, &path, to.as_fd(), target, &options)?;
    if copied.truncated || copied.unreadable > 0 {
        return Err(Error::new(
            Code::Limit,
            format!("not all of {} can be copied", source.display()),
        )
        .hint("some of it is unreadable, too deep or too large"));
    }
    Ok(())
}
