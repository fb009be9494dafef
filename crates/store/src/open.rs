//! The handle: opening a state directory, its paths, its connections.
//!
//! `open` takes two system calls for the lock and one connection. Connections
//! are lent out and come back, so that threads read side by side and a read
//! inside a transaction of the same store cannot wait for itself.
//!
//! Every store holds `state.lock` shared for its life; `repair` takes it
//! alone, because it replaces the database under everybody's feet.

use crate::{Result, StoreError, schema};
use fractal_model::Id;
use rusqlite::Connection;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long we wait for locks of other processes.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// Connections kept for later; more are opened and closed as needed.
const IDLE_MAX: usize = 8;

const DIRECTORIES: [&str; 7] = ["layers", "volumes", "undo", "blobs", "cache", "keys", "trash"];

/// An open state directory. Cheap to open, safe to share between threads.
#[derive(Debug)]
pub struct Store {
    home: PathBuf,
    idle: Mutex<Vec<(Connection, Patience)>>,
    /// Held, never read: the shared lock ends with the store.
    _lock: OwnedFd,
}

impl Store {
    /// Opens the directory, and makes it on first use.
    pub fn open(home: &Path) -> Result<Store> {
        let lock = lock_home(home, FlockOperation::NonBlockingLockShared)?;
        let conn = connect_or_create(home)?;
        Store::keep_reserve(home, false);
        Ok(Store {
            home: home.to_owned(),
            idle: Mutex::new(vec![(conn, Patience::Full)]),
            _lock: lock,
        })
    }

    /// The directory itself.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where layers live.
    pub fn layers_dir(&self) -> PathBuf {
        self.home.join("layers")
    }

    /// Where volumes live.
    pub fn volumes_dir(&self) -> PathBuf {
        self.home.join("volumes")
    }

    /// What can be deleted at any time.
    pub fn trash_dir(&self) -> PathBuf {
        self.home.join("trash")
    }

    pub(crate) fn db_path(&self) -> PathBuf {
        self.home.join(DB)
    }

    /// Lends a connection to a job and names the database in its errors.
    pub(crate) fn with_connection<T>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        let lent = self.lend()?;
        job(&lent).map_err(|error| error.located(&self.db_path()))
    }

    /// The same for a job that writes, and how long its commit waits.
    pub(crate) fn with_writer<T>(
        &self,
        patience: Patience,
        job: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        let mut lent = self.lend()?;
        let done = lent
            .wait_for_disk(patience)
            .and_then(|()| job(&lent))
            .map_err(|error| error.located(&self.db_path()))?;
        if let Some(conn) = &mut lent.conn {
            // What was asked is committed; a log that stays long is no error.
            let _ = schema::shorten_log(conn, &beside(&self.db_path(), "-wal"), WAIT);
        }
        Ok(done)
    }

    fn lend(&self) -> Result<Lent<'_>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (conn, patience) = match idle {
            Some(known) => known,
            None => {
                let db = self.db_path();
                let conn = schema::connect(&db, WAIT).map_err(|error| error.located(&db))?;
                (conn, Patience::Full)
            }
        };
        Ok(Lent { store: self, conn: Some(conn), patience })
    }
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The disk.
    Full,
    /// The kernel.
    Normal,
}

/// A connection on loan. One that panicked in the middle of something is
/// closed instead of going back, since its settings are unknown.
struct Lent<'s> {
    store: &'s Store,
    conn: Option<Connection>,
    patience: Patience,
}

impl Lent<'_> {
    /// The setting stays with the connection, so that a row of commits of one
    /// kind sets it once.
    fn wait_for_disk(&mut self, patience: Patience) -> Result<()> {
        if self.patience != patience {
            // Not through the statement cache: this pragma takes effect when
            // it is compiled, so a cached one would do nothing.
            self.execute_batch(match patience {
                Patience::Full => "PRAGMA synchronous = FULL",
                Patience::Normal => "PRAGMA synchronous = NORMAL",
            })?;
            self.patience = patience;
        }
        Ok(())
    }
}

impl Deref for Lent<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.conn.as_ref().expect("taken only by drop")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        let mut idle = self.store.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::thread::panicking() && conn.is_autocommit() && idle.len() < IDLE_MAX {
            idle.push((conn, self.patience));
        }
    }
}

/// A new id from the clock and the kernel's dice.
pub fn new_id() -> Id {
    let mut dice = [0u8; 10];
    rustix::rand::getrandom(&mut dice, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel never fails a read this short once it is up");
    Id::from_parts(now_ms(), dice)
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) const DB: &str = "state.db";

/// A finished repair that is not in place yet.
pub(crate) const REPAIRED: &str = "state.db.repaired";

/// The database's file with a suffix: its log, its shared memory.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Takes `state.lock`, waiting for a bounded time.
pub(crate) fn lock_home(home: &Path, how: FlockOperation) -> Result<OwnedFd> {
    let path = home.join("state.lock");
    let lock = match open_lock(&path) {
        Err(rustix::io::Errno::NOENT) => {
            make_directories(home)?;
            open_lock(&path)
        }
        other => other,
    }
    .map_err(|error| StoreError::io("open", &path, error))?;
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&lock, how) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(StoreError::io("lock", &path, error)),
        }
        if start.elapsed() > WAIT {
            return Err(StoreError::Busy { path });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open_lock(path: &Path) -> rustix::io::Result<OwnedFd> {
    // Without O_CREAT first: the file is there in all but the first command,
    // and a read-only directory can still be looked at.
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        ),
        other => other,
    }
}

fn make_directories(home: &Path) -> Result<()> {
    let make = |path: &Path| {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| StoreError::io("create", path, error))
    };
    make(home)?;
    // An empty directory that someone made for us is ours to close to others;
    // one with files in it (FRACTAL_HOME=/tmp) is not ours to change.
    if fs::read_dir(home).is_ok_and(|mut entries| entries.next().is_none()) {
        fs::set_permissions(home, fs::Permissions::from_mode(0o700))
            .map_err(|error| StoreError::io("close to others", home, error))?;
    }
    DIRECTORIES.iter().try_for_each(|name| make(&home.join(name)))
}

fn connect_or_create(home: &Path) -> Result<Connection> {
    let db = home.join(DB);
    let located = |error: StoreError| error.located(&db);
    match schema::connect(&db, WAIT) {
        Err(StoreError::Sqlite { source, .. }) if cannot_open(&source) => {}
        other => return other.map_err(located),
    }
    match fs::symlink_metadata(&db) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => create_database(home, &db)?,
        Err(error) => return Err(StoreError::io("open", &db, error)),
    }
    match schema::connect(&db, WAIT) {
        Err(StoreError::Sqlite { source, .. }) if cannot_open(&source) => Err(reason(&db)),
        other => other.map_err(located),
    }
}

/// SQLite does not say why it cannot open a file; the system does. Asked
/// without opening: closing a file drops all of this process's locks on it,
/// those of SQLite included.
fn reason(db: &Path) -> StoreError {
    use rustix::fs::Access;
    // Its log is made beside it, so the directory counts as well.
    for path in [Some(db), db.parent()].into_iter().flatten() {
        if let Err(errno) = rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK) {
            return StoreError::io("write", path, errno);
        }
    }
    StoreError::io("open", db, std::io::Error::other("SQLite cannot open it"))
}

fn cannot_open(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen)
}

fn create_database(home: &Path, db: &Path) -> Result<()> {
    // The log is looked at first: it never exists before the database does,
    // so a log without a database is what an interrupted repair (or someone's
    // `rm`) left, and SQLite would replay it into our new file.
    let remains = beside(db, "-wal").exists() || home.join(REPAIRED).exists();
    if db.exists() {
        return Ok(());
    }
    if remains {
        let detail = "it is missing, but its log or an unfinished repair remains".to_owned();
        return Err(StoreError::Corrupt { path: db.to_owned(), detail });
    }
    make_directories(home)?;
    let fresh = home.join(format!("{DB}.new-{}", new_id()));
    let made = make_private(&fresh)
        .and_then(|()| schema::create(&fresh).map(drop).map_err(|error| error.located(&fresh)));
    let published = made.and_then(|()| publish(home, &fresh, db));
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(beside(&fresh, suffix));
    }
    published
}

/// SQLite gives its log and shared memory the mode of the database.
pub(crate) fn make_private(path: &Path) -> Result<()> {
    let made = fs::File::options().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|error| StoreError::io("create", path, error))
}

/// Links a complete database into place; losing the race to another process
/// is success.
pub(crate) fn publish(home: &Path, complete: &Path, db: &Path) -> Result<()> {
    match fs::hard_link(complete, db) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(StoreError::io("create", db, error));
        }
        _ => {}
    }
    sync_directory(home)
}

/// Makes renames and links in a directory survive a power cut.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let synced = fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| StoreError::io("sync", path, error))
}
