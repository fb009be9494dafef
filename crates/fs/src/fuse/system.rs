//! Mounting and unmounting: root asks the kernel, everyone else `fusermount3`.

use super::server::Server;
use super::{MountError, Options};
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Fewer would let one slow source hold up everybody; more do not get done
/// more.
const THREADS: std::ops::RangeInclusive<usize> = 4..=16;

/// How what is mounted gets unmounted.
pub(super) enum Mount {
    /// By ourselves.
    Own,
    /// By the helper. The number is the kernel's for the connection.
    Helped(Option<u32>, SessionUnmounter),
}

/// Mounts, and shakes hands with the kernel.
pub(super) fn mount(
    server: Server,
    dir: &Path,
    options: &Options,
) -> Result<(Session<Server>, Mount), MountError> {
    let refused = |cause| MountError::Refused { doing: "mount", dir: dir.to_owned(), cause };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut config = Config::default();
    config.n_threads = Some(threads.clamp(*THREADS.start(), *THREADS.end()));
    config.clone_fd = true;
    if rustix::process::geteuid().is_root() {
        let device = mount_as_root(dir, options)?;
        let session = Session::from_fd(server, device, SessionACL::All, config);
        let session = session.inspect_err(|_| detach(dir).unwrap_or_default());
        return Ok((session.map_err(refused)?, Mount::Own));
    }
    // Others cannot open more of the device than the helper hands them.
    config.clone_fd = false;
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("fractal".to_owned()),
        MountOption::DefaultPermissions,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    let mut session = Session::new(server, dir, &config).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper(cause),
        io::ErrorKind::PermissionDenied => MountError::NoDevice(cause),
        _ => refused(cause),
    })?;
    let unmounter = session.unmount_callable();
    Ok((session, Mount::Helped(None, unmounter)))
}

fn mount_as_root(dir: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = device.map_err(|cause| MountError::NoDevice(cause.into()))?;
    // The kernel checks permissions itself, and any user may come in as far
    // as those let them.
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let data = CString::new(data).expect("no NUL in it");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(&options.name, dir, "fuse.fractal", flags, &*data).map_err(|cause| {
        MountError::Refused { doing: "mount", dir: dir.to_owned(), cause: cause.into() }
    })?;
    Ok(device)
}

/// Ends a mount, whoever uses it: what they hold open says so from then on.
pub(super) fn unmount(mount: &mut Mount, dir: &Path) -> Result<(), MountError> {
    let refused = |cause| MountError::Refused { doing: "unmount", dir: dir.to_owned(), cause };
    match mount {
        Mount::Own => {
            // Pages that were written through memory maps.
            if let Ok(root) = rustix::fs::open(dir, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            {
                rustix::fs::syncfs(root).unwrap_or_default();
            }
            // Forced, the kernel ends the connection also for copies of the
            // mount in other namespaces.
            let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            rustix::mount::unmount(dir, flags).map_err(|cause| refused(cause.into()))
        }
        Mount::Helped(number, unmounter) => {
            if let Some(number) = number {
                let abort = format!("/sys/fs/fuse/connections/{number}/abort");
                std::fs::write(abort, "1").unwrap_or_default();
            }
            unmounter.unmount().or_else(|_| helper(dir)).map_err(refused)
        }
    }
}

/// Finds out the kernel's number of a connection that is being served.
pub(super) fn number(mount: &mut Mount, dir: &Path) {
    if let Mount::Helped(number, _) = mount
        && let Ok(stat) = rustix::fs::stat(dir)
    {
        *number = Some(rustix::fs::minor(stat.st_dev));
    }
}

pub(super) fn clean(dir: &Path) -> Result<(), MountError> {
    match rustix::fs::statfs(dir) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) => detach(dir)
            .map_err(|cause| MountError::Refused { doing: "unmount", dir: dir.to_owned(), cause }),
        Err(Errno::NOENT) => Ok(()),
        Err(cause) => Err(MountError::Place { dir: dir.to_owned(), cause: cause.into() }),
        Ok(stat) if is_ours(dir, stat.f_type) => Err(MountError::Alive { dir: dir.to_owned() }),
        Ok(_) => Ok(()),
    }
}

/// Whether a FUSE filesystem is mounted at the directory itself.
fn is_ours(dir: &Path, kind: rustix::fs::FsWord) -> bool {
    const FUSE: u64 = 0x6573_5546;
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
    let above = dir.canonicalize().ok().and_then(|dir| dir.parent().map(Path::to_owned));
    kind as u64 == FUSE && above.is_some_and(|above| device(dir) != device(&above))
}

fn detach(dir: &Path) -> io::Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => helper(dir),
        done => Ok(done?),
    }
}

fn helper(dir: &Path) -> io::Result<()> {
    let done = Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match done.success() {
        true => Ok(()),
        false => Err(io::Error::other("fusermount3 could not unmount it")),
    }
}
