//! Sources: asked when needed, outside of every lock.

use bytes::Bytes;
use fractal_fs::{Access, Ask, Fault, Freshness, FsError, Item, Kind, Mount, Source, Vfs};
use fractal_model::SandboxPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Two levels of files that count how often they are asked for.
#[derive(Default)]
struct Counting {
    lists: AtomicU32,
    reads: AtomicU32,
}

impl Source for Counting {
    fn kind(&self) -> &str {
        "counting"
    }

    fn list(&self, at: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        Ok(match at.components().count() {
            0 => vec![Item::dir("sub"), Item::file("a"), Item::link("l", "a")],
            _ => vec![Item::file("b")],
        })
    }

    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault> {
        let count = self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{at} as {} for {:?}, {count}", ask.path, ask.who).into())
    }
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

fn mounted(source: Arc<dyn Source>, freshness: Freshness) -> Vfs {
    let view = Vfs::default();
    let mount = Mount { path: path("/m/x"), source, access: Access::Writable, freshness };
    view.mount(mount).unwrap();
    view
}

fn text(view: &Vfs, path: &str) -> String {
    String::from_utf8(view.read(path).unwrap().to_vec()).unwrap()
}

fn kind<T: std::fmt::Debug>(done: Result<T, FsError>) -> Kind {
    done.expect_err("an error").kind
}

#[test]
fn a_frozen_source_is_asked_once_and_written_over() {
    let source = Arc::new(Counting::default());
    let view = mounted(source.clone(), Freshness::Frozen);
    view.set_who("agent-7");
    assert_eq!(source.lists.load(Ordering::Relaxed), 0, "lazy until someone looks");
    let fork = view.fork();
    assert_eq!(text(&fork, "/m/x/sub/b"), "/sub/b as /m/x/sub/b for \"agent-7\", 0");
    assert_eq!(text(&view, "/m/x/sub/b"), "/sub/b as /m/x/sub/b for \"agent-7\", 0", "shared");
    assert_eq!(text(&view, "/m/x/l"), "/a as /m/x/a for \"agent-7\", 1");
    assert!(view.changes().unwrap().is_empty());
    view.append("/m/x/sub/b", b"!").unwrap();
    view.write("/m/x/new", "n").unwrap();
    view.remove_file("/m/x/a").unwrap();
    let changes: Vec<_> = view.changes().unwrap().iter().map(|c| c.path.to_string()).collect();
    assert_eq!(changes, ["/m/x/a", "/m/x/new", "/m/x/sub/b"]);
    assert!(fork.exists("/m/x/a"));
    assert_eq!(source.lists.load(Ordering::Relaxed), 2);
    view.unmount(&path("/m/x")).unwrap();
    assert!(!view.exists("/m/x") && view.mounts().is_empty());
    assert!(view.changes().unwrap().is_empty());
}

#[test]
fn a_live_source_is_asked_again_and_cannot_be_written() {
    let source = Arc::new(Counting::default());
    let view = mounted(source.clone(), Freshness::Live(Duration::ZERO));
    assert!(text(&view, "/m/x/a").ends_with(", 0"));
    assert!(text(&view, "/m/x/a").ends_with(", 1"));
    assert_eq!(kind(view.write("/m/x/a", "")), Kind::ReadOnly);
    assert_eq!(kind(view.write("/m/x/new", "")), Kind::ReadOnly);
    assert_eq!(kind(view.remove_all("/m/x/sub")), Kind::ReadOnly);
    assert_eq!(kind(view.remove_all("/m")), Kind::Busy);
    let patient = mounted(source.clone(), Freshness::Live(Duration::from_secs(3600)));
    let before = source.lists.load(Ordering::Relaxed);
    let first = text(&patient, "/m/x/sub/b");
    assert_eq!(text(&patient, "/m/x/sub/b"), first);
    assert_eq!(source.lists.load(Ordering::Relaxed), before + 2);
}

#[test]
fn what_stood_at_a_mount_comes_back() {
    let view = Vfs::default();
    view.write_all("/m/x/old", "old").unwrap();
    let sealed = view.tree();
    let mount = Mount {
        path: path("/m/x"),
        source: Arc::new(Counting::default()),
        access: Access::ReadOnly,
        freshness: Freshness::Frozen,
    };
    view.mount(mount.clone()).unwrap();
    assert_eq!(kind(view.mount(mount)), Kind::Busy);
    assert!(!view.exists("/m/x/old"));
    assert_eq!(kind(view.write("/m/x/a", "")), Kind::ReadOnly);
    assert_eq!(kind(view.rename("/m/x", "/y")), Kind::Busy);
    assert_eq!(kind(view.restore(&sealed)), Kind::Busy);
    assert_eq!(view.mounts().len(), 1);
    view.unmount(&path("/m/x")).unwrap();
    assert_eq!(text(&view, "/m/x/old"), "old");
    view.write("/m/x/a", "").unwrap();
    assert_eq!(kind(view.unmount(&path("/m/x"))), Kind::Invalid);
}

/// Reads the view that it serves.
struct Mirror;

impl Source for Mirror {
    fn kind(&self) -> &str {
        "mirror"
    }

    fn list(&self, _: &SandboxPath, ask: &Ask) -> Result<Vec<Item>, Fault> {
        let names = ask.view.list("/data").map_err(|error| Fault::new(error.kind))?;
        Ok(names.into_iter().map(|listed| Item::file(listed.name.bytes())).collect())
    }

    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault> {
        let bytes = ask.view.read(format!("/data{at}")).map_err(|error| Fault::new(error.kind))?;
        ask.view.append("/log", b"read\n").map_err(|error| Fault::new(error.kind))?;
        Ok(bytes.to_ascii_uppercase().into())
    }
}

#[test]
fn a_provider_may_read_and_write_the_view_it_serves() {
    let view = Vfs::default();
    view.write_all("/data/a", "hello").unwrap();
    let freshness = Freshness::Live(Duration::ZERO);
    let mount =
        Mount { path: path("/up"), source: Arc::new(Mirror), access: Access::ReadOnly, freshness };
    view.mount(mount).unwrap();
    assert_eq!(text(&view, "/up/a"), "HELLO");
    view.write("/data/b", "later").unwrap();
    assert_eq!(text(&view, "/up/b"), "LATER");
    assert_eq!(text(&view, "/log"), "read\nread\n");
}

/// Answers with whatever it was given.
struct Hostile(Vec<Item>);

impl Source for Hostile {
    fn kind(&self) -> &str {
        "hostile"
    }

    fn list(&self, _: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        Ok(self.0.clone())
    }

    fn read(&self, _: &SandboxPath, _: &Ask) -> Result<Bytes, Fault> {
        Err(Fault::because(Kind::Source, "the database is away"))
    }
}

#[test]
fn names_that_climb_are_an_error_of_the_source() {
    for name in ["..", ".", "", "a/b", "../../etc/passwd", "a\0"] {
        let view = mounted(Arc::new(Hostile(vec![Item::file(name)])), Freshness::Frozen);
        let error = view.list("/m/x").unwrap_err();
        assert_eq!(error.kind, Kind::Source, "{name:?}");
        assert!(error.to_string().contains("it lists the name"), "{error}");
        assert!(view.exists("/m"));
    }
}

#[test]
fn an_error_of_a_source_says_why_and_changes_nothing() {
    let view = mounted(Arc::new(Hostile(vec![Item::file("a")])), Freshness::Frozen);
    let error = view.read("/m/x/a").unwrap_err();
    let expect = "/m/x/a: cannot be read from its source: the database is away";
    assert_eq!(error.to_string(), expect);
    assert_eq!(kind(view.append("/m/x/a", b"more")), Kind::Source);
    assert_eq!(kind(view.stat("/m/x/a")), Kind::Source);
    // Replacing the whole needs nothing of the old.
    view.write("/m/x/a", "mine").unwrap();
    assert_eq!(text(&view, "/m/x/a"), "mine");
}

#[test]
fn a_glance_at_a_directory_makes_none_of_its_files() {
    let source = Arc::new(Counting::default());
    let view = mounted(source.clone(), Freshness::Frozen);
    view.write("/m/x/own", "four").unwrap();
    let sizes = |listed: Vec<(fractal_fs::Name, fractal_fs::Stat)>| -> Vec<(String, u64)> {
        listed.iter().map(|(name, stat)| (name.to_string(), stat.size)).collect()
    };
    let glanced = sizes(view.glance("/m/x").unwrap());
    assert_eq!(source.reads.load(Ordering::Relaxed), 0);
    let of = |name: &str, size| (name.to_owned(), size);
    assert_eq!(glanced, [of("a", 0), of("l", 1), of("own", 4), of("sub", 0)]);
    let known = sizes(view.list_stat("/m/x").unwrap());
    assert!(known[0].1 > 0 && source.reads.load(Ordering::Relaxed) == 1);
    assert_eq!(known[1..], glanced[1..]);
}
