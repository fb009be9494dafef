//! The plan as data: one step per system call or small group of them.
//!
//! A [`Step`] holds everything it needs as ready C strings, so executing one
//! between `clone` and `exec` allocates nothing. Its `Display` is what
//! `fractal run --explain` prints.

use crate::JailError;
use crate::sys::{self, Errno, Sys};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::fd::RawFd;

/// A path for system calls that prints as text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CPath(CString);

impl CPath {
    /// Refuses NUL bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<CPath, JailError> {
        CString::new(bytes).map(CPath).map_err(|_| JailError::NulInPath)
    }

    /// As system calls take it.
    pub fn as_c(&self) -> &CStr {
        &self.0
    }
}

impl fmt::Display for CPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string_lossy())
    }
}

impl fmt::Debug for CPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How many detached mounts a plan may hold at once.
pub const SLOTS: usize = 96;

/// An overlay mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Read-only directories, nearest first.
    pub lowers: Vec<CString>,
    /// The writable directory and its work directory; none makes a veil.
    pub upper: Option<(CString, CString)>,
    /// Unprivileged mounts keep their marks in `user.` attributes.
    pub user_xattr: bool,
    /// Where it goes.
    pub at: CPath,
    /// The same as one option string, where it is short enough for `mount`.
    pub options: Option<CString>,
}

/// A filesystem that the kernel makes out of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Kind {
    Devpts,
    Proc,
    Sysfs,
    Tmpfs,
}

impl Kind {
    /// As `mount` takes it.
    pub fn as_c(self) -> &'static CStr {
        match self {
            Kind::Devpts => c"devpts",
            Kind::Proc => c"proc",
            Kind::Sysfs => c"sysfs",
            Kind::Tmpfs => c"tmpfs",
        }
    }
}

/// One thing to do on the way into the sandbox.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Cut mount events between this namespace and the host's.
    Private,
    /// Take a detached copy of a mount, with shifted owners if `idmap`.
    OpenTree { slot: usize, path: CPath, recursive: bool, idmap: bool },
    /// Attach a detached mount.
    Attach { slot: usize, at: CPath },
    /// Mount a new filesystem of some kind.
    Filesystem { kind: Kind, at: CPath, flags: u64, data: CPath },
    /// Mount layers over each other.
    Overlay(Box<Overlay>),
    /// Show a file or directory at a second place.
    Bind { from: CPath, at: CPath },
    /// Add read-only, nosuid or nodev.
    Restrict { at: CPath, attributes: u64, recursive: bool },
    /// Make a directory.
    MakeDir { path: CPath, mode: u32, owner: Option<(u32, u32)> },
    /// Make a directory in a layer that programs wrote before: `name` in
    /// `parent`, which is relative to `tree`. Links in it are not followed.
    MakeInLayer { tree: CPath, parent: CPath, name: CPath, mode: u32, owner: Option<(u32, u32)> },
    /// Make an empty file.
    MakeFile { path: CPath, mode: u32 },
    /// Make a symbolic link.
    Link { target: CPath, path: CPath },
    /// Make a character device.
    Device { path: CPath, major: u32, minor: u32 },
    /// Write a kernel setting.
    Write { path: CPath, text: CPath },
    /// Change the working directory.
    Enter { dir: CPath },
    /// Make the working directory the root and forget the old one.
    Pivot,
    /// Bring the loopback interface up.
    Loopback,
    /// Make files as this user and group from here on.
    ActAs { uid: u32, gid: u32 },
    /// Open the memory top for the caller, who reads the changes from it. It
    /// is sent with the next message, to wake the caller once only.
    OpenTop { path: CPath },
    /// Listen for the proxy inside and hand the socket to the caller.
    Listen { port: u16 },
    /// Listen at a path inside and hand the socket to the caller.
    Door { path: CPath },
    /// Move into the namespaces of a living run, with mounts of our own.
    Join { network: bool },
    /// Wait until the monitor has made the network namespace, which it does
    /// while the steps before this one run.
    Meet,
    /// Go on when it fails.
    Optional(Box<Step>),
}

/// Detached mounts between the steps that take and attach them.
pub struct Slots {
    fds: [RawFd; SLOTS],
    /// The user namespace whose maps shift owners.
    pub user_namespace: RawFd,
    /// Where descriptors for the caller are sent.
    pub control: RawFd,
    /// Namespaces of a run to join.
    pub living: [RawFd; 5],
    /// The memory top, for the caller.
    pub top: Option<RawFd>,
}

impl Slots {
    /// No mounts yet.
    pub fn new(user_namespace: RawFd, control: RawFd, living: [RawFd; 5]) -> Slots {
        Slots { fds: [-1; SLOTS], user_namespace, control, living, top: None }
    }
}

impl Step {
    /// Carries the step out. Allocates nothing, and expects a file creation
    /// mask of zero, so that modes are what the plan says.
    pub fn execute(&self, slots: &mut Slots) -> Sys<()> {
        match self {
            Step::Private => sys::mount::make_private(),
            Step::OpenTree { slot, path, recursive, idmap } => {
                open_tree(slots, *slot, path.as_c(), *recursive, *idmap)
            }
            Step::Attach { slot, at } => attach(slots, *slot, at.as_c()),
            Step::Filesystem { kind, at, flags, data } => {
                sys::mount::mount(kind.as_c(), at.as_c(), *flags, data.as_c())
            }
            Step::Overlay(overlay) => overlay.execute(),
            Step::Bind { from, at } => {
                let tree = sys::mount::open_tree(from.as_c(), false)?;
                let result = sys::mount::attach(tree, at.as_c());
                sys::fd::close(tree);
                result
            }
            Step::Restrict { at, attributes, recursive } => {
                sys::mount::restrict(at.as_c(), *attributes, *recursive)
            }
            Step::MakeDir { path, mode, owner } => make_dir(path.as_c(), *mode, *owner),
            Step::MakeInLayer { tree, parent, name, mode, owner } => {
                let tree = sys::fd::open(tree.as_c(), libc::O_PATH | libc::O_DIRECTORY, 0)?;
                let result = make_in_layer(tree, parent.as_c(), name.as_c(), *mode, *owner);
                sys::fd::close(tree);
                result
            }
            Step::MakeFile { path, mode } => {
                sys::fd::mknod(path.as_c(), libc::S_IFREG | mode, 0, 0)
            }
            Step::Link { target, path } => sys::fd::symlink(target.as_c(), path.as_c()),
            Step::Device { path, major, minor } => {
                sys::fd::mknod(path.as_c(), libc::S_IFCHR | 0o666, *major, *minor)
            }
            Step::Write { path, text } => sys::fd::write_file(path.as_c(), text.as_c().to_bytes()),
            Step::Enter { dir } => sys::fd::chdir(dir.as_c()),
            Step::Pivot => sys::mount::pivot_here(),
            Step::Loopback => sys::socket::loopback_up(),
            Step::ActAs { uid, gid } => sys::process::act_as(*uid, *gid),
            Step::OpenTop { path } => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                slots.top = Some(sys::fd::open(path.as_c(), flags, 0)?);
                Ok(())
            }
            Step::Listen { port } => {
                let fd = sys::socket::listen_loopback(*port)?;
                crate::wire::Message::of(crate::wire::PROXY).send(slots.control, Some(fd))
            }
            Step::Door { path } => {
                let fd = sys::socket::listen_at(path.as_c())?;
                let sent =
                    crate::wire::Message::of(crate::wire::DOOR).send(slots.control, Some(fd));
                sys::fd::close(fd);
                sent
            }
            Step::Join { network } => join(&slots.living, *network),
            // Carried out by init, which holds the channel.
            Step::Meet => Ok(()),
            Step::Optional(step) => {
                let _ = step.execute(slots);
                Ok(())
            }
        }
    }
}

/// The user namespace was entered by the monitor already, where needed.
fn join(living: &[RawFd; 5], network: bool) -> Sys<()> {
    for (fd, (name, kind)) in living.iter().zip(crate::living::NAMESPACES) {
        if name != "user" && (network || name != "net") {
            sys::process::enter_namespace(*fd, kind)?;
        }
    }
    sys::process::unshare(libc::CLONE_NEWNS)
}

fn open_tree(slots: &mut Slots, slot: usize, path: &CStr, recursive: bool, idmap: bool) -> Sys<()> {
    let fd = sys::mount::open_tree(path, recursive)?;
    if idmap {
        sys::mount::idmap(fd, slots.user_namespace)?;
    }
    slots.fds[slot] = fd;
    Ok(())
}

fn attach(slots: &mut Slots, slot: usize, at: &CStr) -> Sys<()> {
    sys::mount::attach(slots.fds[slot], at)?;
    sys::fd::close(slots.fds[slot]);
    slots.fds[slot] = -1;
    Ok(())
}

fn make_dir(path: &CStr, mode: u32, owner: Option<(u32, u32)>) -> Sys<()> {
    match sys::fd::mkdir(path, mode) {
        Ok(()) => {}
        Err(libc::EEXIST) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    owner.map_or(Ok(()), |(uid, gid)| sys::fd::chown(path, uid, gid))
}

fn make_in_layer(
    tree: RawFd,
    parent: &CStr,
    name: &CStr,
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Sys<()> {
    let parent = sys::fd::open_beneath(tree, parent)?;
    let made = sys::fd::mkdirat(parent, name, mode);
    // Opened even if it was there before: a link in its place is an error.
    let opened = sys::fd::open_beneath(parent, name);
    sys::fd::close(parent);
    let dir = match (made, opened) {
        (Ok(()) | Err(libc::EEXIST), opened) => opened?,
        (Err(errno), opened) => {
            opened.into_iter().for_each(sys::fd::close);
            return Err(errno);
        }
    };
    let result = match made {
        Ok(()) => sys::fd::fchmod(dir, mode)
            .and_then(|()| owner.map_or(Ok(()), |(uid, gid)| sys::fd::fchown(dir, uid, gid))),
        Err(_) => Ok(()),
    };
    sys::fd::close(dir);
    result
}

impl Overlay {
    fn execute(&self) -> Sys<()> {
        let flags = libc::MS_NODEV | libc::MS_NOSUID;
        if let Some(options) = &self.options {
            return sys::mount::mount(c"overlay", self.at.as_c(), flags as u64, options);
        }
        // The kernel takes no word about redirects together with `userxattr`.
        let mut pairs: [(&CStr, &CStr); 5] = [(c"index", c"off"); 5];
        let mut count = 1;
        let mut add = |pair| {
            pairs[count] = pair;
            count += 1;
        };
        add((c"metacopy", c"off"));
        if !self.user_xattr {
            add((c"redirect_dir", c"off"));
        }
        if let Some((upper, work)) = &self.upper {
            add((c"upperdir", upper.as_c_str()));
            add((c"workdir", work.as_c_str()));
        }
        let flag_list: &[&CStr] = match (self.user_xattr, self.upper.is_some()) {
            (true, true) => &[c"userxattr", c"volatile"],
            (true, false) => &[c"userxattr"],
            (false, true) => &[c"volatile"],
            (false, false) => &[],
        };
        sys::mount::overlay(&self.lowers, &pairs[..count], flag_list, self.at.as_c())?;
        sys::mount::restrict(
            self.at.as_c(),
            sys::mount::ATTR_NODEV | sys::mount::ATTR_NOSUID,
            false,
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Private => write!(f, "make all mounts private"),
            Step::OpenTree { path, recursive, idmap, slot } => {
                let all = if *recursive { " and all below" } else { "" };
                let shifted = if *idmap { " with shifted owners" } else { "" };
                write!(f, "take mount {path}{all}{shifted} as #{slot}")
            }
            Step::Attach { slot, at } => write!(f, "attach #{slot} at {at}"),
            Step::Filesystem { kind, at, data, .. } => {
                write!(f, "mount {} at {at} ({data})", kind.as_c().to_string_lossy())
            }
            Step::Overlay(overlay) => overlay.fmt(f),
            Step::Bind { from, at } => write!(f, "bind {from} at {at}"),
            Step::Restrict { at, attributes, recursive } => {
                let all = if *recursive { " and all below" } else { "" };
                write!(f, "restrict {at}{all} ({})", attribute_words(*attributes))
            }
            Step::MakeDir { path, mode, .. } => write!(f, "make directory {path} ({mode:o})"),
            Step::MakeInLayer { tree, parent, name, mode, .. } => {
                write!(f, "make directory {parent}/{name} in {tree} ({mode:o})")
            }
            Step::MakeFile { path, mode } => write!(f, "make file {path} ({mode:o})"),
            Step::Link { target, path } => write!(f, "link {path} -> {target}"),
            Step::Device { path, major, minor } => {
                write!(f, "make device {path} ({major}:{minor})")
            }
            Step::Write { path, text } => write!(f, "write `{text}` to {path}"),
            Step::Enter { dir } => write!(f, "enter {dir}"),
            Step::Pivot => write!(f, "make this the root and drop the old one"),
            Step::Loopback => write!(f, "bring loopback up"),
            Step::ActAs { uid, gid } => write!(f, "make files as {uid}:{gid} from here on"),
            Step::OpenTop { path } => write!(f, "hand {path} to the caller"),
            Step::Listen { port } => write!(f, "listen on 127.0.0.1:{port} for the proxy"),
            Step::Door { path } => write!(f, "listen on {path} and hand it to the caller"),
            Step::Join { .. } => write!(f, "join the namespaces of a living run"),
            Step::Meet => write!(f, "join the network namespace"),
            Step::Optional(step) => write!(f, "{step} (if possible)"),
        }
    }
}

impl fmt::Display for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "overlay at {}: ", self.at)?;
        if let Some((upper, _)) = &self.upper {
            write!(f, "write {} over ", upper.to_string_lossy())?;
        }
        // The ends of a long stack tell most.
        const SHOWN: usize = 2;
        let count = self.lowers.len();
        for (index, lower) in self.lowers.iter().enumerate() {
            let sep = if index == 0 { "" } else { " over " };
            match index {
                SHOWN if count > SHOWN + 2 => write!(f, " over {} more", count - SHOWN - 1)?,
                _ if index > SHOWN && index + 1 < count && count > SHOWN + 2 => {}
                _ => write!(f, "{sep}{}", lower.to_string_lossy())?,
            }
        }
        Ok(())
    }
}

fn attribute_words(attributes: u64) -> String {
    let words = [
        (sys::mount::ATTR_RDONLY, "read-only"),
        (sys::mount::ATTR_NOSUID, "nosuid"),
        (sys::mount::ATTR_NODEV, "nodev"),
    ];
    let set: Vec<&str> =
        words.iter().filter(|(bit, _)| attributes & bit != 0).map(|(_, word)| *word).collect();
    set.join(", ")
}

/// What an errno means, in the words of the C library.
pub fn errno_text(errno: Errno) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}
