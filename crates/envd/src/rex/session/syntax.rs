//! Whether a command is one at all, asked of a shell that runs nothing.

use super::super::{Thrown, text};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long the question may take; without an answer the command is tried.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn check(command: &str) -> Result<(), Thrown> {
    let Ok(Ok(output)) = tokio::time::timeout(PATIENCE, ask(command)).await else { return Ok(()) };
    if output.status.success() {
        return Ok(());
    }
    let (stdout, stderr) = (text::of_program(&output.stdout), text::of_program(&output.stderr));
    let why = format!("bash does not read this command:\n{command}\nbecause:\n{stderr}");
    Err(Thrown::new("BashIncorrectSyntaxError", why)
        .with("bash_stdout", stdout)
        .with("bash_stderr", stderr))
}

async fn ask(command: &str) -> std::io::Result<std::process::Output> {
    let mut child = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take();
    let text = command.as_bytes().to_vec();
    // Beside reading what it says: neither may wait for the other.
    let feeding = tokio::spawn(async move {
        if let Some(input) = &mut input {
            let _ = input.write_all(&text).await;
            let _ = input.write_all(b"\n").await;
        }
    });
    let output = child.wait_with_output().await;
    feeding.abort();
    output
}
