//! A line of stages: what comes in, what is kept out and what goes back.

use crate::promote::asked;
use crate::world::World;
use fractal::model::{Promote, PromoteReply, StageKind, StageReport, Verdict, Vote, VoteReply};
use fractal::{Action, Caller, Code, Config, Error, Reply};
use std::fs;
use std::path::PathBuf;

const CHECKS: &str = "[[check]]\nname = \"builds\"\ncommand = \"test -f app\"\n\
                      [[check]]\nname = \"smoke\"\ncommand = \"! grep -q bad app\"\n";

impl World {
    /// The same project with stages.
    pub fn staged(&mut self, stages: &str) {
        fs::write(self.project().join("fractal.toml"), format!("{CHECKS}{stages}")).unwrap();
        self.caller.config = Config::load(&self.project(), None).unwrap();
    }

    pub fn with_stages(stages: &str) -> World {
        let mut world = World::new();
        world.write("app", "v0\n");
        world.staged(stages);
        world
    }

    pub fn to(&self, sandbox: &str, stage: &str) -> PromoteReply {
        self.promote_with(Promote { to: Some(stage.into()), ..asked(sandbox) }).unwrap()
    }

    fn as_who(&self, who: &str) -> Caller {
        Caller { who: who.to_owned(), ..self.caller.clone() }
    }

    fn vote(&self, who: &str, vote: Vote, approved: bool) -> Result<VoteReply, Error> {
        let action = if approved { Action::Approve(vote) } else { Action::Reject(vote) };
        match self.engine.apply(&self.as_who(who), action)? {
            Reply::Vote(reply) => Ok(reply),
            other => panic!("a vote answered {other:?}"),
        }
    }

    fn approve(&self, who: &str, stage: &str) -> Result<VoteReply, Error> {
        self.vote(who, Vote { stage: Some(stage.into()), ..Vote::default() }, true)
    }

    pub fn stages(&self) -> Vec<StageReport> {
        match self.apply(Action::Stages).unwrap() {
            Reply::Stages(reply) => reply.stages,
            other => panic!("stages answered {other:?}"),
        }
    }

    /// What a stage shows of a file.
    fn shown(&self, stage: &str, file: &str) -> String {
        let to = self.dir.path().join("shown");
        let from = format!("{stage}:{}", self.file(file).display());
        self.apply(Action::Copy { from, to: to.display().to_string() }).unwrap();
        fs::read_to_string(to).unwrap()
    }

    /// Which promotion stands in each stage.
    fn standing(&self) -> Vec<Option<String>> {
        let from = |stage: StageReport| stage.stands.map(|promotion| promotion.from);
        self.stages().into_iter().map(from).collect()
    }
}

fn note(reply: &PromoteReply) -> &str {
    reply.notes.first().map(String::as_str).unwrap_or_default()
}

#[test]
fn a_change_walks_from_its_sandbox_to_production() {
    let mut world = World::with_stages("");
    let live = world.dir.path().join("live");
    fs::create_dir(&live).unwrap();
    fs::copy(world.file("app"), live.join("app")).unwrap();
    let log = world.dir.path().join("published");
    world.git(&["init", "-q", "-b", "main"]);
    world.git(&["add", "-A"]);
    world.git(&["commit", "-qm", "first"]);
    world.staged(&format!(
        "[[stage]]\n[[stage]]\n[[stage]]\nchecks = [\"smoke\"]\n\
         [[stage]]\ngit = \"git:staging\"\nchecks = []\n\
         [[stage]]\ndirectory = \"{}\"\napprove = 1\n\
         publish = \"echo $FRACTAL_STAGE $FRACTAL_FROM $(cat $FRACTAL_DIRECTORY/app) >> {}\"\n",
        live.display(),
        log.display()
    ));
    world.make("s", "echo v1 > app; echo new > more").unwrap();

    let reply = world.promote("s");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "verified"), "{reply:?}");
    assert_eq!(reply.checks.len(), 2, "a stage that names no checks has all of them");
    assert_eq!(world.shown("verified", "app"), "v1\n");
    let reply = world.promote("verified");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "dev"), "{reply:?}");
    let reply = world.to("dev", "staging");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "staging"), "{reply:?}");
    assert_eq!(world.git(&["show", "staging:app"]), "v1\n");
    assert_eq!(world.git(&["rev-parse", "staging"]).trim(), reply.made.unwrap());
    assert_eq!(world.git(&["log", "--format=%s", "staging"]), "Promote tested\nfirst\n");

    let reply = world.promote("staging");
    assert_eq!(reply.verdict, Verdict::Denied, "{reply:?}");
    assert!(note(&reply).contains("needs 1 approval"), "{reply:?}");
    assert!(reply.notes[1].contains("somebody other than owner"), "{reply:?}");
    let own = world.approve("owner", "production").unwrap_err();
    assert_eq!(own.code, Code::Denied, "{own}");
    let vote = world.vote("bob", Vote::default(), true).unwrap();
    assert_eq!(
        (vote.stage.as_str(), vote.approvals.as_slice()),
        ("production", &["bob".to_owned()][..])
    );
    let reply = world.promote("staging");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(fs::read_to_string(live.join("app")).unwrap(), "v1\n");
    assert_eq!(fs::read_to_string(live.join("more")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(&log).unwrap(), "production staging v1\n");
    assert_eq!(world.read("app"), "v0\n", "the project itself is no stage here");

    let stages = world.stages();
    let kinds: Vec<&StageKind> = stages.iter().map(|stage| &stage.kind).collect();
    assert_eq!(kinds[3], &StageKind::Git("staging".into()));
    assert!(stages.iter().all(|stage| stage.pending.is_none()), "{stages:?}");
    let last = stages[4].stands.as_ref().unwrap();
    assert_eq!(
        (last.from.as_str(), last.by.as_str(), last.published),
        ("staging", "owner", Some(true))
    );
    assert_eq!((last.approvals.as_slice(), last.checks.len()), (&["bob".to_owned()][..], 2));
    assert_eq!(world.promote("staging").verdict, Verdict::Nothing);

    world.sh("s", "echo v2 > app").unwrap();
    let reply = world.to("s", "production");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Denied, "production"), "{reply:?}");
    assert!(
        reply.notes.iter().any(|note| note.contains("came through verified, dev, tested, staging"))
    );
    assert_eq!(world.git(&["show", "staging:app"]), "v2\n");
    assert_eq!(fs::read_to_string(live.join("app")).unwrap(), "v1\n", "bob approved other content");
}

#[test]
fn a_failing_stage_goes_back_and_later_ones_stay_as_they_were() {
    let mut world = World::with_stages("");
    let live = world.dir.path().join("live");
    fs::create_dir(&live).unwrap();
    fs::copy(world.file("app"), live.join("app")).unwrap();
    world.git(&["init", "-q", "-b", "main"]);
    world.git(&["add", "-A"]);
    world.git(&["commit", "-qm", "first"]);
    let fails = "publish = \"echo cannot ship >&2; exit 3\"\n";
    let line = |publish: [&str; 3]| {
        format!(
            "[[stage]]\n{}[[stage]]\ngit = \"b\"\n{}[[stage]]\ndirectory = \"{}\"\n{}\
             [[stage]]\nname = \"here\"\ndirectory = \".\"\n",
            publish[0],
            publish[1],
            live.display(),
            publish[2]
        )
    };
    world.staged(&line(["", "", ""]));
    world.make("one", "echo v1 > app").unwrap();
    assert_eq!(world.to("one", "here").verdict, Verdict::Applied);
    assert_eq!(world.read("app"), "v1\n");
    let tip = world.git(&["rev-parse", "b"]);
    let stood = world.standing();

    for (at, stage) in ["verified", "dev", "tested"].into_iter().enumerate() {
        let mut publish = ["", "", ""];
        publish[at] = fails;
        world.staged(&line(publish));
        world.make(&format!("two{at}"), "echo v2 > app").unwrap();
        let reply = world.to(&format!("two{at}"), "here");
        assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Gate, stage), "{reply:?}");
        let publish = reply.checks.last().unwrap();
        assert_eq!((publish.name.as_str(), publish.exit), ("publish", 3));
        assert!(publish.output.contains("cannot ship"));
        assert!(reply.notes.iter().any(|note| note.contains("as it was before")), "{reply:?}");
        assert_eq!(world.shown(stage, "app"), "v1\n", "{stage} is back");
        assert_eq!(world.stages()[at].stands.as_ref().unwrap().from, stood[at].clone().unwrap());
        assert_eq!(world.read("app"), "v1\n", "what comes later saw nothing");
        assert_eq!(fs::read_to_string(live.join("app")).unwrap(), "v1\n");
        if at < 2 {
            assert_eq!(world.git(&["rev-parse", "b"]), tip);
        }
        world.drop(&format!("two{at}")).unwrap();
    }
    world.staged(&line(["", "", ""]));
    let reply = world.to("dev", "here");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(world.read("app"), "v2\n");
}

#[test]
fn a_publish_command_that_hangs_is_ended_and_the_stage_goes_back() {
    let line =
        "[[stage]]\nchecks = []\npublish = \"sleep 1000 & wait\"\npublish-time = \"200ms\"\n";
    let world = World::with_stages(line);
    world.make("s", "echo v1 > app").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Gate, "{reply:?}");
    let publish = reply.checks.last().unwrap();
    assert_eq!((publish.exit, publish.why.as_deref()), (124, Some("ended after 200 ms")));
    assert!(reply.notes.iter().any(|note| note.contains("as it was before")), "{reply:?}");
    assert_eq!(world.stages()[0].stands, None);
}

#[test]
fn a_check_at_a_gate_judges_the_stage_with_the_change_in_it() {
    let world = World::with_stages("[[stage]]\nchecks = []\n[[stage]]\nchecks = [\"smoke\"]\n");
    world.make("s", "echo bad > app").unwrap();
    let reply = world.to("s", "dev");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Gate, "dev"), "{reply:?}");
    let stages = world.stages();
    assert_eq!(stages[0].stands.as_ref().unwrap().from, "s");
    assert!(stages[1].stands.is_none());
    assert_eq!(stages[1].pending.as_ref().unwrap().from, "verified");
    let refused = stages[1].refused.as_ref().unwrap();
    assert_eq!(refused.why.as_deref(), Some("a check did not pass"));
    assert_eq!(refused.checks[0].name, "smoke");
    world.make("u", "echo u > part; echo u > rest").unwrap();
    let only = |sandbox: &str| Promote { only: vec!["part".into()], ..asked(sandbox) };
    let reply = world.promote_with(only("u")).unwrap();
    assert_eq!((reply.verdict, reply.applied.len()), (Verdict::Applied, 1), "{reply:?}");
    assert_eq!(world.promote_with(only("verified")).err(), Some(Code::Invalid));
    world.make("t", "echo good > app").unwrap();
    let reply = world.promote("t");
    assert_eq!(reply.verdict, Verdict::Conflict, "two changes of one line: {reply:?}");
    world.sh("s", "echo good > app").unwrap();
    assert_eq!(world.to("s", "dev").verdict, Verdict::Applied);
    assert!(world.stages()[1].refused.is_none());
}

#[test]
fn rejected_early_or_frozen_it_stays_out_and_says_until_when() {
    let mut world = World::with_stages("[[stage]]\n[[stage]]\nwait = \"1d\"\n");
    world.make("s", "echo v1 > app").unwrap();
    world.promote("s");
    let reply = world.promote("verified");
    assert_eq!(reply.verdict, Verdict::Denied);
    assert!(note(&reply).contains("for 1 day: not before 2"), "{reply:?}");
    assert!(world.stages()[1].pending.as_ref().unwrap().waits_until.is_some());

    world.staged("[[stage]]\n[[stage]]\nfreeze = [\"mon 00:00-mon 00:00\"]\n");
    let reply = world.promote("verified");
    assert_eq!(reply.verdict, Verdict::Denied);
    assert!(note(&reply).contains("`dev` is frozen until 2"), "{reply:?}");

    world.staged("[[stage]]\n[[stage]]\napprove = 2\n");
    let dev = || Vote { stage: Some("dev".into()), message: Some("why".into()), sandbox: None };
    assert_eq!(world.vote("bob", dev(), true).unwrap().approvals, ["bob"]);
    assert_eq!(world.vote("bob", dev(), true).unwrap().approvals, ["bob"], "once per key");
    world.vote("cid", dev(), false).unwrap();
    let reply = world.promote("verified");
    assert!(note(&reply).contains("cid rejected this before `dev`"), "{reply:?}");
    assert_eq!(world.stages()[1].rejected_by.as_deref(), Some("cid"));
    world.vote("cid", dev(), true).unwrap();
    assert!(note(&world.promote("verified")).contains("has 1 (by cid)"));
    world.vote("bob", dev(), true).unwrap();
    assert_eq!(world.promote("verified").verdict, Verdict::Applied);
}

#[test]
fn only_promote_writes_a_stage() {
    let mut world = World::with_stages("[[stage]]\n");
    world.make("s", "echo v1 > app").unwrap();
    world.promote("s");
    let row = world.stages()[0].sandbox.clone().unwrap();
    for name in ["verified", row.as_str()] {
        assert_eq!(world.sh(name, "echo x > app").err(), Some(Code::Denied));
        assert_eq!(world.rollback(name, "base").err(), Some(Code::Denied));
        assert_eq!(world.drop(name).err(), Some(Code::Denied));
        let to = format!("{name}:{}", world.file("app").display());
        let from = world.file("app").display().to_string();
        assert_eq!(world.apply(Action::Copy { from, to }).err(), Some(Code::Denied));
    }
    assert_eq!(world.shown("verified", "app"), "v1\n");
    world.fork("verified", "f", &fractal::Policy::default()).unwrap();
    world.sh("f", "cat app; echo v2 > app").unwrap();
    let reply = world.promote("f");
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "verified"), "{reply:?}");
    assert_eq!(world.shown("verified", "app"), "v2\n");
    world.drop("f").unwrap();
    world.staged("");
    assert_eq!(world.drop(&row), Ok(()), "it is no stage any more");
}

#[test]
fn without_a_word_reality_is_out_of_reach_and_undo_takes_a_stage_back() {
    let mut world = World::with_stages("[[stage]]\n");
    world.make("s", "echo v1 > app").unwrap();
    let direct = Promote { to: Some("reality".into()), ..asked("s") };
    assert_eq!(world.promote_with(direct.clone()).err(), Some(Code::Denied));
    let unknown = Promote { to: Some("nowhere".into()), ..asked("s") };
    assert_eq!(world.promote_with(unknown).err(), Some(Code::NotFound));
    assert_eq!(world.promote("s").stage, "verified");
    assert_eq!(world.promote_with(asked("verified")).err(), Some(Code::Invalid), "it is the last");

    world.staged("[[stage]]\n[[stage]]\nname = \"here\"\ndirectory = \".\"\n");
    let reply = world.promote_with(direct.clone()).unwrap();
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "here"), "{reply:?}");
    assert_eq!(world.read("app"), "v1\n");
    assert_eq!(world.standing(), [Some("s".into()), Some("verified".into())]);
    world.undo(None).unwrap();
    assert_eq!(world.read("app"), "v0\n");
    assert_eq!(world.standing(), [Some("s".into()), None]);
    assert_eq!(world.promote("verified").verdict, Verdict::Applied, "and it comes again");
    assert_eq!(world.read("app"), "v1\n");
}

#[test]
fn what_could_not_be_put_back_stands_unpublished_until_it_is_published() {
    let mut world = World::with_stages("");
    let live = world.dir.path().join("live");
    fs::create_dir(&live).unwrap();
    fs::copy(world.file("app"), live.join("app")).unwrap();
    let line = |publish: &str| {
        format!(
            "[[stage]]\nchecks = []\ndirectory = \"{}\"\npublish = \"{publish}\"\n\
             [[stage]]\nchecks = []\n",
            live.display()
        )
    };
    world.staged(&line("echo theirs > $FRACTAL_DIRECTORY/app; exit 1"));
    world.make("s", "echo v1 > app").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Gate);
    assert!(note(&reply).contains("could not be put back"), "{reply:?}");
    assert_eq!(fs::read_to_string(live.join("app")).unwrap(), "theirs\n");
    let stands = world.stages()[0].stands.clone().unwrap();
    assert_eq!((stands.from.as_str(), stands.published), ("s", Some(false)));
    let reply = world.promote("verified");
    assert_eq!(reply.verdict, Verdict::Denied);
    assert!(note(&reply).contains("was not published yet"), "{reply:?}");

    world.staged(&line("true"));
    fs::write(live.join("app"), "v1\n").unwrap();
    let reply = world.promote("s");
    assert_eq!((reply.verdict, reply.checks.len()), (Verdict::Nothing, 1), "{reply:?}");
    assert_eq!(world.stages()[0].stands.as_ref().unwrap().published, Some(true));
    assert_eq!(world.promote("verified").verdict, Verdict::Applied);
}

#[test]
fn layers_follow_a_directory_that_has_everything_already() {
    let mut world = World::with_stages("");
    let live = world.dir.path().join("live");
    fs::create_dir(&live).unwrap();
    let directory = live.display();
    world.staged(&format!(
        "[[stage]]\nchecks = []\ndirectory = \"{directory}\"\n[[stage]]\nchecks = []\n"
    ));
    world.make("s", "echo v1 > app").unwrap();
    // As a crash leaves it between the files and their record.
    fs::write(live.join("app"), "v1\n").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Nothing);
    assert_eq!(world.standing(), [Some("s".into()), None]);
    assert_eq!(world.promote("verified").verdict, Verdict::Applied);
    assert_eq!(world.shown("dev", "app"), "v1\n");
}

#[test]
fn a_stage_takes_any_number_of_promotions() {
    let world = World::with_stages("[[stage]]\nchecks = []\n");
    world.make("s", "true").unwrap();
    for round in 0..20 {
        world.sh("s", &format!("echo {round} > app; echo {round} > f{round}")).unwrap();
        assert_eq!(world.promote("s").verdict, Verdict::Applied, "{round}");
    }
    assert_eq!(world.shown("verified", "app"), "19\n");
    assert_eq!(world.shown("verified", "f0"), "0\n");
    match world.apply(Action::Show { sandbox: Some("verified".into()) }).unwrap() {
        Reply::Show(show) => {
            assert!(show.depth < 43, "{} layers", show.depth);
            assert_eq!(show.snapshots.len(), 1, "what the newest one can go back to");
        }
        other => panic!("show answered {other:?}"),
    }
}

#[test]
fn a_directory_is_compared_with_what_the_change_was_made_on() {
    let mut world = World::with_stages("");
    let live: PathBuf = world.dir.path().join("live");
    world.write("app", "1\n2\n3\n4\n5\n");
    world.staged(&format!("[[stage]]\ndirectory = \"{}\"\n", live.display()));
    world.make("s", "sed -i s/5/five/ app").unwrap();
    assert_eq!(world.promote_with(asked("s")).err(), Some(Code::NotFound), "it is not there");
    fs::create_dir(&live).unwrap();
    fs::write(live.join("app"), "one\n2\n3\n4\n5\n").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert!(reply.applied[0].merged);
    assert_eq!(fs::read_to_string(live.join("app")).unwrap(), "one\n2\n3\n4\nfive\n");
    fs::write(live.join("app"), "one\n2\n3\n4\nFIVE\n").unwrap();
    world.sh("s", "sed -i s/five/6/ app").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Conflict, "{reply:?}");
    assert_eq!(world.read("app"), "1\n2\n3\n4\n5\n");

    let undo = world.stages()[0].stands.as_ref().unwrap().undo.unwrap();
    fs::write(live.join("app"), "one\n2\n3\n4\nfive\n").unwrap();
    assert_eq!(world.undo(Some(undo.as_str())).unwrap().verdict, Verdict::Applied);
    assert_eq!(fs::read_to_string(live.join("app")).unwrap(), "one\n2\n3\n4\n5\n");
    assert_eq!(world.standing(), [None], "what undo takes back no longer stands");
    let ours = Promote { ours: vec!["app".into()], ..asked("s") };
    assert_eq!(world.promote_with(ours).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.shown("verified", "app"), "1\n2\n3\n4\n6\n", "its layers follow");
}

#[test]
fn somebody_elses_commit_on_a_branch_is_a_conflict() {
    let mut world = World::with_stages("");
    world.git(&["init", "-q", "-b", "main"]);
    world.write("other", "o\n");
    world.git(&["add", "-A"]);
    world.git(&["commit", "-qm", "first"]);
    world.staged("[[stage]]\ngit = \"b\"\nchecks = []\n");
    world.make("s", "echo v1 > app").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    world.git(&["worktree", "add", "-q", "../tree", "b"]);
    let busy = world.promote_with(asked("s"));
    assert!(matches!(busy, Ok(ref reply) if reply.verdict == Verdict::Nothing), "{busy:?}");
    world.sh("s", "echo v2 > app").unwrap();
    assert_eq!(world.promote_with(asked("s")).err(), Some(Code::Conflict), "it is checked out");
    fs::write(world.dir.path().join("tree/app"), "theirs\n").unwrap();
    world.git(&["-C", "../tree", "commit", "-qam", "theirs"]);
    world.git(&["worktree", "remove", "--force", "../tree"]);
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Conflict, "{reply:?}");
    world.sh("s", "echo v1 > app; echo o2 > other").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "another file: {reply:?}");
    assert_eq!(world.git(&["show", "b:app"]), "theirs\n");
    assert_eq!(world.git(&["show", "b:other"]), "o2\n");
}
