//! Our own commands and those that others register.

use crate::{run, shell, shown, text};
use fractal_fs::{Access, Ask, Fault, Freshness, Item, Mount, Source, Vfs};
use fractal_model::SandboxPath;
use fractal_shell::{Call, Output, Settings, Shell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_closure_is_a_command_like_any_other() {
    let mut shell = shell();
    shell.register("upper", |call: &Call| {
        let text = String::from_utf8_lossy(call.stdin).to_uppercase();
        let file = call.view.read(call.path(&call.args[0])).unwrap();
        call.view.write(call.path("made"), file).unwrap();
        Output { stdout: text.into_bytes(), stderr: b"note\n".to_vec(), exit: 4 }
    });
    run(&mut shell, "mkdir d; cd d; echo content > f");
    let outcome = shell.run("echo hi | upper f; echo $?", b"");
    assert_eq!((text(&outcome.stdout), text(&outcome.stderr)), ("HI\n4\n".into(), "note\n".into()));
    assert_eq!(
        run(&mut shell, "x=$(echo a | upper f 2>/dev/null); echo $x; cat made"),
        "A\ncontent\n"
    );
    assert_eq!(run(&mut shell, "echo f | xargs upper > out 2>&1; cat out; true"), "note\n");
    assert_eq!(run(&mut shell, "find . -name f -exec upper {} \\; 2>/dev/null; echo $?"), "0\n");
    assert_eq!(run(&mut shell, "type upper > /dev/null && echo known"), "known\n");
}

#[test]
fn rm_says_what_it_could_not_remove_with_f_as_well() {
    let view = Vfs::default();
    view.write_all("/kept/file", "x").unwrap();
    view.set_access(&SandboxPath::parse("kept").unwrap(), Some(Access::ReadOnly));
    let mut shell = Shell::new(view, Settings::default());
    for (flag, name) in [("-f", "/kept/file"), ("-rf", "/kept/file"), ("-rf", "/kept")] {
        let outcome = shell.run(&format!("rm {flag} {name}"), b"");
        let told = format!("rm: cannot remove '{name}': Read-only file system\n");
        assert_eq!((outcome.exit, text(&outcome.stderr)), (1, told));
    }
    assert_eq!(run(&mut shell, "rm -f /none /none/below; rm -f; cat /kept/file"), "x");
}

#[test]
fn rm_of_a_link_with_a_slash_removes_nothing() {
    let mut shell = shell();
    run(&mut shell, "mkdir /real; touch /real/file; ln -s real /link");
    for flag in ["-r", "-rf"] {
        let outcome = shell.run(&format!("rm {flag} /link/"), b"");
        let told = "rm: cannot remove '/link/': Not a directory\n";
        assert_eq!((outcome.exit, text(&outcome.stderr).as_str()), (1, told));
    }
    assert_eq!(run(&mut shell, "ls /link/; rm -r /link; ls /real"), "file\nfile\n");
}

#[test]
fn a_registered_command_sees_its_environment_and_can_replace_ours() {
    let mut shell = shell();
    shell.register("show", |call: &Call| {
        let x = call.env.get("X").cloned().unwrap_or_default();
        Output::ok(format!("{} {} {x} {}\n", call.name, call.cwd, call.args.len()))
    });
    shell.register("ls", |_: &Call| Output::ok("mine\n"));
    run(&mut shell, "mkdir /d; cd /d; export X=1");
    assert_eq!(run(&mut shell, "show a 'b c'; X=2 show; ls"), "show /d 1 2\nshow /d 2 0\nmine\n");
    assert_eq!(run(&mut shell, "show() { echo function; }; show"), "function\n");
}

#[test]
fn a_command_that_panics_does_not_take_the_shell_along() {
    let mut shell = shell();
    shell.register("bad", |_: &Call| -> Output { panic!("a defect") });
    let outcome = shell.run("bad; echo after $?", b"");
    assert_eq!(text(&outcome.stdout), "after 1\n", "{}", shown(&outcome));
}

#[test]
fn fork_and_run_native_are_the_engines() {
    let mut shell = shell();
    for name in ["fork", "run-native"] {
        let outcome = shell.run(&format!("{name} x"), b"");
        assert_eq!(outcome.exit, 125);
        assert!(text(&outcome.stderr).contains("not available here"));
    }
    let fork = |call: &Call| Output::ok(format!("forked {}\n", call.args[0]));
    let settings = Settings { fork: Some(Arc::new(fork)), ..Settings::default() };
    let mut shell = Shell::new(Vfs::default(), settings);
    assert_eq!(run(&mut shell, "fork try-1"), "forked try-1\n");
}

#[test]
fn snapshots_are_taken_listed_and_gone_back_to() {
    let mut shell = shell();
    run(&mut shell, "echo 1 > f; snap one; echo 2 > f; rm -rf none; snap two; rm f");
    assert_eq!(run(&mut shell, "snap --list"), "one\ntwo\n");
    assert_eq!(run(&mut shell, "snap --rollback one; cat f; snap --rollback two; cat f"), "1\n2\n");
    let outcome = shell.run("snap --rollback none; snap; snap --what", b"");
    assert_eq!(outcome.exit, 2);
    assert!(text(&outcome.stderr).contains("snap --list"));
}

#[test]
fn changes_are_those_against_the_base() {
    let view = Vfs::default();
    view.write_all("/a/old", "1").unwrap();
    view.write_all("/a/gone", "1").unwrap();
    let mut shell = Shell::new(view.fork(), Settings::default());
    run(&mut shell, "echo 2 > /a/old; rm /a/gone; mkdir /b; touch /b/new");
    assert_eq!(run(&mut shell, "changes"), "D /a/gone\nM /a/old\nA /b\nA /b/new\n");
    assert_eq!(run(&mut shell, "cd /b; changes ."), "A /b\nA /b/new\n");
}

/// Files that count how often their content is made.
#[derive(Default)]
struct Counting(AtomicU32);

impl Source for Counting {
    fn kind(&self) -> &str {
        "counting"
    }

    fn describe(&self) -> String {
        "three files".into()
    }

    fn list(&self, _: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        Ok(["a.txt", "b.txt", "c.md"].map(Item::file).to_vec())
    }

    fn read(&self, at: &SandboxPath, _: &Ask) -> Result<bytes::Bytes, Fault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(format!("made for {at}\n").into())
    }
}

#[test]
fn names_of_a_source_are_listed_without_making_its_files() {
    let source = Arc::new(Counting::default());
    let view = Vfs::default();
    let path = SandboxPath::parse("/live").unwrap();
    let (access, freshness) = (Access::ReadOnly, Freshness::Frozen);
    view.mount(Mount { path, source: source.clone(), access, freshness }).unwrap();
    let mut shell = Shell::new(view, Settings::default());
    assert_eq!(run(&mut shell, "mounts"), "/live\tread-only\tfrozen\tcounting three files\n");
    assert_eq!(
        run(
            &mut shell,
            "cd /live; echo *.txt; ls; find . -name '*.md'; test -e a.txt && echo there"
        ),
        "a.txt b.txt\na.txt\nb.txt\nc.md\n./c.md\nthere\n"
    );
    assert!(source.0.load(Ordering::Relaxed) <= 1, "made to be listed");
    assert_eq!(
        run(&mut shell, "cat b.txt; grep -c made *.txt"),
        "made for /b.txt\na.txt:1\nb.txt:1\n"
    );
}

#[test]
fn owners_links_and_inodes_are_the_trees() {
    let mut shell = shell();
    run(&mut shell, "echo hi > a; ln a b; chown 0:7 a; mkdir d; chown -R root d");
    assert_eq!(
        run(&mut shell, "stat -c '%h %u %g %U' a b d | sort -u"),
        "1 0 1000 root\n2 0 7 root\n"
    );
    let line = run(&mut shell, "ls -l a");
    assert!(line.starts_with("-rw-r--r-- 2 root 7 3 "), "{line}");
    assert!(run(&mut shell, "ls -ln d/..").contains(" 0 1000 4096 "));
    let inode = run(&mut shell, "stat -c %i a");
    assert_eq!(run(&mut shell, &format!("find / -inum {} | sort", inode.trim())), "/a\n/b\n");
    assert_eq!(run(&mut shell, "find / -type f -links +1 -user root | wc -l"), "2\n");
    assert_eq!(run(&mut shell, "du -b a b | wc -l; find / -uid 1000 -type f"), "1\n");
}

#[test]
fn programs_are_found_by_their_paths_and_in_no_listing() {
    let mut shell = shell();
    let script = "/bin/echo a; /usr/bin/env bash -c 'echo b'; /bin/sh -c 'echo c'; /bin/ls / | wc -l; \
                  which ls; command -v grep; test -x /usr/bin/find && echo x";
    assert_eq!(run(&mut shell, script), "a\nb\nc\n0\n/usr/bin/ls\n/usr/bin/grep\nx\n");
    assert_eq!(run(&mut shell, "echo /*; find / | wc -l; changes"), "/*\n1\n");
    let outcome = shell.run("/usr/bin/cd /; /dev/.bashkit/none", b"");
    assert_eq!(outcome.exit, 127);
}

#[test]
fn what_ours_lacks_is_bashkits() {
    let mut shell = shell();
    run(&mut shell, "mkdir d; echo abc > d/f1; touch d/f2");
    assert_eq!(
        run(&mut shell, "find d -type f -regex '.*[12]' -printf '%f %s\\n' | sort"),
        "f1 4\nf2 0\n"
    );
    assert_eq!(run(&mut shell, "seq -f 'n%g' 2; seq 200000 | tail -n 1"), "n1\nn2\n200000\n");
    assert!(run(&mut shell, "ls --help").contains("Usage"));
    let outcome = shell.run("find d -nonsense", b"");
    assert_eq!(outcome.exit, 1);
    assert!(text(&outcome.stderr).contains("-nonsense"), "{}", shown(&outcome));
}
