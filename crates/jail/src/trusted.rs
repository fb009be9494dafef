//! Programs of the host that we call ourselves, as the caller: git, to ask
//! about the caller's own repository, and the publish command that a project's
//! own file names. Never a program that came out of a sandbox.

use crate::JailError;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program answered.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status; 128 + signal when one ended it.
    pub status: i32,
    /// What it printed.
    pub output: Vec<u8>,
    /// What it complained about.
    pub errors: Vec<u8>,
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
    let failed = |what: &str, error: &std::io::Error| JailError::System {
        what: format!("{what} {program}"),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(environment.iter().cloned()).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| failed("start", &error))?,
    };
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
    let status = std::os::unix::process::ExitStatusExt::signal(&status)
        .map_or_else(|| status.code().unwrap_or(255), |signal| 128 + signal);
    match fed {
        // It stopped reading: its own status says why.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed("feed", &error)),
        _ => Ok(Some(Answer { status, output, errors })),
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
}
