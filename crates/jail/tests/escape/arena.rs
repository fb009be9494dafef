//! The place of one attack: a temporary directory, a secret, victims.
//!
//! Everything in it is gone when it is dropped, also when a test fails.

use std::any::Any;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where attacks and victims are written in; not what `PATH` may name first.
pub const PYTHON: &str = "/usr/bin/python3";

/// The environment that an attack starts with, besides what `give` adds.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A process of the host that must not notice the attack.
pub struct Victim {
    child: Child,
    /// What its script left in `answer`.
    pub answer: String,
}

impl Victim {
    /// Its process id on the host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The place of one attack.
pub struct Arena {
    root: tempfile::TempDir,
    /// What no output of an attack may contain.
    pub secret: String,
    /// What the attack is told.
    pub env: Vec<(String, String)>,
    /// Processes that must live on.
    pub victims: Vec<Victim>,
    /// Standard input of the attack; none is empty.
    pub stdin: Option<File>,
    /// Standard output of the attack; none is captured.
    pub stdout: Option<File>,
    /// Things that live as long as the arena.
    pub kept: Vec<Box<dyn Any>>,
}

impl Arena {
    pub fn new() -> Arena {
        let root = tempfile::Builder::new().prefix("fractal-escape-").tempdir().unwrap();
        let secret = format!("secret-{}", random_hex());
        for dir in ["state/layers", "state/cache", "project", "home", "outside"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let mut arena = Arena {
            root,
            secret,
            env: vec![],
            victims: vec![],
            stdin: None,
            stdout: None,
            kept: vec![],
        };
        arena.give("PATH", PATH);
        arena.give("HOME", arena.path("home").display());
        arena.give("ARENA", arena.path("").display());
        arena
    }

    /// A path in the arena.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    /// Tells the attack something in its environment.
    pub fn give(&mut self, key: &str, value: impl ToString) {
        self.env.push((key.to_owned(), value.to_string()));
    }

    /// Writes a file of the host and returns its path.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A file of the host with the secret in it; the attack knows its path.
    pub fn secret_file(&mut self, name: &str) -> PathBuf {
        let path = self.file(name, &self.secret);
        self.give("TARGET", path.display());
        path
    }

    /// A file of the host that must stay as it is; the attack knows its path.
    pub fn canary(&mut self, name: &str) -> PathBuf {
        let path = self.file(name, CANARY);
        self.give("TARGET", path.display());
        path
    }

    /// Starts a process of the host. Its script knows `secret` and may leave
    /// an `answer`, which the attack finds in `ANSWER`; `VICTIM` is its pid.
    pub fn victim(&mut self, script: &str) -> &Victim {
        let text =
            format!("{}{VICTIM_BEFORE}\n{script}\n{VICTIM_AFTER}", crate::harness::numbers());
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", PYTHON, "-S", "-c", &text])
            .env_clear()
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .env("SECRET", &self.secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let answer = line.trim().strip_prefix("ready").map(|answer| answer.trim().to_owned());
        let victim = Victim { child, answer: answer.expect("the victim did not start") };
        self.give("VICTIM", victim.pid());
        self.give("ANSWER", &victim.answer);
        self.victims.push(victim);
        self.victims.last().unwrap()
    }

    /// The kernel makes directories of mode 0 in a layer's work directory,
    /// which only root can remove as they are.
    pub fn open_layers(&self) {
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(self.path("state/layers")).status();
    }

    /// What must hold after every attack.
    pub fn intact(&mut self) -> Result<(), String> {
        for victim in &mut self.victims {
            if let Ok(Some(status)) = victim.child.try_wait() {
                return Err(format!("the victim ended: {status}"));
            }
        }
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let layers = fs::read_dir(self.path("state/layers"));
        if layers.is_ok_and(|mut layers| layers.next().is_some()) {
            self.open_layers();
        }
    }
}

/// Content of files that must stay as they are.
pub const CANARY: &str = "canary: sing\n";

/// Whether a canary file still says what it said.
pub fn canary_sings(path: &Path) -> Result<(), String> {
    match fs::read_to_string(path) {
        Ok(text) if text == CANARY => Ok(()),
        other => Err(format!("{} changed: {other:?}", path.display())),
    }
}

/// Bytes that nobody can guess.
fn random_hex() -> String {
    let mut bytes = [0u8; 12];
    std::io::Read::read_exact(&mut File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const VICTIM_BEFORE: &str = r#"
import atexit, ctypes, os, signal, socket, sys, threading
secret = os.environ["SECRET"]
arena = os.environ["ARENA"]
answer = ""
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
def serve(listener):
    listener.listen(8)
    def loop():
        while True:
            peer, _ = listener.accept()
            peer.sendall(secret.encode())
            peer.close()
    threading.Thread(target=loop, daemon=True).start()
"#;

const VICTIM_AFTER: &str = r#"
print("ready", answer, flush=True)
signal.pause()
"#;
