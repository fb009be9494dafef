//! Promoting into reality: what travels, what clashes, and what is left as it
//! was.

use crate::world::{World, shell};
use fractal::model::{ChangeKind, Check, Form, Promote, PromoteReply, Verdict};
use fractal::{Action, Code, Reply};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;

impl World {
    pub fn promote_with(&self, asked: Promote) -> Result<PromoteReply, Code> {
        match self.apply(Action::Promote(Box::new(asked)))? {
            Reply::Promote(reply) => Ok(*reply),
            other => panic!("promote answered {other:?}"),
        }
    }

    pub fn promote(&self, sandbox: &str) -> PromoteReply {
        self.promote_with(asked(sandbox)).unwrap()
    }

    pub fn undo(&self, promotion: Option<&str>) -> Result<PromoteReply, Code> {
        let action = Action::Undo {
            promotion: promotion.map(str::to_owned),
            only: Vec::new(),
            dry_run: false,
        };
        match self.apply(action)? {
            Reply::Promote(reply) => Ok(*reply),
            other => panic!("undo answered {other:?}"),
        }
    }

    /// Whether a sandbox stands on the host and not on a copy.
    fn is_live(&self, sandbox: &str) -> bool {
        self.list().iter().any(|info| info.name == sandbox && info.base.is_none())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.project().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    pub fn git(&self, args: &[&str]) -> String {
        let project = self.project();
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "safe.directory=*"])
            .args(args)
            .current_dir(project)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

pub fn asked(sandbox: &str) -> Promote {
    Promote { sandbox: Some(sandbox.into()), ..Promote::default() }
}

pub fn conflicts(reply: &PromoteReply) -> Vec<String> {
    let name = |path: &str| path.rsplit("project/").next().unwrap_or_default().to_owned();
    reply.conflicts.iter().map(|conflict| name(&conflict.path)).collect()
}

#[test]
fn every_kind_of_change_arrives_and_is_taken_back() {
    let world = World::new();
    for name in ["edited", "deleted", "untouched", "mode", "becomes-dir"] {
        world.write(name, name);
    }
    fs::create_dir_all(world.file("gone/deep")).unwrap();
    world.write("gone/deep/f", "f");
    fs::create_dir(world.file("becomes-file")).unwrap();
    world.write("becomes-file/inner", "inner");
    symlink("edited", world.file("link")).unwrap();
    let before = tree(&world);
    let untouched = fs::metadata(world.file("untouched")).unwrap();
    world
        .make(
            "s",
            "echo new > edited; rm deleted; chmod 755 mode; rm -r gone; mkdir -p made/deep/empty; \
             echo a > made/deep/a; ln -sfn untouched link; ln -s nowhere dangling; \
             rm becomes-dir; mkdir becomes-dir; echo x > becomes-dir/x; \
             rm -r becomes-file; echo now-a-file > becomes-file",
        )
        .unwrap();
    assert_eq!(tree(&world), before, "reality is as it was until it is promoted");
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(world.read("edited"), "new\n");
    assert!(!world.file("deleted").exists() && !world.file("gone").exists());
    assert_eq!(fs::metadata(world.file("mode")).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(world.file("made/deep/empty").is_dir());
    assert_eq!(fs::read_link(world.file("link")).unwrap().to_str(), Some("untouched"));
    assert!(world.file("dangling").is_symlink());
    assert_eq!(world.read("becomes-dir/x"), "x\n");
    assert_eq!(world.read("becomes-file"), "now-a-file\n");
    let after = fs::metadata(world.file("untouched")).unwrap();
    assert_eq!((after.ino(), after.mtime_nsec()), (untouched.ino(), untouched.mtime_nsec()));
    if world.is_live("s") {
        assert!(world.changed("s").unwrap().is_empty(), "the sandbox has what reality has");
    }

    let undone = world.undo(None).unwrap();
    assert_eq!(undone.verdict, Verdict::Applied, "{undone:?}");
    assert_eq!(tree(&world), before);
    let again = world.undo(undone.undo.map(|id| id.to_string()).as_deref()).unwrap();
    assert_eq!(again.verdict, Verdict::Applied);
    assert_eq!(world.read("edited"), "new\n");
}

#[test]
fn names_of_one_file_that_changed_together_arrive_and_links_stay_links() {
    let world = World::new();
    world.write("a", "old");
    fs::hard_link(world.file("a"), world.file("b")).unwrap();
    fs::hard_link(world.file("a"), world.file("c")).unwrap();
    let before = tree(&world);
    world
        .make("s", "echo ours > a; rm b; echo ours as well > b; rm c; echo x > new; ln new newer")
        .unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!((world.read("a"), world.read("b")), ("ours\n".into(), "ours as well\n".into()));
    assert!(!world.file("c").exists());
    let inode = |name: &str| fs::metadata(world.file(name)).unwrap().ino();
    assert_eq!(inode("new"), inode("newer"), "{}", world.read("newer"));
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!(tree(&world), before);
    assert_eq!(inode("a"), inode("c"));
}

#[test]
fn modes_of_directories_travel_whole_and_those_of_files_without_rights() {
    let world = World::new();
    for name in ["shared", "sticky", "closed", "was"] {
        fs::create_dir(world.file(name)).unwrap();
    }
    let mode = |name: &str| fs::metadata(world.file(name)).unwrap().permissions().mode() & 0o7777;
    fs::set_permissions(world.file("was"), fs::Permissions::from_mode(0o3775)).unwrap();
    world.write("was/inside", "x");
    let before = tree(&world);
    world
        .make(
            "s",
            "chmod 2775 shared; chmod 1777 sticky; chmod 700 closed; chmod 755 was; \
             chmod u-s,g-s was; echo y > was/inside; mkdir -m 3770 made; chmod g+s,+t made; \
             echo x > tool; chmod 755 tool; chmod 6755 tool",
        )
        .unwrap();
    let changed = world.changed("s").unwrap();
    for name in ["shared", "sticky", "closed", "was"] {
        assert!(changed.contains(&('M', name.to_owned())), "{name}: {changed:?}");
    }
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    let modes = ["shared", "sticky", "closed", "made", "tool"].map(mode);
    assert_eq!(modes, [0o2775, 0o1777, 0o700, 0o3770, 0o755]);
    assert_eq!(mode("was") & 0o2000, 0, "a bit that was taken off is off");
    if world.is_live("s") {
        assert_eq!(world.changed("s").unwrap(), [], "the sandbox has what reality has");
    }
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!(tree(&world), before);
}

#[test]
fn new_directories_can_be_promoted_again_after_an_undo() {
    let world = World::new();
    world.make("s", "mkdir -p new/deep; echo x > new/deep/file; ln -s file new/deep/link").unwrap();
    for _ in 0..2 {
        let reply = world.promote("s");
        assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
        assert_eq!(world.read("new/deep/file"), "x\n");
        assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
        assert!(!world.file("new").exists());
    }
    // An edit there is still seen.
    fs::create_dir_all(world.file("new/deep")).unwrap();
    world.write("new/deep/file", "theirs");
    assert_eq!(conflicts(&world.promote("s")), ["new/deep/file"]);
}

#[test]
fn what_stays_behind_in_a_new_directory_can_be_promoted_later() {
    let world = World::new();
    world.make("s", "mkdir -p new/deep; echo 1 > new/deep/one; echo 2 > new/deep/two").unwrap();
    let one = Promote { only: vec!["new/deep/one".into()], ..asked("s") };
    assert_eq!(world.promote_with(one).unwrap().verdict, Verdict::Applied);
    assert!(!world.file("new/deep/two").exists());
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(world.read("new/deep/two"), "2\n");
    // What somebody else puts there meanwhile is not overwritten.
    world.sh("s", "echo 3 > new/deep/three").unwrap();
    world.write("new/deep/three", "theirs");
    assert_eq!(conflicts(&world.promote("s")), ["new/deep/three"]);
}

/// Every path with kind, mode and content.
fn tree(world: &World) -> Vec<String> {
    let mut rows = Vec::new();
    let mut queue = vec![world.project()];
    while let Some(dir) = queue.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if meta.is_file() {
                format!("{:?} {}", fs::read(&path).unwrap(), meta.mtime_nsec())
            } else {
                String::new()
            };
            rows.push(format!("{} {:o} {content}", path.display(), meta.mode()));
            if meta.is_dir() {
                queue.push(path);
            }
        }
    }
    rows.sort();
    rows
}

#[test]
fn edits_of_other_files_do_not_matter_and_of_the_same_place_clash() {
    let world = World::new();
    world.write("a", "1\n2\n3\n4\n5\n");
    world.write("b", "b");
    world.make("s", "sed -i s/5/five/ a; echo new > c").unwrap();
    world.write("b", "edited outside");
    world.write("a", "one\n2\n3\n4\n5\n");
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert!(reply.applied.iter().any(|applied| applied.merged));
    assert_eq!(world.read("a"), "one\n2\n3\n4\nfive\n", "both edits are there");
    assert_eq!(world.read("b"), "edited outside");

    world.sh("s", "sed -i s/five/FIVE/ a; echo more > d").unwrap();
    world.write("a", "one\n2\n3\n4\n5!\n");
    let reply = world.promote("s");
    assert_eq!((reply.verdict, conflicts(&reply)), (Verdict::Conflict, vec!["a".to_owned()]));
    assert_eq!(world.read("a"), "one\n2\n3\n4\n5!\n");
    assert!(!world.file("d").exists(), "nothing at all was written");

    let theirs = Promote { theirs: vec!["a".into()], ..asked("s") };
    assert_eq!(world.promote_with(theirs).unwrap().verdict, Verdict::Applied);
    assert_eq!(
        (world.read("a").as_str(), world.read("d").as_str()),
        ("one\n2\n3\n4\n5!\n", "more\n")
    );
    let ours = Promote { ours: vec!["a".into()], ..asked("s") };
    assert_eq!(world.promote_with(ours).unwrap().verdict, Verdict::Applied);
    assert!(world.read("a").contains("FIVE"));
}

#[test]
fn a_file_that_was_only_touched_outside_is_no_conflict() {
    let world = World::new();
    world.write("a", "base");
    world.make("s", "echo inside > a").unwrap();
    world.write("a", "elsewhere");
    world.write("a", "base");
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("a"), "inside\n");
}

#[test]
fn deletions_clash_with_edits_and_agree_with_deletions() {
    let world = World::new();
    for name in ["in", "out", "both", "replaced"] {
        world.write(name, "base");
    }
    world.make("s", "rm in both; echo edited > out; echo x > t; mv t replaced").unwrap();
    world.write("in", "edited outside");
    for name in ["out", "both", "replaced"] {
        fs::remove_file(world.file(name)).unwrap();
    }
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Conflict);
    assert_eq!(conflicts(&reply), ["in", "out", "replaced"]);
    assert_eq!(world.read("in"), "edited outside");
}

#[test]
fn an_outside_edit_of_a_file_that_the_sandbox_left_alone_survives() {
    let world = World::new();
    world.write("a", "base");
    // Opened for writing, and so copied into the sandbox, but not changed.
    world.make("s", ": >> a; chmod 600 a; chmod 644 a; echo n > new").unwrap();
    world.write("a", "edited outside");
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!((world.read("a").as_str(), world.read("new").as_str()), ("edited outside", "n\n"));
}

#[test]
fn what_came_into_a_deleted_directory_is_not_lost() {
    let world = World::new();
    fs::create_dir(world.file("d")).unwrap();
    world.write("d/old", "old");
    world.make("s", "rm -r d").unwrap();
    world.write("d/new", "new");
    let reply = world.promote("s");
    assert_eq!((reply.verdict, conflicts(&reply)), (Verdict::Conflict, vec!["d/new".to_owned()]));
    let theirs = Promote { theirs: vec!["d/new".into()], ..asked("s") };
    assert_eq!(world.promote_with(theirs).unwrap().verdict, Verdict::Applied);
    assert!(!world.file("d/old").exists());
    assert_eq!(world.read("d/new"), "new");
}

#[test]
fn only_what_was_named_travels_with_the_directories_it_needs() {
    let world = World::new();
    world.make("s", "mkdir -p x/y; echo 1 > x/y/1; echo 2 > x/y/2; echo 3 > 3").unwrap();
    let reply = world.promote_with(Promote { only: vec!["x/y/1".into()], ..asked("s") }).unwrap();
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(world.read("x/y/1"), "1\n");
    assert!(!world.file("x/y/2").exists() && !world.file("3").exists());
    let missed = world.promote_with(Promote { only: vec!["nothing".into()], ..asked("s") });
    assert_eq!(missed.err(), Some(Code::NotFound));
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("3"), "3\n");
}

#[test]
fn litter_stays_behind_unless_asked_for() {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write(".gitignore", "target/\n*.log\n");
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let script = format!(
        "mkdir -p target/x; echo o > target/x/o; echo l > a.log; echo s > src; \
         echo c >> .git/description; mkfifo pipe; echo x > {}/x",
        outside.display()
    );
    world.make("s", &script).unwrap();
    let input = world.dir.path().join("input");
    fs::write(&input, "given").unwrap();
    let to = format!("s:{}", world.file("input").display());
    world.apply(Action::Copy { from: input.display().to_string(), to }).unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    let applied: Vec<&str> = reply.applied.iter().map(|applied| applied.path.as_str()).collect();
    assert_eq!(applied, [world.file("src").to_str().unwrap()]);
    let whys: Vec<&str> = reply.left_out.iter().map(|left| left.why.as_str()).collect();
    let is_live = world.is_live("s");
    // In a copy of the project there is no outside.
    let outside_word = is_live.then_some("outside");
    let expect = ["git", "ignored", "injected"].into_iter().chain(outside_word).chain(["special"]);
    assert_eq!(whys, expect.collect::<Vec<_>>());

    let all =
        Promote { ignored: true, git: true, outside: true, allow_autorun: true, ..asked("s") };
    let reply = world.promote_with(all).unwrap();
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(world.read("target/x/o"), "o\n");
    assert_eq!(world.read("input"), "given");
    assert_eq!(fs::read_to_string(outside.join("x")).ok().as_deref(), is_live.then_some("x\n"));
}

#[test]
fn files_that_run_by_themselves_need_a_word() {
    let world = World::new();
    world.make("s", "echo evil > .envrc; echo fine > a").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Denied);
    assert_eq!(reply.autorun, [world.file(".envrc").display().to_string()]);
    assert!(!world.file("a").exists());
    let allowed = Promote { allow_autorun: true, ..asked("s") };
    assert_eq!(world.promote_with(allowed).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read(".envrc"), "evil\n");
}

#[test]
fn the_gate_judges_what_would_come_out() {
    let world = World::new();
    world.write("a", "1\n2\n3\n");
    world.make("s", "sed -i s/3/three/ a").unwrap();
    world.write("a", "one\n2\n3\n");
    let check = |command: &str| Check {
        name: "c".into(),
        command: command.into(),
        required: true,
        ..Check::default()
    };
    let with = |command: &str| Promote { checks: vec![check(command)], ..asked("s") };
    let reply = world.promote_with(with("grep -q nothing a")).unwrap();
    assert_eq!(reply.verdict, Verdict::Gate, "{reply:?}");
    assert_eq!(world.read("a"), "one\n2\n3\n");
    // Neither the sandbox nor reality has both lines; only the result does.
    let both = "grep -q one a && grep -q three a && echo litter > litter";
    let reply = world.promote_with(with(both)).unwrap();
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(world.read("a"), "one\n2\nthree\n");
    assert!(!world.file("litter").exists(), "what a check writes goes nowhere");
    assert_eq!(world.list().len(), 1, "the rehearsal is gone");
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    let world = World::new();
    world.write("a", "base");
    world.make("s", "echo x > a; echo y > b").unwrap();
    let reply = world.promote_with(Promote { dry_run: true, ..asked("s") }).unwrap();
    let kinds: Vec<ChangeKind> = reply.applied.iter().map(|applied| applied.kind).collect();
    assert_eq!(
        (reply.verdict, kinds),
        (Verdict::Planned, vec![ChangeKind::Modified, ChangeKind::Added])
    );
    assert_eq!((world.read("a").as_str(), world.file("b").exists()), ("base", false));
}

#[test]
fn promotions_follow_each_other_and_come_back_after_an_undo() {
    let world = World::new();
    world.write("a", "0");
    world.make("s", "echo 1 > a").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.promote("s").verdict, Verdict::Nothing);
    world.sh("s", "echo 2 > a").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("a"), "2\n");
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read("a"), "1\n");
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read("a"), "0");
    assert_eq!(world.undo(None).err(), Some(Code::NotFound));
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("a"), "2\n");
    world.write("a", "edited");
    let refused = world.undo(None).unwrap();
    assert_eq!((refused.verdict, conflicts(&refused)), (Verdict::Conflict, vec!["a".to_owned()]));
    assert_eq!(world.read("a"), "edited");
}

#[test]
fn a_child_goes_into_its_parent_and_the_parent_can_go_back() {
    let world = World::new();
    world.write("a", "0");
    world.make("p", "echo 1 > a").unwrap();
    world.fork("p", "c", &fractal::Policy::default()).unwrap();
    world.sh("c", "echo 2 > a; mkdir d; echo new > d/b; rm -f gone").unwrap();
    world.sh("p", "echo other > other").unwrap();
    let reply = world.promote("c");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "p"), "{reply:?}");
    let seen = world.sh("p", "cat a d/b other").unwrap().stdout;
    assert_eq!(seen, "2\nnew\nother\n");
    assert_eq!(world.read("a"), "0");
    let before = reply.notes[0].split(' ').nth(3).unwrap().trim_end_matches('`').to_owned();
    world.rollback("p", &before).unwrap();
    assert_eq!(world.sh("p", "cat a other; ls d").unwrap().stdout, "1\nother\n");

    world.sh("p", "echo mine > a").unwrap();
    let reply = world.promote("c");
    assert_eq!((reply.verdict, conflicts(&reply)), (Verdict::Conflict, vec!["a".to_owned()]));
    let reply = world.promote_with(Promote { to: Some("reality".into()), ..asked("c") }).unwrap();
    assert_eq!(conflicts(&reply), ["a"], "reality has neither the parent's nor the child's");
}

#[test]
fn as_a_patch_or_commit_nothing_but_objects_is_written() {
    let world = World::new();
    world.git(&["init", "-q", "-b", "main"]);
    world.write("a", "1\n2\n3\n");
    world.write("gone", "x");
    world.git(&["add", "-A"]);
    world.git(&["commit", "-qm", "first"]);
    world.write("dirty", "not committed");
    world.make("s", "echo 4 >> a; rm gone; mkdir d; echo 'in d' > 'd/with space'; ln -s a l; echo '#!' > x; chmod +x x").unwrap();
    let index = fs::read(world.file(".git/index")).unwrap();
    let before = tree_without_git(&world);

    let form = |form| Promote { form, ..asked("s") };
    let patch = world.promote_with(form(Form::Patch)).unwrap().made.unwrap();
    let branch = world.promote_with(form(Form::Branch("fix".into()))).unwrap();
    let commit = world.promote_with(form(Form::Commit)).unwrap();
    assert_eq!(tree_without_git(&world), before);
    assert_eq!(fs::read(world.file(".git/index")).unwrap(), index);
    assert_eq!(world.git(&["rev-parse", "fix"]).trim(), branch.made.unwrap());
    let made = commit.made.unwrap();
    for commit in ["fix", made.as_str()] {
        let listed = world.git(&["ls-tree", "-r", commit]);
        let names: Vec<String> = listed
            .lines()
            .map(|line| format!("{} {}", &line[..6], line.split('\t').nth(1).unwrap()))
            .collect();
        assert_eq!(names, ["100644 a", "100644 d/with space", "120000 l", "100755 x"]);
        assert_eq!(world.git(&["show", &format!("{commit}:a")]), "1\n2\n3\n4\n");
        assert_eq!(world.git(&["log", "--format=%s", commit]), "Promote s\nfirst\n");
    }
    let refused = world.promote_with(form(Form::Branch("main".into())));
    assert_eq!(refused.err(), Some(Code::Conflict), "a branch that is checked out does not move");

    let file = world.dir.path().join("patch");
    fs::write(&file, patch).unwrap();
    world.git(&["apply", file.to_str().unwrap()]);
    assert_eq!(world.read("a"), "1\n2\n3\n4\n");
    assert_eq!(world.promote("s").verdict, Verdict::Nothing);
}

fn tree_without_git(world: &World) -> Vec<String> {
    tree(world).into_iter().filter(|row| !row.contains("/.git")).collect()
}

#[test]
fn a_promotion_that_would_leave_the_project_is_refused_by_the_kernel() {
    let world = World::new();
    fs::create_dir(world.file("d")).unwrap();
    world.write("d/f", "f");
    world.make("s", "echo new > d/f").unwrap();
    let elsewhere = world.dir.path().join("elsewhere");
    fs::rename(world.file("d"), &elsewhere).unwrap();
    symlink(&elsewhere, world.file("d")).unwrap();
    let reply = world.promote_with(asked("s"));
    assert!(!matches!(&reply, Ok(reply) if reply.verdict == Verdict::Applied), "{reply:?}");
    assert_eq!(fs::read_to_string(elsewhere.join("f")).unwrap(), "f");
}

#[test]
fn a_guard_whose_output_is_lost_promotes_nothing() {
    let world = World::new();
    world.write("a", "base");
    let open = |name: &str| fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let (null, full) = (|| open("/dev/null").into(), open("/dev/full").into());
    let run = fractal::Run { command: shell("echo said; echo new > a"), ..Default::default() };
    let asked = fractal::model::Guard { run, promote: Promote::default() };
    let io = fractal::RunIo::streaming(null(), full, null());
    let error = world.engine.guard(&world.caller, asked, io).unwrap_err();
    assert!(error.message.contains("nothing is promoted"), "{error}");
    assert!(error.hint.unwrap().contains("fractal promote"));
    assert_eq!(world.read("a"), "base");
    assert_eq!(world.list().len(), 1, "its work is kept");
}

#[test]
fn a_promotion_is_attested_and_tampering_shows() {
    let world = World::new();
    world.write("a", "base");
    world.make("s", "echo new > a").unwrap();
    let undo = world.promote("s").undo.unwrap();
    let verify = || world.apply(Action::Verify { promotion: None });
    let Reply::Verify(reply) = verify().unwrap() else { panic!("verify answers") };
    assert_eq!((reply.promotion, reply.still_stands), (undo, true));
    let command = &reply.statement["predicate"]["buildDefinition"]["externalParameters"]["runs"][0];
    assert_eq!(command["command"][2], "echo new > a");
    world.write("a", "edited");
    let Reply::Verify(reply) = verify().unwrap() else { panic!("verify answers") };
    assert!(!reply.still_stands, "the files are no longer what was promoted");

    let dir = world.engine.home().join("undo").join(undo.as_str());
    for name in ["attestation.json", "plan"] {
        let good = fs::read_to_string(dir.join(name)).unwrap();
        // One character of the payload, or one of a digest.
        let at = good
            .find("payload\":\"")
            .map_or_else(|| good.find("sha256\":\"").unwrap() + 9, |at| at + 40);
        let mut bad = good.clone().into_bytes();
        bad[at] = if bad[at] == b'a' { b'b' } else { b'a' };
        fs::write(dir.join(name), bad).unwrap();
        assert_eq!(verify().err(), Some(Code::Gate), "{name}");
        fs::write(dir.join(name), good).unwrap();
    }
    assert!(verify().is_ok());
    let mode = fs::metadata(world.engine.home().join("keys/ed25519")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600, "the key is nobody else's");
}

#[test]
fn an_edit_that_was_joined_once_is_never_taken_out_again() {
    let world = World::new();
    let text = |lines: &[(usize, &str)]| -> String {
        let line = |n: usize| lines.iter().find(|(at, _)| *at == n).map(|(_, text)| *text);
        (1..=10).map(|n| format!("{}\n", line(n).map_or(n.to_string(), str::to_owned))).collect()
    };
    world.write("a", &text(&[]));
    world.make("s", "sed -i s/^9$/nine/ a").unwrap();
    world.write("a", &text(&[(2, "two")]));
    let joined = text(&[(2, "two"), (9, "nine")]);
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("a"), joined);
    assert_eq!(world.promote("s").verdict, Verdict::Nothing, "once is enough");
    assert_eq!(world.read("a"), joined);
    world.undo(None).unwrap();
    assert_eq!(world.read("a"), text(&[(2, "two")]));
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("a"), joined);
    world.sh("s", "sed -i s/^6$/six/ a").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert_eq!(world.read("a"), text(&[(2, "two"), (6, "six"), (9, "nine")]));
}

#[test]
fn what_is_taken_out_by_hand_after_a_promotion_stays_out() {
    let world = World::new();
    world.write("old", "0");
    world.write("gone", "0");
    world.make("s", "echo n > n; echo 1 > old; rm gone").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    fs::remove_file(world.file("n")).unwrap();
    world.write("old", "0");
    world.write("gone", "0");
    world.sh("s", "echo z > z").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.applied.len(), 1, "{reply:?}");
    assert!(!world.file("n").exists());
    assert_eq!((world.read("old").as_str(), world.read("gone").as_str()), ("0", "0"));
}

#[test]
fn an_edit_that_was_seen_before_a_rollback_and_taken_back_since_does_not_come_again() {
    let world = World::new();
    world.write("t", "1\n2\n3\n");
    world.make("x", "echo k > k").unwrap();
    world.snapshot("x", "s").unwrap();
    world.sh("x", "echo A >> t").unwrap();
    world.rollback("x", "s").unwrap();
    world.write("t", "1\n2\n3\nMISTAKE\n");
    world.sh("x", "echo B >> t").unwrap();
    world.write("t", "1\n2\n3\n");
    let reply = world.promote("x");
    if world.is_live("x") {
        assert_eq!(reply.verdict, Verdict::Conflict, "{:?}", reply.applied);
        assert_eq!(world.read("t"), "1\n2\n3\n");
    } else {
        assert_eq!(world.read("t"), "1\n2\n3\nB\n", "it never saw the edit outside");
    }
}

#[test]
fn what_a_sandbox_stands_on_comes_and_goes_with_its_snapshots() {
    let world = World::new();
    world.write("t", "1\n2\n3\n4\n5\n");
    world.make("x", "echo k > k").unwrap();
    world.snapshot("x", "s").unwrap();
    world.sh("x", "sed -i s/1/A/ t").unwrap();
    world.rollback("x", "s").unwrap();
    world.write("t", "1\n2\n3\n4\nouter\n");
    world.sh("x", "cat t; echo other > o").unwrap();
    // Back on the way that it had left: what it stood on there counts again.
    world.rollback("x", "before-rollback-1").unwrap();
    let reply = world.promote("x");
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    assert_eq!(world.read("t"), "A\n2\n3\n4\nouter\n", "both edits are there");
}

#[test]
fn an_update_that_was_rolled_back_overwrites_nothing_that_it_had_brought() {
    let world = World::new();
    world.write("t", "1\n2\n3\n4\n5\n");
    world.make("x", "sed -i s/1/A/ t").unwrap();
    world.write("t", "1\n2\n3\n4\nouter\n");
    world.update("x", &[], &[]);
    world.rollback("x", "before-update-1").unwrap();
    let reply = world.promote("x");
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    assert_eq!(world.read("t"), "A\n2\n3\n4\nouter\n");
}

#[test]
fn after_a_promotion_and_a_rollback_the_same_file_is_promoted_again() {
    let world = World::new();
    world.write("t", "1\n");
    world.make("x", "echo 2 > t").unwrap();
    if !world.is_live("x") {
        eprintln!("does not apply: its base is a copy, which a promotion does not move");
        return;
    }
    world.promote("x");
    world.rollback("x", "base").unwrap();
    world.sh("x", "echo 3 >> t").unwrap();
    let reply = world.promote("x");
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    assert_eq!(world.read("t"), "2\n3\n");
}

#[test]
fn rights_that_both_changed_are_a_conflict_and_those_of_one_side_are_kept() {
    let world = World::new();
    let mode = |name: &str| world.file(name).metadata().unwrap().permissions().mode() & 0o777;
    let chmod = |name: &str, mode| {
        fs::set_permissions(world.file(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, text) in [("both", "a"), ("text", "a"), ("theirs", "a\nb\nc\n")] {
        world.write(name, text);
        chmod(name, 0o644);
    }
    world.make("x", "chmod 755 both text; echo more >> text; echo d >> theirs").unwrap();
    for name in ["both", "text", "theirs"] {
        chmod(name, 0o600);
    }
    let reply = world.promote("x");
    assert_eq!(reply.verdict, Verdict::Conflict);
    assert_eq!(conflicts(&reply).len(), 2, "{:?}", reply.conflicts);
    assert_eq!((mode("both"), mode("text")), (0o600, 0o600));
    world.make("y", "echo e >> theirs").unwrap();
    chmod("theirs", 0o640);
    assert_eq!(world.promote("y").verdict, Verdict::Applied);
    assert_eq!(mode("theirs"), 0o640);
}

#[test]
fn an_owner_that_was_set_outside_stays() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: no right to give files away");
        return;
    }
    let world = World::new();
    let owner = |name: &str| {
        let meta = world.file(name).metadata().unwrap();
        (meta.uid(), meta.gid())
    };
    for name in ["theirs", "ours", "both"] {
        world.write(name, "a");
    }
    world.make("x", "echo x > theirs; chown 7:7 ours both; echo x > both").unwrap();
    if !world.is_live("x") {
        eprintln!("does not apply: nobody gives files away in a copy");
        return;
    }
    for name in ["theirs", "both"] {
        chown(world.file(name), Some(1234), Some(1235)).unwrap();
    }
    let reply = world.promote("x");
    assert_eq!(conflicts(&reply), ["both"], "{:?}", reply.conflicts);
    let only = vec!["theirs".into(), "ours".into()];
    let reply = world.promote_with(Promote { only, ..asked("x") }).unwrap();
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    assert_eq!((owner("theirs"), owner("ours")), ((1234, 1235), (7, 7)));
    assert_eq!((world.read("theirs"), owner("both")), ("x\n".into(), (1234, 1235)));
}

#[test]
fn a_large_file_that_was_touched_or_taken_back_is_no_conflict() {
    let world = World::new();
    world.write("large", &"0123456789".repeat(300_000));
    world.make("x", "echo >> large").unwrap();
    let touched = fs::File::options().append(true).open(world.file("large")).unwrap();
    touched.set_modified(std::time::SystemTime::now()).unwrap();
    let reply = world.promote("x");
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    world.undo(None).unwrap();
    let reply = world.promote("x");
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
}

#[test]
fn without_a_name_nothing_is_promoted_that_a_try_ruled_out() {
    let world = World::new();
    world.write("t", "1\n");
    let attempt = |name: &str| fractal::model::Attempt {
        name: name.into(),
        command: shell("echo 2 >> t; exit 1"),
    };
    let asked_try =
        fractal::model::Try { attempts: vec![attempt("a"), attempt("b")], ..Default::default() };
    let Reply::Try(tried) = world.apply(Action::Try(Box::new(asked_try))).unwrap() else {
        panic!("try answered something else");
    };
    assert_eq!(tried.winner, None);
    let bare = Promote { sandbox: None, ..asked("") };
    assert_eq!(world.promote_with(bare).unwrap_err(), Code::Gate);
    assert_eq!(world.read("t"), "1\n");
    // By name it is a person's word, which is written down.
    let name = tried.attempts[0].sandbox.clone().unwrap();
    let reply = world.promote(&name);
    assert_eq!(reply.verdict, Verdict::Applied);
    assert!(reply.notes.iter().any(|note| note.contains("overrules")), "{:?}", reply.notes);
}

#[test]
fn an_undo_in_another_directory_leaves_the_promotion_as_it_is() {
    let world = World::new();
    world.make("x", "echo 4 > four").unwrap();
    world.promote("x");
    let (here, away) = (world.project(), world.dir.path().join("away"));
    fs::rename(&here, &away).unwrap();
    fs::create_dir(&here).unwrap();
    assert_eq!(world.undo(None).unwrap_err(), Code::NotFound);
    fs::remove_dir(&here).unwrap();
    fs::rename(&away, &here).unwrap();
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert!(!world.file("four").exists());
}
