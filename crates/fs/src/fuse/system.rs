//! Mounting and unmounting: root asks the kernel, everyone else `fusermount3`.

use super::server::Server;
use super::{MountError, Options};
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
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

/// What the kernel reads ahead of a program; its own default is an eighth.
const READ_AHEAD_KIB: &str = "1024";

/// How what is mounted gets unmounted, and how the kernel calls it.
pub(super) struct Mount {
    how: How,
    /// Major and minor number of its device, once it is served.
    device: Option<(u32, u32)>,
}

enum How {
    Own,
    Helped(SessionUnmounter),
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
        return Ok((session.map_err(refused)?, Mount { how: How::Own, device: None }));
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
    let how = How::Helped(session.unmount_callable());
    Ok((session, Mount { how, device: None }))
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
    // Someone else may have unmounted it and left what it was mounted over.
    if device(dir) != mount.device {
        return abort(mount).map_err(refused);
    }
    match &mut mount.how {
        How::Own => {
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
        How::Helped(unmounter) => {
            let done = unmounter.unmount().or_else(|_| helper(dir)).map_err(refused);
            // Those who use it still would keep us waiting.
            done.map(|()| abort(mount).unwrap_or_default())
        }
    }
}

/// Ends the connection of a mount that can no longer be found.
fn abort(mount: &Mount) -> io::Result<()> {
    let Some((_, minor)) = mount.device else { return Ok(()) };
    match std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1") {
        // Nobody has it any more.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The device at a path, without asking its server.
fn device(dir: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statx(rustix::fs::CWD, dir, flags, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// What can only be done once a mount is served: it is known by its device,
/// and reading ahead is made as large as one request may be.
pub(super) fn settle(mount: &mut Mount, dir: &Path) {
    mount.device = device(dir);
    if let (How::Own, Some((major, minor))) = (&mount.how, mount.device) {
        // Where this may not be set, long files are read in more pieces.
        let ahead = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        std::fs::write(ahead, READ_AHEAD_KIB).unwrap_or_default();
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
