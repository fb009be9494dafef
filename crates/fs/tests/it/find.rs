//! Search as files, against real `find` and `grep`.

use crate::common::{kind, mount, path, text};
use fractal_fs::{Access, Call, Find, FindBounds, Freshness, Item, Kind, Provider, Vfs};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const LIVE: Freshness = Freshness::Live(Duration::ZERO);

fn searched(bounds: FindBounds) -> Vfs {
    let view = Vfs::default();
    for (path, content) in [
        ("/src/main.rs", "fn main() { unwrap() }"),
        ("/src/deep/lib.rs", "pub mod x;"),
        ("/src/deep/notes.md", "unwrap nothing"),
        ("/etc/hosts", "127.0.0.1"),
    ] {
        view.write_all(path, content).unwrap();
    }
    view.write("/big", vec![b'x'; 3 << 20]).unwrap();
    view.write_at("/big", (1 << 20) - 3, b"needle").unwrap();
    view.symlink("/src/link", "main.rs").unwrap();
    mount(&view, "/@find", Arc::new(Find::new(bounds)), Access::ReadOnly, LIVE);
    view
}

fn found(view: &Vfs, question: &str) -> Vec<String> {
    let dir = format!("/@find/{question}");
    let mut paths = Vec::new();
    for listed in view.list(&dir).unwrap() {
        let link = [dir.as_bytes(), b"/", listed.name.bytes()].concat();
        paths.push(String::from_utf8(view.read_link(link).unwrap()).unwrap());
    }
    paths.sort();
    paths
}

#[test]
fn answers_are_links_to_what_was_found() {
    let view = searched(FindBounds::default());
    assert_eq!(found(&view, "name=*.rs"), ["/src/deep/lib.rs", "/src/main.rs"]);
    assert_eq!(found(&view, "name=*.rs&text=unwrap()"), ["/src/main.rs"]);
    assert_eq!(found(&view, "in=%2Fsrc%2Fdeep"), ["/src/deep/lib.rs", "/src/deep/notes.md"]);
    assert_eq!(found(&view, "type=d"), ["/etc", "/src", "/src/deep"]);
    assert_eq!(found(&view, "type=l"), ["/src/link"]);
    assert_eq!(found(&view, "size=+2M"), ["/big"]);
    assert_eq!(found(&view, "text=needle"), ["/big"], "across the border of two pieces");
    assert_eq!(found(&view, "path=%2Fsrc%2F*.md"), ["/src/deep/notes.md"]);
    assert_eq!(found(&view, "name=none"), [""; 0]);
    assert_eq!(text(&view, "/@find/name=main.rs/src%2Fmain.rs"), "fn main() { unwrap() }");
    view.write("/src/new.rs", "").unwrap();
    assert_eq!(found(&view, "name=*.rs").len(), 3, "asked anew");
    assert!(text(&view, "/@find/HELP").contains("name=*.rs"));
    let names: Vec<_> = view.list("/@find").unwrap();
    assert_eq!(names.len(), 1);
    assert_eq!(kind(view.list("/@find/other")), Kind::NotFound);
    assert_eq!(kind(view.list("/@find/colour=red")), Kind::Invalid);
    assert_eq!(kind(view.list("/@find/in=%2Fnowhere")), Kind::NotFound);
    assert_eq!(kind(view.write("/@find/x", "")), Kind::ReadOnly);
}

#[test]
fn searches_are_bounded_and_leave_live_sources_alone() {
    let few = FindBounds { found_max: 2, ..FindBounds::default() };
    assert_eq!(kind(searched(few).list("/@find/name=*")), Kind::TooLarge);
    let near = FindBounds { visited_max: 3, ..FindBounds::default() };
    assert_eq!(kind(searched(near).list("/@find/name=x")), Kind::TooLarge);
    let short = FindBounds { bytes_max: 1 << 20, ..FindBounds::default() };
    assert_eq!(kind(searched(short).list("/@find/text=nowhere")), Kind::TooLarge);
    let view = searched(FindBounds::default());
    // Endless, and broken.
    let deep = Call::default().lists(|_| Ok([Item::dir("more")]));
    let broken = Call::default().lists(|_| Err::<[Item; 0], _>("away".to_owned()));
    let provider = Provider::default().dir("deep", deep).unwrap().dir("broken", broken).unwrap();
    mount(&view, "/live", Arc::new(provider), Access::ReadOnly, LIVE);
    assert_eq!(found(&view, "type=d"), ["/etc", "/src", "/src/deep"]);
    assert_eq!(kind(view.list("/@find/in=%2Flive%2Fbroken")), Kind::Source);
    let long = format!("/{}/{}", "a".repeat(200), "b".repeat(200));
    view.write_all(&long, "").unwrap();
    assert_eq!(found(&view, "name=bbb*"), [long]);
}

#[test]
fn it_finds_what_find_finds() {
    let (view, dir) = (searched(FindBounds::default()), tempfile::tempdir().unwrap());
    let out = dir.path().join("out");
    view.unmount(&path("/@find")).unwrap();
    view.export_dir(&path("/"), &out).unwrap();
    mount(&view, "/@find", Arc::new(Find::default()), Access::ReadOnly, LIVE);
    for (question, args) in [
        ("name=*.rs", vec!["-name", "*.rs"]),
        ("name=[ml]*&type=f", vec!["-name", "[ml]*", "-type", "f"]),
        ("path=%2Fsrc*s", vec!["-path", "./src*s"]),
        ("size=-20&type=f", vec!["-size", "-20c", "-type", "f"]),
    ] {
        let mut find = Command::new("find");
        let done =
            find.args([".", "-mindepth", "1"]).args(&args).current_dir(&out).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let mut expect: Vec<String> = text.lines().map(|line| line[1..].to_owned()).collect();
        expect.sort();
        assert_eq!(found(&view, question), expect, "{question}");
    }
}
