//! Programs as people use them.

use crate::mounted::{empty, has, sh};

const GIT: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent \
    GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b;";

#[test]
fn git_clones_commits_and_finds_nothing_to_do() {
    let (Some(view), true) = (empty(), has("git")) else { return };
    let outside = tempfile::tempdir().unwrap();
    sh(
        outside.path(),
        &format!(
            "{GIT} git init -q -b main origin; cd origin; mkdir -p a/b c; \
             for i in $(seq 200); do echo $i > a/b/$i; echo x$i > c/$i; done; \
             ln -s a/b/1 link; chmod +x c/1; git add .; git commit -qm one"
        ),
    );
    let origin = outside.path().join("origin");
    let script = format!(
        "{GIT} git clone -q {} repo; cd repo; git status --porcelain; git fsck --full; \
         git checkout -q -b topic; echo more >> c/7; git mv a/b z; rm c/9; \
         git add -A; git commit -qm two; git status --porcelain; git gc -q; \
         git checkout -q main; git merge -q topic; git stash list; git status --porcelain; \
         git log --format=%s",
        origin.display()
    );
    let said = sh(view.path(), &script);
    assert_eq!(said, "two\none\n");
    assert_eq!(view.view.read("/repo/c/7").unwrap(), "x7\nmore\n");
    assert!(!view.view.exists("/repo/c/9"));
    sh(view.path(), &format!("{GIT} cd repo; git push -q {} topic", origin.display()));
}

#[test]
fn cargo_builds_runs_and_builds_nothing_again() {
    let (Some(view), true) = (empty(), has("cargo")) else { return };
    view.view.write_all("/x/src/main.rs", "fn main() { println!(\"{}\", x::two()); }").unwrap();
    view.view.write("/x/src/lib.rs", "pub fn two() -> u32 { 2 }").unwrap();
    view.view
        .write(
            "/x/Cargo.toml",
            "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        )
        .unwrap();
    let build = "cd x; unset CARGO_TARGET_DIR; cargo build -q --offline; ./target/debug/x; \
                 cargo build --offline 2>&1 | grep -c Compiling || true";
    assert_eq!(sh(view.path(), build), "2\n0\n");
    view.view.write("/x/src/lib.rs", "pub fn two() -> u32 { 3 }").unwrap();
    view.mounted.as_ref().unwrap().sync();
    assert_eq!(sh(view.path(), build), "3\n0\n");
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_every_row() {
    let (Some(view), true) = (empty(), has("sqlite3")) else { return };
    sh(
        view.path(),
        "sqlite3 x.db 'pragma journal_mode=wal; create table t(n integer primary key, s text);'; \
         for p in 1 2 3; do ( for i in $(seq 20); do \
           sqlite3 -cmd '.timeout 60000' x.db \"insert into t(s) values ('$p-$i');\"; done ) & done; \
         wait; sqlite3 x.db 'pragma wal_checkpoint(truncate);' > /dev/null",
    );
    let said = sh(
        view.path(),
        "sqlite3 x.db 'select count(distinct s) from t; pragma integrity_check; \
         pragma journal_mode;'",
    );
    assert_eq!(said, "60\nok\nwal\n");
    // A rollback journal deletes and truncates instead.
    let said = sh(
        view.path(),
        "sqlite3 y.db 'pragma journal_mode=delete; create table t(s); begin; \
         with recursive c(n) as (select 1 union all select n+1 from c where n < 20000) \
         insert into t select hex(randomblob(20)) from c; commit; vacuum; \
         select count(*) from t; pragma integrity_check;'",
    );
    assert_eq!(said, "delete\n20000\nok\n");
}

#[test]
fn tar_there_and_back_is_the_same() {
    let (Some(view), true) = (empty(), has("tar")) else { return };
    let outside = tempfile::tempdir().unwrap();
    sh(
        outside.path(),
        "mkdir -p t/deep/er; for i in $(seq 100); do head -c $((i * 977)) /dev/urandom > t/$i; done; \
         ln t/1 t/hard; ln -s ../t/2 t/soft; truncate -s 50M t/sparse; chmod 0751 t/deep; \
         touch -d '2001-02-03 04:05:06.789' t/3; printf x > \"$(printf 't/\\377\\376')\"; \
         tar --format=posix -cSf in.tar t",
    );
    let at = outside.path().display();
    sh(
        view.path(),
        &format!(
            "tar xpf {at}/in.tar; diff -r --no-dereference t {at}/t; tar --format=posix -cSf {at}/out.tar t; \
             mkdir {at}/back; tar xpf {at}/out.tar -C {at}/back; \
             diff -r --no-dereference {at}/t {at}/back/t"
        ),
    );
    let list = "cd t; find . -printf '%p %y %m %n %T@ %l\\n' | sed 's/^\\(\\S* d \\S*\\) \\S*/\\1/' | sort";
    assert_eq!(sh(view.path(), list), sh(outside.path(), list));
    let back = outside.path().join("back");
    assert_eq!(sh(view.path(), list), sh(&back, list));
    assert_eq!(view.view.lstat("/t/sparse").unwrap().held, 0);
}

#[test]
fn rsync_copies_both_ways_and_has_nothing_left_to_do() {
    let (Some(view), true) = (empty(), has("rsync")) else { return };
    let outside = tempfile::tempdir().unwrap();
    sh(
        outside.path(),
        "mkdir -p s/d; for i in $(seq 50); do echo $i > s/d/$i; done; ln -s d s/l; ln s/d/1 s/h",
    );
    let at = outside.path().display();
    let said = sh(
        view.path(),
        &format!(
            "rsync -aH {at}/s/ copy/; diff -r --no-dereference {at}/s copy; \
             rsync -aHi {at}/s/ copy/; echo new > copy/d/7; rsync -aH --delete copy/ {at}/back/; \
             diff -r --no-dereference copy {at}/back; rsync -aHXi --delete copy/ {at}/back/"
        ),
    );
    assert_eq!(said, "");
}

#[test]
fn copies_moves_and_removals_of_whole_trees() {
    let Some(view) = empty() else { return };
    sh(
        view.path(),
        "mkdir -p a/b/c; for i in $(seq 300); do echo $i > a/b/$i; done; cp -a a z; \
         diff -r a z; mv a/b z/moved; ls z/moved | wc -l | grep -qx 301; \
         cp --sparse=always z/b/1 z/s; cmp z/b/1 z/s; find . -type f | wc -l | grep -qx 601; \
         rm -rf a z; test -z \"$(ls -A)\"",
    );
    assert_eq!(view.view.usage().entries, 0);
}
