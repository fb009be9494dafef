//! What most tests of sources begin with.

use fractal_fs::{Access, Freshness, FsError, Kind, Mount, Source, Vfs};
use fractal_model::SandboxPath;
use std::sync::Arc;

pub fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

/// A view with a source at `/m`.
pub fn mounted(source: Arc<dyn Source>, freshness: Freshness) -> Vfs {
    let view = Vfs::default();
    mount(&view, "/m", source, Access::Writable, freshness);
    view
}

pub fn mount(view: &Vfs, at: &str, source: Arc<dyn Source>, access: Access, freshness: Freshness) {
    view.mount(Mount { path: path(at), source, access, freshness }).unwrap();
}

pub fn text(view: &Vfs, path: &str) -> String {
    String::from_utf8(view.read(path).unwrap().to_vec()).unwrap()
}

pub fn kind<T: std::fmt::Debug>(done: Result<T, FsError>) -> Kind {
    done.expect_err("an error").kind
}

/// Every entry of a view below a path, as lines that tell all about it but
/// inodes and times of change.
#[cfg(all(unix, feature = "archive"))]
pub fn all(view: &Vfs, below: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for listed in view.list(below).unwrap() {
        let path = [below, b"/", listed.name.bytes()].concat();
        let stat = view.lstat(&path).unwrap();
        let what = match stat.kind {
            fractal_model::EntryKind::File if stat.size > 1000 => {
                let mut hasher = std::hash::DefaultHasher::new();
                std::hash::Hasher::write(&mut hasher, &view.read(&path).unwrap());
                format!("{} bytes {:x}", stat.size, std::hash::Hasher::finish(&hasher))
            }
            fractal_model::EntryKind::File => format!("{:?}", view.read(&path).unwrap()),
            fractal_model::EntryKind::Symlink => {
                format!("-> {:?}", String::from_utf8_lossy(&view.read_link(&path).unwrap()))
            }
            _ => String::new(),
        };
        let xattrs: Vec<_> = view.xattrs(&path).unwrap();
        let xattrs: Vec<_> =
            xattrs.iter().map(|name| (name.clone(), view.xattr(&path, name).unwrap())).collect();
        let (shown, meta) = (path.escape_ascii().to_string(), stat.meta);
        lines.push(format!(
            "{shown} {:?} {:o} {}:{} {} x{} {xattrs:?} {what}",
            stat.kind, meta.mode, meta.uid, meta.gid, meta.modified_ns, stat.names
        ));
        if stat.kind == fractal_model::EntryKind::Directory {
            lines.extend(all(view, &path));
        }
    }
    lines
}
