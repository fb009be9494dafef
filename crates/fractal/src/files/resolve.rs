//! From a path as it is typed to the path it means, links followed inside.

use fractal_jail::layer::View;
use fractal_model::{EntryKind, Error, Result, SandboxPath};
use std::collections::VecDeque;

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

/// Follows every link of a path the way a program inside would: `..` stops at
/// the root, and an absolute link starts there. What does not exist is taken
/// as it is written.
pub fn resolve(view: &View, typed: &[u8]) -> Result<SandboxPath> {
    // Refuses what is too long or holds a NUL, before anything is looked up.
    let mut left: VecDeque<Vec<u8>> = parts(typed)?;
    let mut here = SandboxPath::root();
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == b".." {
            here = here.parent().unwrap_or_default();
            continue;
        }
        let next = here.join(&part)?;
        let found = view.lookup(&next)?.filter(|entry| entry.kind == EntryKind::Symlink);
        let Some(target) = found.and_then(|entry| entry.target) else {
            here = next;
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            let text = String::from_utf8_lossy(typed).escape_debug().to_string();
            return Err(Error::invalid(format!("`{text}` leads through too many links")));
        }
        if target.first() == Some(&b'/') {
            here = SandboxPath::root();
        }
        for part in parts(&target)?.into_iter().rev() {
            left.push_front(part);
        }
    }
    Ok(here)
}

fn parts(path: &[u8]) -> Result<VecDeque<Vec<u8>>> {
    const BYTES_MAX: usize = 4096;
    if path.len() > BYTES_MAX || path.contains(&0) {
        return Err(Error::invalid("a path is too long, or holds a zero byte"));
    }
    let parts = path.split(|byte| *byte == b'/');
    Ok(parts.filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fractal_jail::layer::Layer;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_dots_stay_inside() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path();
        std::fs::create_dir_all(root.join("p/d")).expect("it is new");
        std::fs::write(root.join("p/f"), "x").expect("it is written");
        for (target, at) in
            [("/p/f", "p/abs"), ("../../../../p/f", "p/up"), ("loop", "p/loop"), ("d", "p/dir")]
        {
            symlink(target, root.join(at)).expect("a link");
        }
        let layer = Layer::open(root).expect("it is there");
        let view = View { layers: vec![layer], ..View::default() };
        let check = |typed: &str, expect: &str| {
            assert_eq!(resolve(&view, typed.as_bytes()).expect(typed).to_string(), expect);
        };
        check("/p/abs", "/p/f");
        check("/p/up", "/p/f");
        check("/../../p/./dir/../f", "/p/f");
        check("/p/dir/new", "/p/d/new");
        check("/p/none/../f", "/p/f");
        assert!(resolve(&view, b"/p/loop").is_err());
        assert!(resolve(&view, b"/p/\0").is_err());
        assert!(resolve(&view, "/a".repeat(3000).as_bytes()).is_err());
    }
}
