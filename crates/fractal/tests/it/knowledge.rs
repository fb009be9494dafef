//! What was tried is written down, found again and taken out.

use crate::world::{World, shell};
use fractal::model::{
    Extract, Find, FindReply, GraphAsk, IndexVerb, Key, KeyVerb, LearnedReply, LintReply, Note,
    NoteRelation, NoteReply, Promote, SkunkNew, SkunkReply, SkunkVerb, Try,
};
use fractal::{Action, Caller, Code, Config, Reply, Run, RunReply};
use std::fs;
use std::path::{Path, PathBuf};

const NAME: &str = "pool-timeouts";

trait Knowledge {
    fn skunk(&self, verb: SkunkVerb) -> Result<Reply, Code>;
    fn begin(&self) -> SkunkReply;
    fn tried(&self, script: &str) -> RunReply;
    fn ask(&self, text: &str) -> FindReply;
    fn note(&self, note: Note) -> Result<NoteReply, Code>;
    fn learned(&self) -> LearnedReply;
    fn bundle(&self) -> PathBuf;
}

impl Knowledge for World {
    fn skunk(&self, verb: SkunkVerb) -> Result<Reply, Code> {
        self.apply(Action::Skunk(Box::new(verb)))
    }

    fn begin(&self) -> SkunkReply {
        let new = SkunkNew { title: "Pool timeouts".into(), ..SkunkNew::default() };
        match self.skunk(SkunkVerb::New(new)) {
            Ok(Reply::Skunk(reply)) => *reply,
            other => panic!("skunk new answered {other:?}"),
        }
    }

    fn tried(&self, script: &str) -> RunReply {
        let experiment = Some(NAME.to_owned());
        self.run(Run { command: shell(script), experiment, ..Run::default() }).unwrap()
    }

    fn ask(&self, text: &str) -> FindReply {
        let asked = Find { text: text.into(), ..Find::default() };
        match self.apply(Action::Find(Box::new(asked))) {
            Ok(Reply::Find(reply)) => *reply,
            other => panic!("find answered {other:?}"),
        }
    }

    fn note(&self, note: Note) -> Result<NoteReply, Code> {
        match self.apply(Action::Note(Box::new(note)))? {
            Reply::Note(reply) => Ok(reply),
            other => panic!("note answered {other:?}"),
        }
    }

    fn learned(&self) -> LearnedReply {
        match self.apply(Action::Learned { since_ms: None }) {
            Ok(Reply::Learned(reply)) => reply,
            other => panic!("learned answered {other:?}"),
        }
    }

    fn bundle(&self) -> PathBuf {
        self.project().join("sandbox/pool-timeouts_skunkworks")
    }
}

fn titled(title: &str) -> Note {
    Note { title: title.into(), ..Note::default() }
}

fn files_of(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn only_file(dir: &Path) -> PathBuf {
    let names = files_of(dir);
    assert_eq!(names.len(), 1, "{names:?}");
    dir.join(&names[0])
}

#[test]
fn a_run_of_an_experiment_is_written_down_with_its_evidence() {
    let world = World::new();
    world.begin();
    let reply = world
        .tried("echo out; echo 'PoolError: timed out after 31 s' >&2; echo x > made.txt; exit 3");
    assert_eq!((reply.exit, reply.stdout.as_str()), (3, "out\n"));
    let recorded = reply.recorded.expect("it belongs to an experiment");
    assert_eq!((recorded.experiment.as_str(), recorded.failed), (NAME, None));
    let file = world.project().join(&recorded.path);
    let text = fs::read_to_string(&file).unwrap();
    for part in [
        "type: Experiment",
        "outcome: failed",
        "file: made.txt",
        "sandbox: ",
        "failed-with",
        "PoolError",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let dir = file.parent().unwrap();
    assert_eq!(
        files_of(dir),
        ["experiment.md", "metrics.jsonl", "patch.diff", "run.json", "stderr", "stdout"]
    );
    assert_eq!(fs::read_to_string(dir.join("stdout")).unwrap(), "out\n");
    assert!(fs::read_to_string(dir.join("patch.diff")).unwrap().contains("+++ b/made.txt"));
    let failure = fs::read_to_string(only_file(&world.bundle().join("failures"))).unwrap();
    assert!(
        failure.contains("signature: \"exit 3: PoolError: timed out after <n> s\""),
        "{failure}"
    );
}

#[test]
fn the_same_failure_is_written_down_once_and_counted() {
    let world = World::new();
    world.begin();
    for seconds in 1..=3 {
        world.tried(&format!("echo 'PoolError: timed out after {seconds} s' >&2; exit 3"));
    }
    world.tried("true");
    let failure = only_file(&world.bundle().join("failures"));
    let id = fs::read_to_string(&failure).unwrap();
    let id = id.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().trim_matches('"');
    world
        .note(Note {
            relations: vec![NoteRelation { kind: "fixes".into(), to: id.into() }],
            experiment: Some(NAME.into()),
            ..titled("Keepalive below the balancer's limit")
        })
        .unwrap();
    let learned = world.learned();
    assert_eq!((learned.passed, learned.failed), (1, 3));
    let group = &learned.failures[0];
    assert_eq!((learned.failures.len(), group.times), (1, 3));
    assert_eq!(group.fixed_by[0].title, "Keepalive below the balancer's limit");
    let ask = GraphAsk { around: Some(id.into()), fixes: true, ..GraphAsk::default() };
    let Ok(Reply::Graph(graph)) = world.apply(Action::Graph(ask)) else { panic!("no graph") };
    assert!(graph.edges.iter().any(|edge| edge.kind == "fixes" && edge.to == id), "{graph:?}");
}

#[test]
fn who_stands_in_an_experiment_writes_there() {
    let mut world = World::new();
    world.begin();
    world.caller.directory = world.bundle();
    let reply = world.run(Run { command: shell("exit 0"), ..Run::default() }).unwrap();
    assert_eq!(reply.recorded.expect("it is written down").experiment, NAME);
    let note = world.note(titled("Here")).unwrap();
    assert!(note.path.starts_with("sandbox/pool-timeouts_skunkworks/insights/"), "{note:?}");
    // A part of it.
    let new = SkunkNew { title: "Retry policy".into(), ..SkunkNew::default() };
    let Ok(Reply::Skunk(part)) = world.skunk(SkunkVerb::New(new)) else { panic!("no part") };
    assert_eq!(part.skunk.name, "pool-timeouts/retry-policy");
    world.caller.directory = world.dir.path().join("project");
    let reply = world.run(Run { command: shell("exit 0"), ..Run::default() }).unwrap();
    assert_eq!(reply.recorded, None);
}

#[test]
fn attempts_and_promotions_are_written_down() {
    let world = World::new();
    world.begin();
    let attempt = |name: &str, script: &str| fractal::model::Attempt {
        name: name.into(),
        command: shell(script),
    };
    let asked = Try {
        attempts: vec![attempt("good", "echo 1 > r.txt"), attempt("bad", "echo no >&2; exit 4")],
        run: Run { experiment: Some(NAME.into()), ..Run::default() },
        ..Try::default()
    };
    let Ok(Reply::Try(reply)) = world.apply(Action::Try(Box::new(asked))) else { panic!("no try") };
    assert_eq!(reply.recorded.len(), 2);
    assert!(reply.recorded.iter().all(|one| one.failed.is_none()), "{:?}", reply.recorded);
    assert_eq!(files_of(&world.bundle().join("experiments")).len(), 2);
    // The sandbox of the winner remembers where it belongs.
    let winner = reply.attempts[0].sandbox.clone();
    let promote = Promote { sandbox: winner, ..Promote::default() };
    let Ok(Reply::Promote(reply)) = world.apply(Action::Promote(Box::new(promote))) else {
        panic!("no promotion")
    };
    assert_eq!(reply.recorded.expect("it is written down").experiment, NAME);
    let decision = fs::read_to_string(only_file(&world.bundle().join("decisions"))).unwrap();
    assert!(decision.contains("file: r.txt"), "{decision}");
    assert!(!decision.contains(world.dir.path().to_str().unwrap()), "{decision}");
}

#[test]
fn records_are_no_change_under_a_sandbox() {
    let world = World::new();
    world.begin();
    world.make("box", "echo 1 > a.txt").unwrap();
    world.tried("exit 1");
    let Ok(Reply::Show(show)) = world.apply(Action::Show { sandbox: Some("box".into()) }) else {
        panic!("no sandbox")
    };
    assert_eq!(show.stale, None);
}

#[test]
fn secrets_are_not_written_down() {
    let world = World::new();
    world.begin();
    world.tried("echo 'api_key=abcdef123456 token ghp_abcdefghijklmnopqrstuvwxyz0123'; echo 'password: hunter22' >&2; echo 'ghp_abcdefghijklmnopqrstuvwxyz0123' > leak.txt; exit 1");
    let mut queue = vec![world.bundle()];
    let mut seen = 0;
    while let Some(dir) = queue.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            if entry.path().is_dir() {
                queue.push(entry.path());
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap();
            for secret in ["abcdef123456", "ghp_abc", "hunter22"] {
                assert!(!text.contains(secret), "{secret} in {}: {text}", entry.path().display());
            }
            seen += 1;
        }
    }
    assert!(seen > 5);
}

#[test]
fn a_record_that_cannot_be_written_is_told_of_and_the_run_counts() {
    let world = World::new();
    world.begin();
    // A file where the folder of experiments would be.
    fs::write(world.bundle().join("experiments"), "x").unwrap();
    let reply = world.tried("echo fine");
    assert_eq!((reply.exit, reply.stdout.as_str()), (0, "fine\n"));
    let recorded = reply.recorded.expect("it is told of");
    assert!(recorded.failed.is_some() && recorded.path.is_empty(), "{recorded:?}");
}

#[test]
fn notes_without_an_experiment_are_the_users_own() {
    let world = World::new();
    let note = world.note(Note { body: "Because.".into(), ..titled("Use tabs") }).unwrap();
    assert_eq!(note.root, "notes");
    assert!(Path::new(note.file.as_ref().unwrap()).starts_with(world.engine.home()));
    assert_eq!(world.ask("tabs").hits[0].key, note.noted.to_string());
    assert!(!world.project().join("sandbox").exists());
}

#[test]
fn bad_notes_are_refused_and_write_nothing() {
    let world = World::new();
    let check = |note: Note, code: Code| assert_eq!(world.note(note).unwrap_err(), code);
    check(titled(""), Code::Invalid);
    check(titled("two\nlines"), Code::Invalid);
    check(titled(&"x".repeat(301)), Code::Invalid);
    check(Note { kind: Some("experiment".into()), ..titled("x") }, Code::Invalid);
    check(Note { tags: vec!["\u{1b}[31m".into()], ..titled("x") }, Code::Invalid);
    check(Note { body: "a\0b".into(), ..titled("x") }, Code::Invalid);
    check(Note { body: "x".repeat((1 << 20) + 1), ..titled("x") }, Code::Invalid);
    check(Note { experiment: Some("none".into()), ..titled("x") }, Code::NotFound);
    let to = |kind: &str, to: &str| Note {
        relations: vec![NoteRelation { kind: kind.into(), to: to.into() }],
        ..titled("x")
    };
    check(to("fixes", "01JQ0000000000000000000001"), Code::NotFound);
    check(to("fixes", "nowhere.md"), Code::NotFound);
    check(to("not a word", "file:x"), Code::Invalid);
    assert!(!world.engine.home().join("notes").exists());
}

#[test]
fn titles_that_look_like_code_are_titles() {
    let world = World::new();
    for title in [
        "'}) DETACH DELETE n //",
        "---",
        "\"; DROP TABLE files; --",
        "[x](y) `z` \\",
        "# not a heading",
    ] {
        let note = world.note(Note { body: "marker".into(), ..titled(title) }).unwrap();
        let found = world.ask("marker").hits;
        assert!(found.iter().any(|hit| hit.title == title), "{title}: {found:?}");
        assert_eq!(note.title, title);
    }
    let Ok(Reply::Lint(LintReply { faults, .. })) = world.apply(Action::Index(IndexVerb::Lint))
    else {
        panic!("no lint")
    };
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn a_pattern_is_taken_out_and_a_new_sandbox_has_it() {
    let mut world = World::new();
    world.begin();
    fs::create_dir(world.bundle().join("src")).unwrap();
    fs::write(world.bundle().join("src/pool.toml"), "keepalive = 20\n").unwrap();
    fs::write(world.project().join("fractal.toml"), "# ours\nttl = \"1d\"").unwrap();
    world.tried("echo 'PoolError: gone' >&2; exit 1");
    world.tried("echo works");
    let extract = |template: &str, files: &[&str]| {
        SkunkVerb::Extract(Extract {
            name: NAME.into(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            template: Some(template.into()),
            insight: Some("Below the balancer.".into()),
            ..Extract::default()
        })
    };
    let Ok(Reply::Extract(reply)) = world.skunk(extract("pooled", &["src"])) else {
        panic!("none")
    };
    assert_eq!(reply.files, ["src/pool.toml"]);
    let pattern = fs::read_to_string(world.project().join(&reply.pattern.path)).unwrap();
    for part in ["type: Pattern", "Below the balancer.", "## What works", "## What failed", "cites"]
    {
        assert!(pattern.contains(part), "{part} in {pattern}");
    }
    let settings = fs::read_to_string(world.project().join("fractal.toml")).unwrap();
    assert!(settings.starts_with("# ours\nttl = \"1d\"\n"), "{settings}");
    let problem = fs::read_to_string(world.bundle().join("problem.md")).unwrap();
    assert!(problem.contains("extracted-to"), "{problem}");
    world.caller.config = Config::load(&world.project(), None).unwrap();
    let reply = world
        .run(Run {
            command: shell("cat $FRACTAL_PATTERN/src/pool.toml"),
            template: Some("pooled".into()),
            discard: true,
            ..Run::default()
        })
        .unwrap();
    assert_eq!(reply.stdout, "keepalive = 20\n", "{}", reply.stderr);
    // What is refused leaves everything as it was.
    let patterns = files_of(&world.bundle().join("patterns"));
    std::os::unix::fs::symlink("/etc", world.bundle().join("link")).unwrap();
    let check = |verb: SkunkVerb, code: Code| assert_eq!(world.skunk(verb).unwrap_err(), code);
    check(extract("pooled", &[]), Code::Exists);
    check(extract("clone", &[]), Code::Exists);
    check(extract("a b", &[]), Code::Invalid);
    check(extract("new", &["../../fractal.toml"]), Code::Invalid);
    check(extract("new", &["/etc/passwd"]), Code::Invalid);
    check(extract("new", &["link/passwd"]), Code::Invalid);
    check(extract("new", &["missing"]), Code::NotFound);
    assert_eq!(files_of(&world.bundle().join("patterns")), patterns);
    assert_eq!(fs::read_to_string(world.project().join("fractal.toml")).unwrap(), settings);
}

#[test]
fn experiments_are_named_once_archived_and_adopted() {
    let world = World::new();
    let made = world.begin();
    assert_eq!((made.skunk.name.as_str(), made.skunk.status.as_str()), (NAME, "open"));
    let again = SkunkNew { title: "Pool: timeouts!".into(), ..SkunkNew::default() };
    assert_eq!(world.skunk(SkunkVerb::New(again)).unwrap_err(), Code::Exists);
    let nothing = SkunkNew { title: " ".into(), ..SkunkNew::default() };
    assert_eq!(world.skunk(SkunkVerb::New(nothing)).unwrap_err(), Code::Invalid);
    let names = |all: bool| match world.skunk(SkunkVerb::List { all }) {
        Ok(Reply::Skunks { skunks }) => skunks.into_iter().map(|it| it.name).collect::<Vec<_>>(),
        other => panic!("list answered {other:?}"),
    };
    world.skunk(SkunkVerb::Archive { name: NAME.into(), undo: false }).unwrap();
    assert_eq!((names(false), names(true)), (vec![], vec![NAME.to_owned()]));
    assert_eq!(world.ask("timeouts").hits[0].status, "archived");
    world.skunk(SkunkVerb::Archive { name: NAME.into(), undo: true }).unwrap();
    assert_eq!(names(false), [NAME]);
    // A directory from elsewhere is copied and stays.
    let old = world.dir.path().join("old_idea");
    fs::create_dir_all(old.join("src")).unwrap();
    fs::write(old.join("src/a.py"), "1\n").unwrap();
    let import = |from: &Path| SkunkVerb::Import { from: from.display().to_string(), title: None };
    let Ok(Reply::Skunk(copied)) = world.skunk(import(&old)) else { panic!("no import") };
    assert_eq!(copied.skunk.title, "old idea");
    assert!(world.project().join("sandbox/old-idea_skunkworks/src/a.py").is_file());
    assert!(old.join("src/a.py").is_file() && !old.join("problem.md").exists());
    // One that lies where experiments do is adopted.
    let there = world.project().join("sandbox/by-hand_skunkworks");
    fs::create_dir(&there).unwrap();
    world.skunk(import(&there)).unwrap();
    assert!(there.join("problem.md").is_file());
    assert_eq!(names(false), ["by-hand", "old-idea", NAME]);
    assert_eq!(world.skunk(import(&there)).unwrap_err(), Code::Exists);
    assert_eq!(world.skunk(import(&world.project())).unwrap_err(), Code::Invalid);
    assert_eq!(world.skunk(import(Path::new("/nonexistent/x"))).unwrap_err(), Code::NotFound);
}

#[test]
fn an_environment_is_made_by_the_real_tool_or_not_at_all() {
    let mut world = World::new();
    world.caller.environment = vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())];
    for name in ["CARGO_HOME", "RUSTUP_HOME", "HOME"] {
        if let Some(value) = std::env::var_os(name) {
            world.caller.environment.push((name.into(), value));
        }
    }
    let new = |title: &str, with: &str| {
        SkunkVerb::New(SkunkNew {
            title: title.into(),
            with: Some(with.into()),
            ..SkunkNew::default()
        })
    };
    assert_eq!(world.skunk(new("x", "make")).unwrap_err(), Code::Invalid);
    match world.skunk(new("Fast parsing", "cargo")) {
        Ok(Reply::Skunk(reply)) => {
            assert_eq!(reply.skunk.with.as_deref(), Some("cargo"));
            let dir = world.project().join("sandbox/fast-parsing_skunkworks");
            for file in ["Cargo.toml", "Cargo.lock", "src/main.rs", "problem.md"] {
                assert!(dir.join(file).is_file(), "{file}");
            }
        }
        // A user who may not use the one there is.
        Err(Code::Unsupported | Code::Failed) => {
            assert!(!world.project().join("sandbox").exists());
        }
        other => panic!("skunk new answered {other:?}"),
    }
    // A tool that fails leaves nothing behind.
    let adding = SkunkNew {
        title: "No such package".into(),
        with: Some("cargo".into()),
        add: vec!["there-is-no-such-crate-at-all".into()],
        ..SkunkNew::default()
    };
    let error = world.skunk(SkunkVerb::New(adding)).unwrap_err();
    assert!(matches!(error, Code::Failed | Code::Unsupported), "{error:?}");
    assert!(!world.project().join("sandbox/no-such-package_skunkworks").exists());
    let Ok(Reply::List(list)) = world.apply(Action::List) else { panic!("no list") };
    assert!(list.sandboxes.is_empty(), "{list:?}");
}

/// A key of a tenant, as a server would have it.
fn caller_of(world: &World, tenant: &str, role: &str) -> Caller {
    let make = KeyVerb::Create {
        role: role.into(),
        name: Some(format!("{tenant}-{role}")),
        tenant: Some(tenant.into()),
        scope: None,
        ask: Default::default(),
        ttl_ms: None,
        endless: false,
        rate_per_minute: None,
        concurrent: None,
    };
    let Ok(Reply::KeyMade(made)) = world.apply(Action::Key(make)) else { panic!("no key") };
    let key: &Key = &made.key;
    Caller::of_key(key, world.project(), Config::default())
}

#[test]
fn tenants_have_notes_of_their_own() {
    let world = World::new();
    world.begin();
    world.note(Note { experiment: Some(NAME.into()), ..titled("Owner's ostrich") }).unwrap();
    let (ann, bob) = (caller_of(&world, "ann", "runner"), caller_of(&world, "bob", "runner"));
    let apply = |caller: &Caller, action: Action| world.engine.apply(caller, action);
    let note =
        |caller: &Caller, title: &str| match apply(caller, Action::Note(Box::new(titled(title)))) {
            Ok(Reply::Note(reply)) => reply,
            other => panic!("note answered {other:?}"),
        };
    let of_ann = note(&ann, "Ann's ostrich");
    note(&bob, "Bob's ostrich");
    assert_eq!(of_ann.file, None, "where it lies is not theirs to know");
    let titles = |caller: &Caller| match apply(
        caller,
        Action::Find(Box::new(Find { text: "ostrich".into(), ..Find::default() })),
    ) {
        Ok(Reply::Find(reply)) => reply.hits.into_iter().map(|hit| hit.title).collect::<Vec<_>>(),
        other => panic!("find answered {other:?}"),
    };
    assert_eq!(titles(&ann), ["Ann's ostrich"]);
    assert_eq!(titles(&bob), ["Bob's ostrich"]);
    assert_eq!(titles(&world.caller).len(), 3);
    // By id neither.
    let around = GraphAsk { around: Some(of_ann.noted.to_string()), ..GraphAsk::default() };
    let foreign = apply(&bob, Action::Graph(around.clone())).unwrap_err();
    let missing = GraphAsk { around: Some("01JQ0000000000000000000001".into()), ..around };
    let missing = apply(&bob, Action::Graph(missing)).unwrap_err();
    assert_eq!(foreign.code, missing.code);
    // The project is the owner's.
    let refused = |action: Action| assert_eq!(apply(&ann, action).unwrap_err().code, Code::Denied);
    refused(Action::Skunk(Box::new(SkunkVerb::List { all: true })));
    refused(Action::Note(Box::new(Note { experiment: Some(NAME.into()), ..titled("x") })));
    refused(Action::Run(Run {
        command: shell("true"),
        experiment: Some(NAME.into()),
        ..Run::default()
    }));
    refused(Action::Index(IndexVerb::AddModel { from: "/etc".into() }));
    refused(Action::Index(IndexVerb::Rebuild));
}

#[test]
fn what_sandboxes_keep_in_volumes_is_found_and_never_led_out_of() {
    let world = World::new();
    let run = Run {
        command: shell(
            "mkdir -p /data/knowledge /data/memory; printf '# A cassowary\\n' > /data/knowledge/bird.md; \
             printf '# An emu\\n' > /data/memory/other.md; ln -s /etc /data/knowledge/out; \
             ln -s /etc/hostname /data/knowledge/name.md; mkfifo /data/knowledge/pipe.md",
        ),
        template: Some("standard".into()),
        discard: true,
        ..Run::default()
    };
    let reply = world.run(run).unwrap();
    assert_eq!(reply.exit, 0, "{}", reply.stderr);
    assert_eq!(world.ask("cassowary").hits[0].title, "A cassowary");
    let emu = world.ask("emu");
    assert!(emu.hits[0].root.starts_with("volume/"), "{emu:?}");
    assert_eq!(emu.records, 2);
}

#[test]
fn the_cache_is_only_a_cache() {
    let world = World::new();
    world.begin();
    for script in ["exit 1", "echo a; exit 2", "true"] {
        world.tried(script);
    }
    world.note(titled("Sockets and pools")).unwrap();
    let answers = || {
        ["pool", "sockets", "exit", "true"].map(|it| serde_json::to_string(&world.ask(it)).unwrap())
    };
    let before = answers();
    fs::remove_dir_all(world.engine.home().join("cache")).unwrap();
    assert_eq!(answers(), before);
    world.apply(Action::Index(IndexVerb::Rebuild)).unwrap();
    assert_eq!(answers(), before);
    let Ok(Reply::Lint(reply)) = world.apply(Action::Index(IndexVerb::Verify)) else {
        panic!("none")
    };
    assert!(reply.faults.is_empty(), "{reply:?}");
}

/// Git in a directory; its output where it succeeds.
fn git(dir: &Path, words: &[&str]) -> String {
    let done = std::process::Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(words)
        .current_dir(dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success(),
        "git {words:?}: {text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    text
}

#[test]
fn what_two_clones_wrote_is_joined_by_git_without_a_conflict() {
    let mut world = World::new();
    world.begin();
    let (here, there) = (world.project(), world.dir.path().join("clone"));
    git(&here, &["init", "-q"]);
    git(&here, &["add", "."]);
    git(&here, &["commit", "-qm", "begin"]);
    git(world.dir.path(), &["clone", "-q", "project", "clone"]);
    // Both try the same, and fail alike.
    for place in [&here, &there] {
        world.caller.directory = place.clone();
        world.tried("echo 'PoolError: timed out' >&2; exit 1");
        world.note(Note { experiment: Some(NAME.into()), ..titled("Seen here, too") }).unwrap();
        git(place, &["add", "."]);
        git(place, &["commit", "-qm", "tried"]);
    }
    world.caller.directory = here.clone();
    assert_eq!(world.ask("seen here").hits.iter().filter(|hit| hit.kind == "Insight").count(), 1);
    git(&here, &["pull", "-q", "--no-rebase", "--no-edit", "../clone"]);
    let hits = world.ask("seen here").hits;
    assert_eq!(hits.iter().filter(|hit| hit.kind == "Insight").count(), 2);
    let learned = world.learned();
    assert_eq!((learned.failed, learned.failures.len(), learned.failures[0].times), (2, 1, 2));
    let Ok(Reply::Lint(lint)) = world.apply(Action::Index(IndexVerb::Lint)) else { panic!("none") };
    assert!(lint.faults.is_empty(), "{lint:?}");
    // The pages are right again with the next record.
    world.tried("true");
    let page = fs::read_to_string(world.bundle().join("index.md")).unwrap();
    assert_eq!(page.matches("Seen here, too").count(), 2, "{page}");
    assert!(!page.contains("<<<<"), "{page}");
}

#[test]
fn a_note_of_a_hundred_megabytes_is_kept_and_found_by_its_beginning() {
    let world = World::new();
    world.begin();
    let big = world.bundle().join("insights/big.md");
    fs::create_dir_all(big.parent().unwrap()).unwrap();
    fs::write(&big, "---\ntype: Insight\ntitle: Very long\n---\nA quokka.\n").unwrap();
    let file = fs::OpenOptions::new().write(true).open(&big).unwrap();
    file.set_len(100 << 20).unwrap();
    assert_eq!(world.ask("quokka").hits[0].title, "Very long");
    let Ok(Reply::Lint(lint)) = world.apply(Action::Index(IndexVerb::Lint)) else { panic!("none") };
    assert!(lint.faults.iter().any(|fault| fault.path.ends_with("big.md")), "{lint:?}");
    assert_eq!(fs::metadata(&big).unwrap().len(), 100 << 20);
}

#[test]
fn a_pattern_comes_into_the_project_as_any_change_does() {
    let world = World::new();
    world.begin();
    fs::create_dir(world.bundle().join("src")).unwrap();
    fs::write(world.bundle().join("src/pool.toml"), "keepalive = 20\n").unwrap();
    let extract = |into: &str| {
        SkunkVerb::Extract(Extract {
            name: NAME.into(),
            files: vec!["src".into()],
            into: Some(into.into()),
            ..Extract::default()
        })
    };
    for nowhere in ["", "..", "/etc", "a/../../b"] {
        assert_eq!(world.skunk(extract(nowhere)).unwrap_err(), Code::Invalid, "{nowhere}");
    }
    let Ok(Reply::Extract(reply)) = world.skunk(extract("lib")) else { panic!("none") };
    let promotion = reply.promotion.expect("it was asked for");
    let landed = world.project().join("lib/src/pool.toml");
    assert_eq!(fs::read_to_string(&landed).unwrap(), "keepalive = 20\n", "{promotion:?}");
    let undo = promotion.undo.map(|id| id.to_string());
    world.apply(Action::Undo { promotion: undo, only: Vec::new(), dry_run: false }).unwrap();
    assert!(!landed.exists());
    let Ok(Reply::List(list)) = world.apply(Action::List) else { panic!("no list") };
    assert!(list.sandboxes.is_empty(), "{list:?}");
}

#[test]
fn what_is_guarded_is_written_down_and_outputs_are_cut() {
    let world = World::new();
    world.begin();
    let run = Run {
        command: shell("head -c 300000 /dev/zero | tr '\\0' x; echo; echo END; echo 1 > g.txt"),
        experiment: Some(NAME.into()),
        ..Run::default()
    };
    let asked = fractal::model::Guard { run, ..Default::default() };
    let Ok(Reply::Guard(reply)) = world.apply(Action::Guard(Box::new(asked))) else {
        panic!("no guard")
    };
    assert!(reply.promoted && world.project().join("g.txt").is_file());
    let recorded = reply.run.recorded.expect("it is written down");
    let dir = world.project().join(recorded.path);
    let stdout = fs::read_to_string(dir.with_file_name("stdout")).unwrap();
    assert!(stdout.len() <= 64 << 10 && stdout.ends_with("END\n"), "{}", stdout.len());
    assert!(reply.promotion.and_then(|it| it.recorded).is_some());
    only_file(&world.bundle().join("decisions"));
}
