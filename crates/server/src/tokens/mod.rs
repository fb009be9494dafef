//! Signed tokens (JWT) of issuers that a file names, as one more way to know
//! who asks.
//!
//! A token becomes a key that no table holds: its role, tenant and end come
//! from the file and from what the issuer signed, and the engine judges it
//! like any other. Keys of issuers are read from files and never fetched:
//! whoever runs the server decides whom it asks for them. Every refusal is the
//! same to who sent the token; the reason is for the log and the journal.

mod file;
mod grant;
mod json;
mod jwks;
mod jwt;

use crate::asker::Authenticate;
use file::Issuers;
use fractal::model::{Key, SECRET_PREFIX};
use fractal::{Config, Error, Result};
use jwt::Token;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A token with every group of a large company fits; it is hashed before it is
/// known to be anybody's.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// How often the files are looked at, and how often a token that names an
/// unknown key has them read anew.
const LOOK: Duration = Duration::from_secs(1);

/// The issuers of a file, as they were last read.
pub struct Tokens {
    file: PathBuf,
    /// Where roles are looked up.
    directory: PathBuf,
    user_file: Option<PathBuf>,
    now: Mutex<Now>,
}

struct Now {
    issuers: Arc<Issuers>,
    stamps: Vec<Stamp>,
    looked: Instant,
    read_anew: Instant,
    /// The last reading failed: perhaps because of the settings, whose mending
    /// shows in no stamp.
    failed: bool,
}

/// By what a file is known to be another one: inode, size, and when it was
/// written, in seconds and nanoseconds.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Tokens {
    /// Reads the file and the keys that it names. Roles are those of the
    /// directory's settings and of the user's.
    pub fn load(file: PathBuf, directory: PathBuf, user_file: Option<PathBuf>) -> Result<Tokens> {
        let config = Config::load(&directory, user_file.as_deref())?;
        let issuers = Arc::new(Issuers::load(&file, &config)?);
        let stamps = stamps(&file, &issuers);
        let looked = Instant::now();
        let now = Now { issuers, stamps, looked, read_anew: looked, failed: false };
        Ok(Tokens { file, directory, user_file, now: Mutex::new(now) })
    }

    /// The issuers, read anew if a file is another one. What does not hold is
    /// told of and not taken: the issuers before stay.
    fn latest(&self) -> Arc<Issuers> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            if now.failed || stamps(&self.file, &now.issuers) != now.stamps {
                self.read(&mut now);
            }
        }
        now.issuers.clone()
    }

    /// The same for a token whose key nobody knows: its issuer may have a new
    /// one, in a file that looks like the old. Bounded, since anybody can send
    /// such tokens.
    fn read_anew(&self) -> Arc<Issuers> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.read_anew.elapsed() >= LOOK {
            now.read_anew = Instant::now();
            self.read(&mut now);
        }
        now.issuers.clone()
    }

    fn read(&self, now: &mut Now) {
        // Before reading: a file that is written meanwhile is a change again.
        let before = stamps(&self.file, &now.issuers);
        match self.config().and_then(|config| Issuers::load(&self.file, &config)) {
            Ok(fresh) => {
                // Other files may be named now.
                now.stamps = match fresh.files().eq(now.issuers.files()) {
                    true => before,
                    false => stamps(&self.file, &fresh),
                };
                now.issuers = Arc::new(fresh);
                now.failed = false;
            }
            Err(error) => {
                // Once for each change, and not for each token.
                if now.stamps != before || !now.failed {
                    tracing::warn!("the issuers of tokens stay as they were: {error}");
                }
                now.stamps = before;
                now.failed = true;
            }
        }
    }

    fn config(&self) -> Result<Config> {
        Config::load(&self.directory, self.user_file.as_deref())
    }

    fn verify(&self, text: &str) -> Result<Key> {
        let token = Token::read(text)?;
        let issuers = self.latest();
        let issuer = issuers.find(&token)?;
        let (issuers, key) = match issuer.keys.find(token.kid()) {
            Some(key) => (issuers.clone(), key.clone()),
            None => {
                let issuers = self.read_anew();
                let found = issuers.find(&token)?.keys.find(token.kid()).cloned();
                let unknown = || Error::denied("it is signed with a key that its issuer has not");
                (issuers, found.ok_or_else(unknown)?)
            }
        };
        let issuer = issuers.find(&token)?;
        token.check_signature(&key, &issuer.algorithms)?;
        // As they are now: who made a role narrower means tokens, too, and a
        // file that does not read must not make it wider.
        grant::key(&token, issuer, &self.config()?, now_ms())
    }
}

impl Authenticate for Tokens {
    /// A token has two dots, which the secret of a key never has.
    fn authenticate(&self, token: &str) -> Option<Result<Key>> {
        let dots = token.bytes().filter(|byte| *byte == b'.').take(3).count();
        if token.starts_with(SECRET_PREFIX) || dots != 2 {
            return None;
        }
        if token.len() > TOKEN_BYTES_MAX {
            let text = format!("it has {} bytes, {TOKEN_BYTES_MAX} may be", token.len());
            return Some(Err(Error::denied(text)));
        }
        Some(self.verify(token))
    }
}

fn stamps(file: &Path, issuers: &Issuers) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    };
    std::iter::once(file).chain(issuers.files()).map(stamp).collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
