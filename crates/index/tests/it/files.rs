//! What an agent may leave in a bundle, and what must not come of it.

use crate::bundles::{draft, project};
use fractal_index::IndexError;
use fractal_index::bundle::read_file;
use fractal_index::record::{BODY_BYTES_MAX, HEAD_BYTES_MAX, Kind, Value, read, set_key};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a fifo");
}

#[test]
fn what_is_no_regular_file_is_neither_listed_nor_opened() {
    let (project, bundle) = project();
    let outside = project.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    fs::write(outside.join("secret.md"), "secret").expect("a file");
    let at = |name: &str| bundle.dir().join(name);
    fifo(&at("pipe.md"));
    symlink(outside.join("secret.md"), at("link.md")).expect("a link");
    symlink(&outside, at("linked")).expect("a link");
    fs::create_dir(at("dir.md")).expect("a directory");
    for dir in [".hidden", "node_modules", "target", ".venv/x"] {
        fs::create_dir_all(at(dir)).expect("a directory");
        fs::write(at(dir).join("page.md"), "x").expect("a page");
    }
    fs::write(at(".page.md"), "x").expect("a page");
    fs::write(at("data.txt"), "x").expect("a file");
    assert_eq!(bundle.records().files, [at("problem.md")]);
    for name in ["pipe.md", "link.md", "dir.md"] {
        let refused = [bundle.read(&at(name)), read_file(&at(name))];
        assert!(
            refused.iter().all(|it| matches!(it, Err(IndexError::NotAFile { .. }))),
            "{refused:?}"
        );
        assert!(bundle.replace(&at(name), b"x").is_err());
    }
    for path in ["linked/secret.md", "../../outside/secret.md"] {
        assert!(bundle.read(Path::new(path)).is_err(), "{path}");
        assert!(bundle.replace(Path::new(path), b"x").is_err(), "{path}");
    }
    assert!(bundle.read(&outside.join("secret.md")).is_err());
    assert_eq!(fs::read(outside.join("secret.md")).expect("there"), b"secret");
}

#[test]
fn nothing_is_written_through_a_link() {
    let (project, bundle) = project();
    let outside = project.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    for name in ["insights", "experiments", "notes"] {
        symlink(&outside, bundle.dir().join(name)).expect("a link");
    }
    symlink(outside.join("index"), bundle.dir().join("index.md")).expect("a link");
    fifo(&bundle.dir().join("log.md"));
    for kind in [Kind::Insight, Kind::Experiment, Kind::Document] {
        assert!(bundle.write(&draft(kind, "One", "x"), "a").is_err());
    }
    assert!(bundle.write_beside(Path::new("experiments"), "run.json", b"x").is_err());
    let refreshed = bundle.refresh().expect("it goes on");
    assert_eq!((refreshed.written.len(), refreshed.kept.len()), (0, 2));
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 0);
}

#[test]
fn a_large_file_is_read_as_far_as_it_is_searched() {
    let (_project, bundle) = project();
    let path = bundle.dir().join("large.md");
    let length = 100 << 20;
    fs::write(&path, "---\ntype: Insight\n---\n# Large\n").expect("a file");
    fs::File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(length))
        .expect("grown");
    let (bytes, whole) = bundle.read(&path).expect("readable");
    assert_eq!(whole, length);
    assert!(bytes.len() <= HEAD_BYTES_MAX + BODY_BYTES_MAX + 64);
    let reading = read(&bytes, "large.md");
    assert_eq!(reading.record.title, "Large");
    assert!(reading.faults.iter().any(|fault| fault.what.contains("not searched")));
    let refused = bundle.edit(&path, |bytes| Ok(bytes.to_vec()));
    assert!(matches!(refused, Err(IndexError::Invalid(_))));
}

#[test]
fn a_record_keeps_its_mode_and_a_broken_one_its_bytes() {
    let (_project, bundle) = project();
    let path = bundle.write(&draft(Kind::Insight, "One", "body"), "a").expect("written");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path) & 0o600, 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
    bundle.edit(&path, |bytes| set_key(bytes, "status", &Value::from("stable"))).expect("edited");
    assert_eq!(mode(&path), 0o640);
    let (bytes, _) = bundle.read(&path).expect("readable");
    assert_eq!(read(&bytes, "x.md").record.status, "stable");
    bundle.replace(&path, b"---\ntype: [\n---\nbody").expect("replaced");
    assert_eq!(mode(&path), 0o640);
    let refused = bundle.edit(&path, |bytes| set_key(bytes, "status", &Value::from("x")));
    let said = refused.expect_err("it is broken").to_string();
    assert!(said.contains("one-a.md: line 3: the head is no YAML"), "{said}");
    assert_eq!(fs::read(&path).expect("there"), b"---\ntype: [\n---\nbody");
    assert!(bundle.replace(&bundle.dir().join("insights/none.md"), b"x").is_err());
}

#[test]
fn a_tree_without_end_is_left() {
    let (_project, bundle) = project();
    let mut deep = bundle.dir().to_owned();
    for _ in 0..40 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).expect("directories");
    fs::write(deep.join("deep.md"), "x").expect("a page");
    let listing = bundle.records();
    assert_eq!(listing.files.len(), 1);
    assert!(listing.faults[0].what.contains("too deep"), "{:?}", listing.faults);
}
