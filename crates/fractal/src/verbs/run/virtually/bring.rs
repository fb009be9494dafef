//! What a real program changed in a child, brought into the tree in memory.

use crate::Engine;
use crate::landing::shown;
use fractal_fs::{NewMeta, Vfs};
use fractal_jail::layer::{Bounds, Entry, View};
use fractal_model::{ChangeKind, Code, EntryKind, Error, Result, SandboxPath};
use fractal_store::SandboxRow;
use std::io::Read;

/// How much of a file is in memory at once on its way.
const PIECE_BYTES: usize = 1 << 20;

/// Makes in `vfs` what differs between a child and what it stands on.
pub(super) fn bring(engine: &Engine, child: &SandboxRow, vfs: &Vfs) -> Result<()> {
    let views = engine.views(child, child.base)?;
    let changes = views.changes(&Bounds::default())?;
    if changes.truncated {
        let message = "the program changed more than can be brought back";
        return Err(Error::new(Code::Limit, message).hint(format!(
            "it is all in a sandbox if you run it there: `fractal run --in {}`",
            child.name
        )));
    }
    let view = views.top();
    // What goes makes room for what comes; the deepest first.
    for change in changes.list.iter().rev() {
        let path = shown(&change.path);
        let turned = change.kind == ChangeKind::Modified
            && vfs.lstat(&path).is_ok_and(|stat| stat.kind != change.entry);
        if change.kind == ChangeKind::Deleted || turned {
            vfs.remove_all(&path)?;
        }
    }
    for change in changes.list.iter().filter(|change| change.kind != ChangeKind::Deleted) {
        if let Some(entry) = view.lookup(&change.path)? {
            make(&view, &change.path, &entry, vfs)?;
        }
    }
    Ok(())
}

fn make(view: &View, at: &SandboxPath, entry: &Entry, vfs: &Vfs) -> Result<()> {
    let path = shown(at);
    match entry.kind {
        EntryKind::Directory if vfs.exists(&path) => {}
        EntryKind::Directory => vfs.make_dir(&path, entry.mode)?,
        EntryKind::Symlink => {
            let _ = vfs.remove_file(&path);
            return Ok(vfs.symlink(&path, entry.target.as_deref().unwrap_or_default())?);
        }
        EntryKind::File => copy(view, at, &path, vfs)?,
        // Pipes and sockets mean nothing without the processes that made them.
        EntryKind::Special => return Ok(()),
    }
    let meta = NewMeta {
        mode: Some(entry.mode & 0o7777),
        uid: Some(entry.uid),
        gid: Some(entry.gid),
        modified_ns: Some(entry.mtime_ns),
    };
    Ok(vfs.set_meta(&path, meta)?)
}

fn copy(view: &View, at: &SandboxPath, path: &[u8], vfs: &Vfs) -> Result<()> {
    let failed = |error| Error::internal(format!("cannot read {at}: {error}"));
    let mut file = view.open_file(at)?;
    let mut piece = vec![0; PIECE_BYTES];
    vfs.write(path, "")?;
    loop {
        let count = file.read(&mut piece).map_err(failed)?;
        if count == 0 {
            return Ok(());
        }
        vfs.append(path, &piece[..count])?;
    }
}
