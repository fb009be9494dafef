//! Carries out one attack: in the jail, where it must fail, and outside of it,
//! where it must succeed.
//!
//! An attack is a Python script with the words of `PRELUDE`. It ends with
//! `escaped(why)`, or by an `OSError`, which counts as held; anything else is
//! a broken attack and fails the test. The host looks for itself: the secret
//! must not be in the output, victims must live, `verdict` must be content.

use crate::arena::{Arena, PYTHON};
use fractal_jail::layer::{Bounds, Layer, View, is_whole, make_whole};
use fractal_jail::{Input, Output, Report, Spec, Stack, Streams, Top};
use fractal_model::{Limits, Network, Tier};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Who can carry the attack out without a jail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Every user.
    Everyone,
    /// Only root.
    Root,
    /// Only root, in more namespaces of its own: flags of `unshare`.
    RootIn(&'static [&'static str]),
    /// Only a user that is not root.
    Users,
    /// It would harm the machine, or needs what this machine may lack: why.
    Never(&'static str),
}

/// One way to get out.
#[derive(Clone)]
pub struct Attack {
    script: &'static str,
    prepare: fn(&mut Arena),
    verdict: fn(&Arena) -> Result<(), String>,
    spec: fn(&mut Spec, &Arena),
    control: Control,
    /// Why it says nothing about the tier `copied`, or is not held there.
    not_in_copied: Option<&'static str>,
    /// The same for root alone.
    not_in_copied_as_root: Option<&'static str>,
}

impl Attack {
    /// An attack that everybody could carry out.
    pub fn python(script: &'static str) -> Attack {
        Attack {
            script,
            prepare: |_| {},
            verdict: |_| Ok(()),
            spec: |_, _| {},
            control: Control::Everyone,
            not_in_copied: None,
            not_in_copied_as_root: None,
        }
    }

    /// Says why the attack does not apply where nothing is mounted.
    pub fn not_in_copied(self, why: &'static str) -> Attack {
        Attack { not_in_copied: Some(why), ..self }
    }

    /// Says why root without privileges is not held where nothing is mounted.
    pub fn not_in_copied_as_root(self, why: &'static str) -> Attack {
        Attack { not_in_copied_as_root: Some(why), ..self }
    }

    /// What the host does first.
    pub fn prepare(self, prepare: fn(&mut Arena)) -> Attack {
        Attack { prepare, ..self }
    }

    /// What the host sees afterwards; an error is a successful attack.
    pub fn verdict(self, verdict: fn(&Arena) -> Result<(), String>) -> Attack {
        Attack { verdict, ..self }
    }

    /// Changes the run that is attacked.
    pub fn spec(self, spec: fn(&mut Spec, &Arena)) -> Attack {
        Attack { spec, ..self }
    }

    /// Who could carry it out without a jail.
    pub fn control(self, control: Control) -> Attack {
        Attack { control, ..self }
    }

    /// Fails the test unless the attack fails inside and succeeds outside.
    pub fn check(&self, tier: Tier) {
        let for_root = self.not_in_copied_as_root.filter(|_| is_root());
        if let Some(why) = self.not_in_copied.or(for_root).filter(|_| tier == Tier::Copied) {
            return notice(&format!("does not apply in copied: {why}"));
        }
        self.check_inside(tier, &self.text());
        if tier == Tier::Copied {
            // Once more on what the program may write.
            self.check_inside(tier, &self.text().replace("{arena}/project", "{project}"));
        }
        let is_root = is_root();
        let namespaces: &[&str] = match self.control {
            Control::Everyone => &[],
            Control::Root if is_root => &[],
            Control::RootIn(namespaces) if is_root => namespaces,
            Control::Users if !is_root => &[],
            Control::Never(why) => return notice(&format!("no control run: {why}")),
            _ => return,
        };
        let (output, intact) = self.outside(namespaces);
        assert!(!output.contains("BROKEN:"), "the attack itself is broken:\n{output}");
        if output.contains("ABSENT:") {
            return notice(&format!("no control run, {}", output.trim()));
        }
        let succeeded = output.contains("ESCAPED:") || intact.is_err();
        assert!(succeeded, "the attack fails even without a jail:\n{output}");
    }

    fn check_inside(&self, tier: Tier, text: &str) {
        let (output, intact) = self.inside(tier, text);
        assert!(!output.contains("BROKEN:"), "the attack itself is broken:\n{output}");
        assert!(!output.contains("ESCAPED:"), "escaped from {}:\n{output}", tier.name());
        if let Err(why) = intact {
            panic!("escaped from {}: {why}\n{output}", tier.name());
        }
        assert!(output.contains("HELD:"), "the attack did not come to its end:\n{output}");
    }

    fn inside(&self, tier: Tier, text: &str) -> (String, Result<(), String>) {
        let mut arena = self.arena();
        let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", text]);
        (self.spec)(&mut spec, &arena);
        let report = run(&mut arena, &spec);
        let output = text_of(&report);
        let intact = self.judge(&mut arena, &output);
        (format!("{output}\n{:?} {:?}", report.ended, report.why), intact)
    }

    /// Root could harm the machine, so all but the arena is read-only for it.
    fn outside(&self, namespaces: &[&str]) -> (String, Result<(), String>) {
        let mut arena = self.arena();
        let text = self.text();
        let mut command = Command::new("timeout");
        command.args(["-k1", "20"]);
        if is_root() {
            command.args(["unshare", "--mount", "--propagation", "private"]);
            command.args(namespaces).args(["sh", "-c", GUARD, "guard"]);
        }
        let output = command
            .args([PYTHON, "-S", "-c", &text])
            .env_clear()
            .envs(arena.env.iter().map(|(key, value)| (key, value)))
            .current_dir(arena.path("project"))
            .stdin(arena.stdin.take().map_or_else(Stdio::null, Stdio::from))
            .stdout(arena.stdout.take().map_or_else(Stdio::piped, Stdio::from))
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let intact = self.judge(&mut arena, &text);
        (text, intact)
    }

    fn arena(&self) -> Arena {
        let mut arena = Arena::new();
        (self.prepare)(&mut arena);
        arena
    }

    fn judge(&self, arena: &mut Arena, output: &str) -> Result<(), String> {
        if output.contains(&arena.secret) {
            return Err("the secret is out".to_owned());
        }
        arena.intact()?;
        (self.verdict)(arena)
    }

    fn text(&self) -> String {
        script(self.script)
    }
}

/// Leaves only the arena writable, and the kernel's own filesystems, and
/// then becomes its arguments.
const GUARD: &str = r#"
mount --bind "$ARENA" "$ARENA" || exit 1
while read -r _ at kind _; do
    case "$kind:$at" in
        proc:*|sysfs:*|cgroup*:*|*:"${ARENA%/}") ;;
        *:/) mount -o remount,bind,ro / || exit 1 ;;
        *) mount -o remount,bind,ro "$at" 2>/dev/null ;;
    esac
done < /proc/self/mounts
! mkdir /fractal-escape-guard 2>/dev/null || { rmdir /fractal-escape-guard; exit 1; }
# The directory we are in is still the one below the new mount.
cd "$PWD" && exec "$@"
"#;

/// A whole attack from its own lines.
pub fn script(lines: &str) -> String {
    let body: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("{}{PRELUDE}\ntry:\n    pass\n{body}{POSTLUDE}", numbers())
}

/// A run in the arena, with nothing but a time limit.
pub fn spec(arena: &Arena, tier: Tier, command: &[&str]) -> Spec {
    spec_at(&arena.path(""), &arena.env, tier, command)
}

fn spec_at(root: &Path, env: &[(String, String)], tier: Tier, command: &[&str]) -> Spec {
    let label = root.file_name().unwrap().to_string_lossy();
    Spec {
        command: command.iter().map(Into::into).collect(),
        env: env.iter().map(|(key, value)| (key.into(), value.into())).collect(),
        cwd: root.join("project"),
        stack: Stack {
            layers_dir: root.join("state/layers"),
            sealed: vec![],
            top: Top::Memory { size_bytes: 256 << 20 },
            state_dir: root.join("state"),
            project: root.join("project"),
            mounts: vec![],
        },
        limits: Limits { time_ms: Some(20_000), ..Limits::default() },
        network: Network::None,
        hidden: vec![],
        read_only: vec![],
        tier,
        terminal: false,
        label: label.replace('.', "-"),
        join: None,
        door: false,
        last_words: None,
    }
}

/// Runs it with the arena's descriptors.
pub fn run(arena: &mut Arena, spec: &Spec) -> Report {
    const OUTPUT_BYTES_MAX: usize = 1 << 20;
    let streams = Streams {
        stdin: arena.stdin.take().map_or(Input::Null, |file| Input::Descriptor(file.into())),
        stdout: (arena.stdout.take())
            .map_or(Output::Capture(OUTPUT_BYTES_MAX), |file| Output::Descriptor(file.into())),
        stderr: Output::Capture(OUTPUT_BYTES_MAX),
        interactive: false,
        caller: None,
    };
    fractal_jail::run(&ready(spec), streams).unwrap()
}

/// Where nothing can be mounted a run needs a copy of the project, on disk.
fn ready(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    if spec.tier != Tier::Copied {
        return spec;
    }
    spec.env.push(("INSIDE".into(), "1".into()));
    spec.stack.top = Top::Disk("top".to_owned());
    let layer = spec.stack.layers_dir.join("top");
    for dir in ["tree", "work"] {
        std::fs::create_dir_all(layer.join(dir)).unwrap();
    }
    let project = fractal_model::SandboxPath::parse(spec.stack.project.to_str().unwrap()).unwrap();
    if !is_whole(&layer, &project).unwrap() {
        let host = Some(Layer::open(Path::new("/")).unwrap());
        let view = View { host, ..View::default() };
        let staging = layer.join(format!("work/{}-copy", spec.label));
        make_whole(&view, &project, &layer, &staging, &Bounds::default(), false).unwrap();
    }
    spec
}

/// Variables that turn this test binary into a launcher.
const LAUNCH: [&str; 3] = ["ESCAPE_ARENA", "ESCAPE_TIER", "ESCAPE_SCRIPT"];

/// A process of its own that runs `script` in the jail, with its own standard
/// descriptors. It is for attacks on the launcher, and for killing it.
pub fn launcher(arena: &Arena, tier: Tier, script: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "harness::launch", "--ignored", "--nocapture"]);
    let root = arena.path("").display().to_string();
    let values = [root.as_str(), tier.name(), script];
    command.envs(LAUNCH.into_iter().zip(values));
    command
}

/// What a launcher does.
#[test]
#[ignore = "only for tests that start it"]
fn launch() {
    let [root, tier, text] = LAUNCH.map(|name| std::env::var(name).unwrap_or_default());
    let Some(tier) = Tier::parse(&tier) else { return };
    let env = [("ARENA".to_owned(), root.clone()), ("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let mut spec = spec_at(Path::new(&root), &env, tier, &[PYTHON, "-S", "-c", &script(&text)]);
    // Without a group the limit counts all processes of the user, also those
    // of tests beside this one.
    spec.limits.pids = (tier != Tier::Copied).then_some(64);
    let copy = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let streams = Streams {
        stdin: Input::Descriptor(copy(std::os::fd::AsFd::as_fd(&std::io::stdin()))),
        stdout: Output::Descriptor(copy(std::os::fd::AsFd::as_fd(&std::io::stdout()))),
        stderr: Output::Descriptor(copy(std::os::fd::AsFd::as_fd(&std::io::stderr()))),
        interactive: false,
        caller: None,
    };
    fractal_jail::run(&ready(&spec), streams).unwrap();
    fractal_jail::settle();
}

/// Processes of the host, by id and name, that belong to a run in the arena:
/// their command line or environment names it, or they are its supervisors.
pub fn marked_processes(arena: &Arena) -> Vec<String> {
    let mark = arena.path("").display().to_string();
    let mark = mark.trim_end_matches('/');
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_other = name.parse::<u32>().is_ok_and(|pid| pid != std::process::id());
        let holds = |file: &str| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(mark)
        };
        if is_other && (holds("cmdline") || holds("environ")) {
            let word = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("{name} {}", word.trim()));
        }
    }
    found
}

/// Mounts and groups of a run in the arena.
pub fn left_behind(arena: &Arena) -> Vec<String> {
    let spec = spec(arena, Tier::Clone, &[]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = arena.path("").display().to_string();
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(&root)).map(str::to_owned).collect();
    let found = fractal_jail::cgroup::Controllers::find();
    let groups = found.v1.iter().map(|(_, dir)| dir).chain(found.v2.iter().map(|(dir, _)| dir));
    let groups = groups.map(|dir| dir.join(format!("fractal-{}", spec.label)));
    left.extend(groups.filter(|dir| dir.exists()).map(|dir| dir.display().to_string()));
    left
}

/// Empties the work directory of the layer `top`: an overlay that was mounted
/// `volatile` refuses to be mounted again until that is done.
pub fn clear_work(arena: &Arena) {
    let work = arena.path("state/layers/top/work");
    arena.open_layers();
    std::fs::remove_dir_all(&work).unwrap();
    std::fs::create_dir(&work).unwrap();
}

/// All that a run printed.
pub fn text_of(report: &Report) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&report.output.bytes) + &text(&report.errors.bytes)
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

/// Says something that the test runner does not swallow.
pub fn notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs `body` in a tier of root's.
pub fn as_root(name: &str, tier: Tier, body: impl FnOnce(Tier)) {
    if is_root() {
        body(tier);
    } else {
        notice(&format!("skipped: no root ({name} in {})", tier.name()));
    }
}

/// Runs `body` as somebody who is not root: root starts this test binary again
/// as nobody, in a directory that nobody owns.
pub fn as_nobody(name: &str, tier: Tier, body: impl FnOnce(Tier)) {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        return body(tier);
    }
    let dir = tempfile::Builder::new().prefix("fractal-escape-nobody-").tempdir().unwrap();
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    own(dir.path());
    // The build directory may be closed to nobody.
    let binary = dir.path().join("escape");
    // Another process copies: a descriptor of ours that a run of another test
    // inherits would make the binary too busy to be executed.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status();
    assert!(copied.unwrap().success());
    own(&binary);
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--pdeathsig", "KILL"])
        .arg(&binary)
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env("TMPDIR", dir.path())
        .env("HOME", dir.path())
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as nobody:\n{text}");
    assert!(text.contains("1 passed"), "the test {name} was not found:\n{text}");
    let said = |line: &&str| {
        line.starts_with("no control run") || line.starts_with("does not apply in copied")
    };
    text.lines().filter(said).for_each(notice);
}

/// Five tests from something that takes a tier.
macro_rules! trial {
    ($name:ident, $body:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn name(variant: &str) -> String {
                let path = module_path!().split_once("::").unwrap().1;
                format!("{path}::{variant}")
            }

            #[test]
            fn in_clone() {
                crate::harness::as_root(&name("in_clone"), fractal_model::Tier::Clone, $body);
            }

            #[test]
            fn in_masked() {
                crate::harness::as_root(&name("in_masked"), fractal_model::Tier::Masked, $body);
            }

            #[test]
            fn in_rootless() {
                let tier = fractal_model::Tier::Rootless;
                crate::harness::as_nobody(&name("in_rootless"), tier, $body);
            }

            #[test]
            fn in_copied() {
                let tier = fractal_model::Tier::Copied;
                crate::harness::as_nobody(&name("in_copied"), tier, $body);
            }

            /// As root in a container that was given no privileges.
            #[test]
            fn in_copied_as_root() {
                let tier = fractal_model::Tier::Copied;
                crate::harness::as_root(&name("in_copied_as_root"), tier, $body);
            }
        }
    };
}

/// Five tests from an [`Attack`].
macro_rules! attack {
    ($name:ident, $attack:expr) => {
        trial!($name, |tier| $attack.check(tier));
    };
}

/// System calls by name, as this architecture numbers them.
pub fn numbers() -> String {
    macro_rules! table {
        ($($name:ident)*) => {
            [$((stringify!($name), libc::$name)),*]
        };
    }
    let table = table![
        SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_clone SYS_clone3
        SYS_keyctl SYS_add_key SYS_request_key SYS_bpf SYS_perf_event_open SYS_io_uring_setup
        SYS_userfaultfd SYS_init_module SYS_finit_module SYS_delete_module SYS_reboot SYS_swapon
        SYS_acct SYS_syslog SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_open_by_handle_at
        SYS_name_to_handle_at SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev
        SYS_pidfd_open SYS_pidfd_getfd SYS_ioctl SYS_open_tree SYS_move_mount SYS_mount_setattr
        SYS_fsopen SYS_fsconfig SYS_fsmount SYS_kcmp SYS_shmget SYS_shmat SYS_msgget SYS_msgrcv
        SYS_semget SYS_semctl SYS_mq_open SYS_mq_timedreceive SYS_fanotify_init SYS_sethostname
        SYS_capset SYS_kexec_load SYS_quotactl SYS_gettid SYS_socket SYS_msgsnd
    ];
    table.iter().map(|(name, number)| format!("{name} = {number}\n")).collect()
}

const PRELUDE: &str = r#"
import array, ctypes, errno, fcntl, mmap, os, signal, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
env = os.environ
arena, target = env["ARENA"], env.get("TARGET", "")
victim, answer = int(env.get("VICTIM", "0")), env.get("ANSWER", "")

inside = os.getppid() == 1 or "INSIDE" in env
project = os.getcwd() if "INSIDE" in env else f"{arena}/project"

def places(*elsewhere):
    """Where to put things: outside the jail only into the arena."""
    return (f"{arena}/project/node",) + (elsewhere if inside else ())

def end(word, why):
    os.write(2, f"{word}: {why}\n".encode())
    os._exit(0)

def escaped(why): end("ESCAPED", why)
def held(why): end("HELD", why)
def absent(why): end("ABSENT", why)

def note(why): os.write(2, f"{why}\n".encode())

def call(number, *args):
    """A raw system call; an error is an OSError."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    libc.syscall.restype = ctypes.c_long
    value = libc.syscall(ctypes.c_long(number), *words)
    if value == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return value

def tries(*attempts):
    """The first attempt that does not fail; all failing is an OSError."""
    for attempt in attempts:
        try:
            return attempt()
        except OSError as error:
            note(f"  {error}")
    raise OSError(0, "every attempt failed")

def reach(number, *args):
    """A call that must be refused for want of privileges, not of sense."""
    try:
        call(number, *args)
    except OSError as error:
        note(error)
        if error.errno == errno.EPERM:
            return
    escaped("the call reached the kernel")

def slurp(path):
    with open(path, "rb", buffering=0) as file:
        return file.read(1 << 16)

def spill(path, text):
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())

def leak(data):
    """Prints what was found; the host knows whether it is the secret."""
    os.write(2, data if isinstance(data, bytes) else str(data).encode())
    os.write(2, b"\n")
"#;

const POSTLUDE: &str = r#"
    held("to the end")
except OSError as error:
    held(error)
except BaseException as error:
    import traceback
    end("BROKEN", traceback.format_exc())
"#;
