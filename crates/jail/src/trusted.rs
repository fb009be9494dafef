//! Programs of the host that we call ourselves, as the caller: git, to ask
//! about the caller's own repository, and the publish command that a project's
//! own file names. Never a program that came out of a sandbox.

mod family;
mod guardian;

use crate::JailError;
use guardian::Guardian;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What a program answered.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status; 128 + signal when one ended it.
    pub status: i32,
    /// What it printed.
    pub output: Vec<u8>,
    /// What it complained about.
    pub errors: Vec<u8>,
    /// Whether it was ended because its time was over.
    pub out_of_time: bool,
}

/// Bytes of each stream that are kept.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;

/// Calls a program with an environment of its own and feeds it `input`.
/// `Ok(None)` when there is no such program.
pub fn call(
    program: &str,
    args: &[&OsStr],
    environment: &[(OsString, OsString)],
    directory: &Path,
    input: impl FnOnce(&mut dyn Write) -> std::io::Result<()> + Send,
) -> Result<Option<Answer>, JailError> {
    let failed = failed(program);
    let mut command = command(program, args, environment, directory);
    let Some(mut child) = start(command.stdin(Stdio::piped()), &failed)? else { return Ok(None) };
    let (mut stdin, stdout, stderr) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // Fed and read at once: a program that answers while it reads would wait
    // for us as we wait for it.
    let (fed, output, errors) = std::thread::scope(|scope| {
        let feeder = scope.spawn(move || stdin.as_mut().map_or(Ok(()), |stdin| input(stdin)));
        let errors = scope.spawn(move || collect(stderr));
        let output = collect(stdout);
        let fed = feeder.join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked")));
        (fed, output, errors.join().unwrap_or_default())
    });
    let status = child.wait().map_err(|error| failed("wait for", &error))?;
    let status = as_shells_say(status);
    match fed {
        // It stopped reading: its own status says why.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed("feed", &error)),
        _ => Ok(Some(Answer { status, output, errors, out_of_time: false })),
    }
}

/// Runs a shell command that reads nothing and has so much time: then it is
/// ended with all that it started, and so it is when we die before it, however
/// we do. What it leaves running in the background when it ends by itself goes
/// on, and is not waited for. `Ok(None)` when there is no shell.
pub fn shell_within(
    script: &str,
    environment: &[(OsString, OsString)],
    directory: &Path,
    time: Duration,
) -> Result<Option<Answer>, JailError> {
    /// Waits for a line: by then somebody watches. Should we die before, the
    /// line never comes.
    const GATE: &str = "read -r _ && exec sh -c \"$1\" </dev/null";
    let failed = failed("sh");
    let refused = |errno: i32| JailError::System { what: "watch a command".to_owned(), errno };
    let guardian = Guardian::new().map_err(refused)?;
    let args = ["-c", GATE, "sh", script].map(OsStr::new);
    let mut command = command("sh", &args, environment, directory);
    let Some(mut child) = start(command.stdin(Stdio::piped()), &failed)? else { return Ok(None) };
    guardian.watch(child.id()).map_err(refused)?;
    let (output, errors) = (Kept::follow(child.stdout.take()), Kept::follow(child.stderr.take()));
    // Whoever ended it before it began is seen below.
    let _ = child.stdin.take().map_or(Ok(()), |mut gate| gate.write_all(b"\n"));
    let end = Instant::now() + time;
    let mut out_of_time = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failed("wait for", &error))? {
            break status;
        }
        if Instant::now() >= end && !out_of_time {
            out_of_time = true;
            family::end(child.id());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    guardian.dismiss();
    let status = if out_of_time { 124 } else { as_shells_say(status) };
    let (output, errors) = (output.take(), errors.take());
    Ok(Some(Answer { status, output, errors, out_of_time }))
}

fn command(
    program: &str,
    args: &[&OsStr],
    environment: &[(OsString, OsString)],
    directory: &Path,
) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(environment.iter().cloned()).current_dir(directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `None` when there is no such program.
fn start(
    command: &mut Command,
    failed: &impl Fn(&str, &std::io::Error) -> JailError,
) -> Result<Option<Child>, JailError> {
    match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| failed("start", &error)),
    }
}

fn failed(program: &str) -> impl Fn(&str, &std::io::Error) -> JailError {
    move |what, error| JailError::System {
        what: format!("{what} {program}"),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    }
}

fn as_shells_say(status: ExitStatus) -> i32 {
    status.signal().map_or_else(|| status.code().unwrap_or(255), |signal| 128 + signal)
}

/// A stream as far as it came.
struct Kept {
    bytes: Arc<Mutex<Vec<u8>>>,
    over: mpsc::Receiver<()>,
}

impl Kept {
    /// How long the rest of a stream may take when the program has ended.
    const REST: Duration = Duration::from_secs(1);

    fn follow(stream: Option<impl Read + Send + 'static>) -> Kept {
        let (bytes, (done, over)) = (Arc::<Mutex<Vec<u8>>>::default(), mpsc::channel());
        let to = Arc::clone(&bytes);
        // Lives as long as somebody holds the other end: a server that the
        // program left behind writes into it without being stopped by us.
        std::thread::spawn(move || {
            let (mut stream, mut chunk) = (stream, [0; 8192]);
            while let Some(Ok(got @ 1..)) = stream.as_mut().map(|stream| stream.read(&mut chunk)) {
                let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
                let room = (OUTPUT_BYTES_MAX as usize).saturating_sub(to.len());
                to.extend_from_slice(&chunk[..got.min(room)]);
            }
            let _ = done.send(());
        });
        Kept { bytes, over }
    }

    fn take(self) -> Vec<u8> {
        let _ = self.over.recv_timeout(Kept::REST);
        std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn collect(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_fed_and_answers() {
        let feed = |to: &mut dyn Write| to.write_all(&vec![b'x'; 1 << 20]);
        let answer = call("/bin/cat", &[], &[], Path::new("/"), feed).expect("cat starts");
        let answer = answer.expect("cat is there");
        assert_eq!((answer.status, answer.output.len()), (0, 1 << 20));
        let missing = call("/nowhere/at/all", &[], &[], Path::new("/"), |_| Ok(()));
        assert!(missing.expect("that is no error").is_none());
    }

    fn within(script: &str, ms: u64) -> Answer {
        let path = [("PATH".into(), "/usr/bin:/bin".into())];
        shell_within(script, &path, Path::new("/"), Duration::from_millis(ms))
            .expect("sh starts")
            .expect("sh is there")
    }

    #[test]
    fn a_program_that_takes_too_long_ends_with_all_that_it_started() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("pids");
        let script = format!(
            "echo begun; sh -c 'sleep 1000 & echo $! >> {0}; sleep 1000' & \
             echo $! >> {0}; (trap \"\" TERM; sleep 1000) & echo $! >> {0}; wait",
            file.display()
        );
        // As much time as this machine needs to start them all.
        let pids = [200, 2_000, 20_000].into_iter().find_map(|ms| {
            let _ = std::fs::remove_file(&file);
            let answer = within(&script, ms);
            assert_eq!((answer.status, answer.out_of_time), (124, true));
            let pids = std::fs::read_to_string(&file).unwrap_or_default();
            (pids.lines().count() == 3 && answer.output == b"begun\n").then_some(pids)
        });
        let lives = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            !state.is_empty() && !state.starts_with(['Z', 'X'])
        };
        for pid in pids.expect("they were started").lines() {
            // It was killed; dying takes a moment of its own.
            while lives(pid) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn what_a_program_leaves_in_the_background_is_not_waited_for() {
        let answer = within("echo done; sleep 30 & echo $! >&2; exit 3", 60_000);
        assert_eq!((answer.status, answer.out_of_time), (3, false));
        assert_eq!(answer.output, b"done\n");
        let pid = String::from_utf8(answer.errors).expect("a number");
        crate::sys::process::kill(pid.trim().parse().expect("a pid"), libc::SIGKILL)
            .expect("it still runs");
    }
}
