//! Read-only, hidden and append-only places.

use fractal_fs::{Access, Kind, Vfs};
use fractal_model::SandboxPath;

fn view() -> Vfs {
    let view = Vfs::default();
    for path in ["/src/a", "/src/open/b", "/secret/key", "/log/app"] {
        view.write_all(path, "x").unwrap();
    }
    for (path, access) in [
        ("/src", Access::ReadOnly),
        ("/src/open", Access::Writable),
        ("/secret", Access::Hidden),
        ("/log", Access::AppendOnly),
    ] {
        view.set_access(&SandboxPath::parse(path).unwrap(), Some(access));
    }
    view
}

fn refused<T: std::fmt::Debug>(done: Result<T, fractal_fs::FsError>, kind: Kind) {
    assert_eq!(done.expect_err("a rule forbids it").kind, kind);
}

#[test]
fn read_only_is_read_only_by_every_way() {
    let view = view();
    view.symlink("/way", "src").unwrap();
    for path in ["/src/a", "/way/a", "/log/../src/./a"] {
        refused(view.write(path, "y"), Kind::ReadOnly);
        refused(view.append(path, b"y"), Kind::ReadOnly);
        refused(view.truncate(path, 0), Kind::ReadOnly);
        refused(view.remove_file(path), Kind::ReadOnly);
        refused(view.rename(path, "/gone"), Kind::ReadOnly);
        refused(view.set_xattr(path, b"user.x", b""), Kind::ReadOnly);
        refused(view.link(path, "/other-name"), Kind::ReadOnly);
        assert_eq!(view.read(path).unwrap(), "x");
    }
    refused(view.write("/src/new", ""), Kind::ReadOnly);
    refused(view.make_dir("/src/new", 0o755), Kind::ReadOnly);
    refused(view.rename("/log", "/src/log"), Kind::Denied);
    view.write("/src/open/new", "").unwrap();
    // Not by taking the whole away either.
    refused(view.remove_all("/src"), Kind::ReadOnly);
    refused(view.rename("/src", "/elsewhere"), Kind::ReadOnly);
    view.make_dir("/around", 0o755).unwrap();
    view.copy_file("/src/a", "/around/a").unwrap();
    view.write("/around/a", "mine").unwrap();
}

#[test]
fn hidden_is_not_there_by_any_way() {
    let view = view();
    view.symlink("/way", "secret").unwrap();
    for path in ["/secret", "/secret/key", "/way/key", "/way"] {
        refused(view.stat(path), Kind::NotFound);
        assert!(!view.exists(path));
    }
    refused(view.read("/secret/key"), Kind::NotFound);
    refused(view.write("/secret/new", ""), Kind::NotFound);
    refused(view.make_dir("/secret", 0o755), Kind::NotFound);
    refused(view.remove_all("/secret"), Kind::NotFound);
    refused(view.rename("/secret", "/seen"), Kind::NotFound);
    let names: Vec<_> = view.list("/").unwrap().iter().map(|l| l.name.to_string()).collect();
    assert_eq!(names, ["log", "src", "way"]);
    view.set_access(&SandboxPath::parse("/secret").unwrap(), None);
    assert_eq!(view.read("/secret/key").unwrap(), "x");
}

#[test]
fn append_only_grows() {
    let view = view();
    view.append("/log/app", b"y").unwrap();
    view.append("/log/new", b"z").unwrap();
    view.make_dir("/log/dir", 0o755).unwrap();
    refused(view.write("/log/app", "other"), Kind::Denied);
    refused(view.write_at("/log/app", 0, b"other"), Kind::Denied);
    refused(view.truncate("/log/app", 0), Kind::Denied);
    refused(view.remove_file("/log/app"), Kind::Denied);
    refused(view.rename("/log/app", "/log/b"), Kind::Denied);
    assert_eq!(view.read("/log/app").unwrap(), "xy");
}

#[test]
fn a_directory_with_something_protected_in_it_stays() {
    let view = Vfs::default();
    view.write_all("/a/b/keep", "x").unwrap();
    view.set_access(&SandboxPath::parse("/a/b/keep").unwrap(), Some(Access::ReadOnly));
    refused(view.remove_all("/a"), Kind::Denied);
    refused(view.rename("/a", "/c"), Kind::Denied);
    assert_eq!(view.read("/a/b/keep").unwrap(), "x");
    // A fork has the same rules.
    refused(view.fork().remove_all("/a"), Kind::Denied);
}
