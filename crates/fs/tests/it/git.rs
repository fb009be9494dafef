//! Commits of a real repository, without a checkout.

use crate::common::{kind, mounted, text};
use fractal_fs::{Freshness, Git, Kind};
use fractal_model::EntryKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args([
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "commit.gpgsign=false",
    ]);
    command.args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"]);
    let date = "1700000000 +0000";
    command.env("GIT_AUTHOR_DATE", date).env("GIT_COMMITTER_DATE", date);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let done = command.args(args).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Two commits, the second with a submodule, everything packed.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("repo").join(name);
    std::fs::create_dir_all(at("src/deep")).unwrap();
    git(&at(""), &["init", "-q"]);
    std::fs::write(at("src/deep/a.rs"), "fn one() {}").unwrap();
    std::fs::write(at("run.sh"), "#!/bin/sh\n").unwrap();
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(at("run.sh"), mode).unwrap();
    std::os::unix::fs::symlink("src/deep/a.rs", at("link")).unwrap();
    std::os::unix::fs::symlink("../../../etc/passwd", at("out")).unwrap();
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"odd \xff");
    std::fs::write(at("").join(odd), "odd").unwrap();
    git(&at(""), &["add", "-A"]);
    git(&at(""), &["commit", "-qm", "one"]);
    git(&at(""), &["tag", "-a", "v1", "-m", "first"]);
    std::fs::write(at("src/deep/a.rs"), "fn two() {}").unwrap();
    std::fs::create_dir(dir.path().join("other")).unwrap();
    git(&dir.path().join("other"), &["init", "-q"]);
    git(&dir.path().join("other"), &["commit", "-qm", "x", "--allow-empty"]);
    git(&at(""), &["submodule", "--quiet", "add", "../other", "module"]);
    git(&at(""), &["commit", "-qam", "two"]);
    git(&at(""), &["gc", "-q"]);
    dir
}

#[test]
fn any_revision_is_a_directory() {
    let dir = repository();
    let repo = dir.path().join("repo");
    let at =
        |revision: &str| mounted(Arc::new(Git::open(&repo, revision).unwrap()), Freshness::Frozen);
    let now = at("HEAD");
    assert_eq!(text(&now, "/m/src/deep/a.rs"), "fn two() {}");
    assert_eq!(now.read_range("/m/src/deep/a.rs", 3..6).unwrap(), "two");
    assert_eq!(text(&now, "/m/link"), "fn two() {}");
    assert_eq!(now.read(b"/m/odd \xff").unwrap(), "odd");
    assert_eq!(now.stat("/m/run.sh").unwrap().meta.mode, 0o755);
    assert_eq!(now.stat("/m/src/deep/a.rs").unwrap().meta.modified_ns, 1_700_000_000_000_000_000);
    assert_eq!(now.stat("/m/src/deep/a.rs").unwrap().size, 11);
    assert_eq!(now.stat("/m/module").unwrap().kind, EntryKind::Directory);
    assert!(now.list("/m/module").unwrap().is_empty());
    assert_eq!(kind(now.read("/m/out")), Kind::NotFound);
    let number = git(&repo, &["rev-parse", "HEAD~1"]);
    let tree = git(&repo, &["rev-parse", "v1^{tree}"]);
    for revision in ["v1", "HEAD~1", "main~1", &number, &tree] {
        let then = at(revision);
        assert_eq!(text(&then, "/m/src/deep/a.rs"), "fn one() {}", "{revision}");
        assert!(!then.exists("/m/module"));
    }
    // What git lists is what is there.
    let listed = git(&repo, &["ls-tree", "--name-only", "HEAD"]);
    assert_eq!(now.list("/m").unwrap().len(), listed.lines().count());
    now.write("/m/src/deep/a.rs", "edited").unwrap();
    assert_eq!(now.changes().unwrap().len(), 1);
    assert_eq!(git(&repo, &["status", "--porcelain"]), "");
}

#[test]
fn what_is_not_there_is_said() {
    let dir = repository();
    let repo = dir.path().join("repo");
    for revision in ["nothing", "HEAD~9", "v2", "0123456789012345678901234567890123456789", ""] {
        let fault = Git::open(&repo, revision).err().unwrap();
        assert_eq!(fault.kind, Kind::NotFound, "{revision}: {fault:?}");
    }
    assert_eq!(Git::open(dir.path(), "HEAD").err().unwrap().kind, Kind::NotFound);
    let blob = git(&repo, &["rev-parse", "HEAD:run.sh"]);
    assert!(Git::open(&repo, &blob).is_err(), "a file is no tree");
}
