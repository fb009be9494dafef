//! What a view changed in a mount, written back to where it came from.
//!
//! A view never writes through: forks would see each other. Its changes stay
//! its own until somebody writes them back, and a source that somebody else
//! changed meanwhile refuses.

use crate::change;
use crate::content::Content;
use crate::entry::{Dir, Entry};
use crate::error::{FsError, Kind, shown};
use crate::source::{After, Ask, Before, Edit, Source};
use crate::tree::Tree;
use crate::view::Vfs;
use crate::walk::{Reached, reached};
use fractal_model::{Change, SandboxPath};
use std::sync::Arc;

impl Vfs {
    /// Writes what was changed in a mount back to its source, and shows the
    /// source anew. Returns what was written, with paths below the mount.
    ///
    /// Each entry is checked against what the view was made from before it is
    /// written. An error in the middle leaves what came before it written,
    /// and the view as it was: calling it again goes on.
    pub fn write_back(&self, at: &SandboxPath) -> Result<Vec<Change>, FsError> {
        let path = shown(at);
        let (old, new, source) = self.reading(&path, |state, answers| {
            let (mount, was) = state.mounted(at)?;
            let is = state.top.peek(at.relative(), answers)?;
            let (Entry::Dir(was), Some(Entry::Dir(is))) = (was, is) else {
                return Err(Kind::NotADirectory.into());
            };
            let tree = |root: Arc<Dir>| Tree { root, ..state.top.clone() };
            Ok((tree(was), tree(is), mount.source.clone()))
        })?;
        let changes = self.asking(&path, |answers| change::between(&old, &new, answers))?;
        let edits = self.asking(&path, |answers| {
            let mut edits = Vec::new();
            for change in &changes {
                let place = change.path.relative();
                let was = old.peek(place, answers)?;
                let is = new.peek(place, answers)?;
                let before = before(was.as_ref().map(|entry| reached(&old, entry)));
                let after = match is.as_ref().map(|entry| reached(&new, entry)) {
                    None => After::Nothing,
                    Some(Reached::Dir(dir)) => After::Dir(dir.meta.mode),
                    Some(Reached::Link(link)) => After::Link(link.target.to_vec()),
                    Some(Reached::File(file)) => {
                        let content = answers.content(&file.content)?.whole()?;
                        After::File(content, file.meta.mode, file.meta.modified_ns)
                    }
                };
                edits.push((change.path.clone(), Edit { before, after }));
            }
            Ok(edits)
        })?;
        for (place, edit) in in_order(edits) {
            self.write_one(&*source, at, &place, &edit)?;
        }
        self.show_anew(at)?;
        Ok(changes)
    }

    fn write_one(
        &self,
        source: &dyn Source,
        mounted: &SandboxPath,
        at: &SandboxPath,
        edit: &Edit,
    ) -> Result<(), FsError> {
        let path = at.moved(&SandboxPath::root(), mounted).unwrap_or_else(|| mounted.clone());
        let who = self.who();
        let ask = Ask { view: self, path: &path, who: &who, stamp: None, frozen_ns: None };
        source.write(at, edit, &ask).map_err(|fault| fault.at(&shown(&path)))
    }
}

/// What goes away goes first, the deepest before what holds it; what comes
/// needs what holds it first.
fn in_order(edits: Vec<(SandboxPath, Edit)>) -> Vec<(SandboxPath, Edit)> {
    let (gone, come): (Vec<_>, Vec<_>) =
        edits.into_iter().partition(|(_, edit)| edit.after == After::Nothing);
    gone.into_iter().rev().chain(come).collect()
}

fn before(was: Option<Reached>) -> Before {
    match was {
        None => Before::Nothing,
        Some(Reached::Dir(_)) => Before::Dir,
        Some(Reached::Link(link)) => Before::Link(link.target.to_vec()),
        Some(Reached::File(file)) => Before::File(match &file.content {
            Content::Lazy(lazy) => lazy.origin.stamp,
            _ => None,
        }),
    }
}
