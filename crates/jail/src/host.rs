//! Facts about this machine that a plan depends on, gathered in one place.
//!
//! Planning itself is pure; whatever it must know of the host is read here
//! first and handed over as data, so that plans can be tested anywhere.

use crate::spec::{Spec, Stack};
use fractal_model::Tier;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Directories of the root that a sandbox never takes from the host.
pub const PRIVATE_TOPS: [&str; 4] = ["proc", "sys", "dev", "run"];

/// Where the owner of `/proc` can change the machine.
const KERNEL_SWITCHES: [&str; 5] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// Files of `/proc` that no namespace confines: they show keys of the user
/// (also to an unprivileged one), timers, memory and log of the whole machine.
const KERNEL_VIEWS: [&str; 11] = [
    // About keys: the first `KEY_VIEWS` of them.
    "/proc/keys",
    "/proc/key-users",
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/timer_list",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
    "/proc/pagetypeinfo",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/kpagecgroup",
];

const KEY_VIEWS: usize = 2;

/// Filesystems that carry kernel interfaces, not files.
const PSEUDO: [&str; 21] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "devtmpfs",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "bpf",
    "pstore",
    "autofs",
    "binfmt_misc",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "efivarfs",
    "rpc_pipefs",
    "nsfs",
    "fuse.lxcfs",
];

/// Where everybody may write, and nobody keeps anything.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// At most so many host mounts appear inside; more would make a start slow.
const HOST_MOUNTS_MAX: usize = 32;
/// Filesystems that a program or another machine answers for. Their owners
/// cannot be shifted (Linux 6.18: EINVAL), and one that has stopped answering
/// would stop every run, so they are left alone unless the project is there.
const REMOTE: [&str; 9] = ["fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph"];
/// Tens of thousands of mounts.
const MOUNTINFO_BYTES_MAX: u64 = 16 << 20;
/// At most so many directories of `/run` are made anew inside.
const RUN_DIRS_MAX: usize = 64;

/// A directory to make with the attributes it has on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dir {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Permission bits, with the sticky bit.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A directory that gets an overlay of its own.
#[derive(Clone, Debug)]
pub struct Own {
    /// Absolute path, the same inside and outside.
    pub path: PathBuf,
    /// For each sealed layer, whether it holds this directory.
    pub in_sealed: Vec<bool>,
    /// It and the directories above it, outermost first.
    pub chain: Vec<Dir>,
    /// Whether the layers lie below it on the same filesystem.
    pub holds_layers: bool,
    /// Whether the host itself mounted it read-only, so that nothing in it
    /// can change.
    pub read_only: bool,
    /// Whether nothing of the host's is shown in it, because it cannot be.
    pub bare: bool,
}

/// An entry of the host's root directory.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A directory.
    Dir(String),
    /// A link and its target.
    Link(String, PathBuf),
}

/// Everything a plan needs to know.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Who asks.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// Whether a pid namespace has a highest pid of its own (Linux 6.14);
    /// before, the setting was the whole machine's and must not be touched.
    pub namespaces_limit_pids: bool,
    /// The memory of the machine.
    pub memory_bytes: u64,
    /// A directory over which a private tmpfs can be laid.
    pub staging: PathBuf,
    /// Whether the layers lie on the filesystem of `/`.
    pub layers_under_root: bool,
    /// Entries of `/`, where the plan must bind each of them.
    pub root: Vec<Entry>,
    /// Mode of `/`.
    pub root_mode: u32,
    /// Other filesystems of the host that hold files.
    pub mounts: Vec<Own>,
    /// Directories worth an overlay of their own.
    pub own: Vec<Own>,
    /// What is not as elsewhere because something is mounted inside, in words.
    pub shadowed: Vec<String>,
    /// The skeleton of `/run`.
    pub run: Vec<Dir>,
    /// Content of a resolver file that lives below `/run`.
    pub resolver: Option<(PathBuf, Vec<u8>)>,
    /// Hidden paths that exist, and whether each is a directory.
    pub hidden: Vec<(PathBuf, bool)>,
    /// Mount points that must be made, each with the directories above it.
    pub make_points: Vec<Vec<Dir>>,
    /// Kernel settings in `/proc` that this kernel was built with.
    pub kernel_switches: Vec<PathBuf>,
    /// Files in `/proc` that show more than the sandbox.
    pub kernel_views: Vec<PathBuf>,
    /// What a program without namespaces may read, and whether each is a
    /// directory.
    pub readable: Vec<(PathBuf, bool)>,
}

impl Facts {
    /// Reads them. Nothing here fails: what cannot be read is left out.
    pub fn gather(spec: &Spec) -> Facts {
        let (uid, gid) = crate::sys::process::effective_ids();
        let stack = &spec.stack;
        let rootless = spec.tier == Tier::Rootless;
        let copied = spec.tier == Tier::Copied;
        let mut shadowed = Vec::new();
        let own = if rootless {
            rootless_own(spec, uid, &mut shadowed)
        } else if copied || stack.sealed.is_empty() {
            Vec::new()
        } else {
            fast_paths(stack)
        };
        let hidden = hidden(spec);
        Facts {
            uid,
            gid,
            namespaces_limit_pids: !copied && kernel_version() >= (6, 14),
            memory_bytes: memory_bytes(),
            staging: staging(),
            layers_under_root: device(&stack.layers_dir) == device(Path::new("/")),
            root: if rootless { root_entries() } else { Vec::new() },
            root_mode: fs::metadata("/").map_or(0o755, |meta| meta.mode() & 0o7777),
            mounts: if rootless || copied { Vec::new() } else { host_mounts(stack) },
            own,
            shadowed,
            run: run_skeleton(),
            resolver: resolver(),
            readable: if copied { crate::copied::readable(spec, &hidden) } else { Vec::new() },
            hidden,
            make_points: stack
                .mounts
                .iter()
                .filter(|mount| !mount.at.is_dir())
                .map(|mount| point_chain(&mount.at))
                .collect(),
            kernel_switches: match spec.tier {
                Tier::Masked => existing(&KERNEL_SWITCHES),
                _ => Vec::new(),
            },
            // With shifted ids nothing of it can be read anyway: the files
            // belong to the host's root, and the keys of its users to users
            // that do not exist inside. An unprivileged user could read only
            // about their own keys.
            kernel_views: match spec.tier {
                Tier::Clone => Vec::new(),
                Tier::Masked => existing(&KERNEL_VIEWS),
                _ => existing(&KERNEL_VIEWS[..KEY_VIEWS]),
            },
        }
    }
}

/// Major and minor number of the running kernel.
pub fn kernel_version() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

/// A mount point that the host lacks, and all directories above it.
fn point_chain(point: &Path) -> Vec<Dir> {
    let mut above: Vec<&Path> = point.ancestors().filter(|dir| dir.parent().is_some()).collect();
    above.reverse();
    let dir = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => {
            Dir { path: path.into(), mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid() }
        }
        _ => Dir { path: path.into(), mode: 0o755, uid: 0, gid: 0 },
    };
    above.into_iter().map(dir).collect()
}

/// Hidden paths that exist, as they lead on the host: a program could bend its
/// copy of a link, and the next run would hide something else.
fn hidden(spec: &Spec) -> Vec<(PathBuf, bool)> {
    let paths: Vec<&Path> =
        spec.hidden.iter().chain([&spec.stack.state_dir]).map(PathBuf::as_path).collect();
    // Most do not exist. Where many would lie in one directory, a look at the
    // directory is cheaper than a look for each.
    const WORTH_A_LOOK: usize = 8;
    let mut wanted = HashMap::<&Path, usize>::new();
    for parent in paths.iter().filter_map(|path| path.parent()) {
        *wanted.entry(parent).or_default() += 1;
    }
    let listed: HashMap<&Path, Option<HashSet<OsString>>> = wanted
        .into_iter()
        .filter(|(_, count)| *count >= WORTH_A_LOOK)
        .map(|(parent, _)| (parent, names_in(parent)))
        .collect();
    let may_exist = |path: &&Path| {
        path.ancestors().zip(path.ancestors().skip(1)).all(|(entry, dir)| {
            let names = listed.get(dir).and_then(Option::as_ref);
            names.is_none_or(|names| entry.file_name().is_some_and(|name| names.contains(name)))
        })
    };
    let resolve = |path: &Path| {
        let is_dir = fs::metadata(path).ok()?.is_dir();
        Some((fs::canonicalize(path).ok()?, is_dir))
    };
    paths.into_iter().filter(may_exist).filter_map(resolve).collect()
}

/// The names in a directory: none in one that is missing, `None` when they
/// cannot be read.
fn names_in(dir: &Path) -> Option<HashSet<OsString>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Some(entry.ok()?.file_name())).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(HashSet::new()),
        Err(_) => None,
    }
}

fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.dev())
}

fn staging() -> PathBuf {
    let candidates = ["/tmp", "/mnt", "/var", "/usr"];
    candidates.iter().map(PathBuf::from).find(|dir| dir.is_dir()).unwrap_or_else(|| "/".into())
}

fn root_entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for entry in fs::read_dir("/").into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => entries.push(Entry::Dir(name)),
            Ok(kind) if kind.is_symlink() => {
                if let Ok(target) = fs::read_link(entry.path()) {
                    entries.push(Entry::Link(name, target));
                }
            }
            _ => {}
        }
    }
    entries.sort_by(|a, b| entry_name(a).cmp(entry_name(b)));
    entries
}

fn entry_name(entry: &Entry) -> &str {
    match entry {
        Entry::Dir(name) | Entry::Link(name, _) => name,
    }
}

/// Mounts of the host below `/` that hold files people work with.
fn host_mounts(stack: &Stack) -> Vec<Own> {
    let text = mountinfo().unwrap_or_default();
    let mut points: Vec<(PathBuf, bool)> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some((point, kind, read_only)) = mount_line(line) else { continue };
        let skip = PSEUDO.contains(&kind.as_str())
            || point == Path::new("/")
            || PRIVATE_TOPS.iter().any(|top| point.starts_with(Path::new("/").join(top)))
            || point.starts_with(&stack.state_dir)
            || (is_remote(&kind) && !stack.project.starts_with(&point));
        if !skip && point.is_dir() {
            // A later mount at the same place covers the earlier one.
            points.retain(|(other, _)| *other != point);
            points.push((point, read_only));
        }
    }
    points.truncate(HOST_MOUNTS_MAX);
    let describe = |(point, read_only)| Some(Own { read_only, ..own(stack, point)? });
    points.into_iter().filter_map(describe).collect()
}

fn is_remote(kind: &str) -> bool {
    REMOTE.contains(&kind) || kind.starts_with("fuse.")
}

/// The kernel writes this text anew for every read, which takes as long as
/// making a namespace. An open file tells when something was mounted, so that
/// a process with many runs reads it once.
fn mountinfo() -> std::io::Result<Vec<u8>> {
    static KNOWN: Mutex<Option<(u64, fs::File, Vec<u8>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads and forked processes may live in other namespaces.
    let here = fs::metadata("/proc/thread-self/ns/mnt")?.ino();
    if let Some((there, file, text)) = &*known
        && *there == here
    {
        let mut changed =
            [libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 }];
        if crate::sys::fd::poll(&mut changed, 0) == Ok(0) {
            return Ok(text.clone());
        }
    }
    let file = fs::File::open("/proc/thread-self/mountinfo")?;
    let mut text = Vec::with_capacity(64 * 1024);
    (&file).take(MOUNTINFO_BYTES_MAX).read_to_end(&mut text)?;
    *known = Some((here, file, text.clone()));
    Ok(text)
}

/// Mount point and filesystem of one line of mountinfo, and whether the mount
/// is read-only.
fn mount_line(line: &[u8]) -> Option<(PathBuf, String, bool)> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let kind = String::from_utf8(fields.get(dash + 1)?.to_vec()).ok()?;
    let point = unescape_octal(fields.get(4)?);
    let read_only = fields.get(5)?.split(|byte| *byte == b',').any(|option| option == b"ro");
    Some((PathBuf::from(OsString::from_vec(point)), kind, read_only))
}

/// mountinfo writes space, tab, newline and backslash as `\040` and so on.
fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// On a stack the root needs a veil (see `plan::clone`), which costs a little
/// on every lookup; the trees that are read most get a direct overlay.
fn fast_paths(stack: &Stack) -> Vec<Own> {
    let mut paths = vec![PathBuf::from("/usr")];
    let project = &stack.project;
    if project.components().count() > 1 && !project.starts_with("/usr") {
        paths.push(project.clone());
    }
    paths
        .into_iter()
        .filter(|path| device(path) == device(Path::new("/")))
        .filter_map(|path| own(stack, path))
        .filter(|own| !own.holds_layers)
        .collect()
}

/// What an unprivileged user can write gets an overlay; the rest is read-only.
///
/// The kernel lays no overlay of theirs over a directory in which something is
/// mounted, since that would show what the mount hides. So a temporary
/// directory with a mount in it (every running AppImage is one) starts empty,
/// and a home stays as it is, read-only; both only as far as they are not the
/// project.
fn rootless_own(spec: &Spec, uid: u32, shadowed: &mut Vec<String>) -> Vec<Own> {
    let home =
        spec.env.iter().find(|(key, _)| key == "HOME").map(|(_, value)| PathBuf::from(value));
    let mut paths: Vec<PathBuf> = Vec::new();
    let temporary = TEMPORARY.map(PathBuf::from);
    let candidates = [Some(spec.stack.project.clone()), home].into_iter().flatten();
    for path in candidates.chain(temporary) {
        let Ok(meta) = fs::metadata(&path) else { continue };
        let ours = meta.uid() == uid || meta.mode() & 0o002 != 0;
        let private = PRIVATE_TOPS.iter().any(|top| path.starts_with(Path::new("/").join(top)));
        if meta.is_dir() && ours && !private && path != Path::new("/") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.dedup();
    // The project keeps an overlay of its own also inside another one: below a
    // directory of somebody else's, the outer one could not copy it up.
    let outer = paths.clone();
    paths.retain(|path| {
        path == &spec.stack.project
            || !outer.iter().any(|other| other != path && path.starts_with(other))
    });
    let points = mount_points();
    let mut own_paths = Vec::new();
    for path in paths {
        let inner = points.iter().find(|point| point.starts_with(&path) && **point != path);
        let inner = inner.filter(|_| path != spec.stack.project);
        let bare = inner.is_some() && TEMPORARY.iter().any(|dir| path == Path::new(dir));
        if let Some(inner) = inner {
            let how = if bare { "starts empty" } else { "is read-only" };
            shadowed.push(format!(
                "{}: {how}, for {} is mounted in it",
                path.display(),
                inner.display()
            ));
        }
        if inner.is_none() || bare {
            own_paths.extend(own(&spec.stack, path).map(|own| Own { bare, ..own }));
        }
    }
    own_paths
}

fn mount_points() -> Vec<PathBuf> {
    let text = mountinfo().unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(mount_line).map(|(point, ..)| point).collect()
}

/// Describes one directory; `None` when a layer hides it or turns it opaque,
/// so that only the overlay above can show it right.
fn own(stack: &Stack, path: PathBuf) -> Option<Own> {
    let chain = chain_of(&path)?;
    let relative = path.strip_prefix("/").ok()?.to_path_buf();
    let mut in_sealed = Vec::with_capacity(stack.sealed.len());
    for name in &stack.sealed {
        in_sealed.push(plain_in_layer(&stack.layers_dir.join(name).join("tree"), &relative)?);
    }
    if let crate::spec::Top::Disk(name) = &stack.top {
        plain_in_layer(&stack.layers_dir.join(name).join("tree"), &relative)?;
    }
    let holds_layers =
        stack.layers_dir.starts_with(&path) && device(&path) == device(&stack.layers_dir);
    Some(Own { path, in_sealed, chain, holds_layers, read_only: false, bare: false })
}

/// Whether the layer holds the directory as a plain one; `None` when a
/// component is something else or opaque.
pub fn plain_in_layer(tree: &Path, relative: &Path) -> Option<bool> {
    let mut at = tree.to_path_buf();
    for part in relative.components() {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Err(_) => return Some(false),
            Ok(meta) if !meta.is_dir() => return None,
            Ok(_) if is_opaque(&at) => return None,
            Ok(_) => {}
        }
    }
    Some(true)
}

fn is_opaque(dir: &Path) -> bool {
    let mut value = [0u8; 4];
    ["trusted.overlay.opaque", "user.overlay.opaque"]
        .iter()
        .any(|name| matches!(rustix::fs::lgetxattr(dir, *name, &mut value), Ok(1..)))
}

fn chain_of(path: &Path) -> Option<Vec<Dir>> {
    let mut chain: Vec<Dir> = Vec::new();
    for dir in path.ancestors().filter(|dir| dir.parent().is_some()) {
        let meta = fs::symlink_metadata(dir).ok().filter(fs::Metadata::is_dir)?;
        let (mode, uid, gid) = (meta.mode() & 0o7777, meta.uid(), meta.gid());
        chain.push(Dir { path: dir.to_path_buf(), mode, uid, gid });
    }
    chain.reverse();
    Some(chain)
}

/// `/run` starts empty in every run, like after a boot, but with the
/// directories that services expect to find there and could not make. Those
/// below they make themselves, save for locks, which belong to nobody.
fn run_skeleton() -> Vec<Dir> {
    // Where services of the host keep sockets and secrets of their own.
    const SKIP: [&str; 4] = ["user", "secrets", "credentials", "host"];
    let mut dirs = Vec::new();
    let mut queue = vec![(PathBuf::from("/run"), 0)];
    while let Some((dir, depth)) = queue.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let skip = SKIP.iter().any(|name| entry.file_name() == *name);
            let Ok(meta) = entry.metadata() else { continue };
            if skip || !meta.is_dir() || dirs.len() >= RUN_DIRS_MAX {
                continue;
            }
            let path = entry.path();
            let (mode, uid, gid) = (meta.mode() & 0o1777, meta.uid(), meta.gid());
            dirs.push(Dir { path: path.clone(), mode, uid, gid });
            if depth == 0 && path.ends_with("lock") {
                queue.push((path, 1));
            }
        }
    }
    dirs.sort_by(|a, b| a.path.cmp(&b.path));
    dirs
}

/// Many systems keep `resolv.conf` as a link into `/run`.
fn resolver() -> Option<(PathBuf, Vec<u8>)> {
    let path = fs::canonicalize("/etc/resolv.conf").ok()?;
    let content = path.starts_with("/run").then(|| fs::read(&path).ok())??;
    (content.len() <= 16 * 1024 && !content.contains(&0)).then_some((path, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_read_with_escapes() {
        let line = br"36 35 98:0 / /mnt/a\040b rw,noatime shared:1 - ext4 /dev/sda rw";
        assert_eq!(mount_line(line), Some((PathBuf::from("/mnt/a b"), "ext4".to_owned(), false)));
        let line = b"37 35 7:1 / /snap/x ro,nodev shared:1 - squashfs /dev/loop1 ro";
        assert_eq!(mount_line(line), Some((PathBuf::from("/snap/x"), "squashfs".to_owned(), true)));
        assert_eq!(mount_line(b""), None);
        assert_eq!(mount_line(b"1 2 3"), None);
    }

    #[test]
    fn opaque_or_replaced_directories_are_left_to_the_overlay_above() {
        let tree = std::env::temp_dir().join(format!("fractal-host-test-{}", std::process::id()));
        fs::create_dir_all(tree.join("usr/lib")).expect("a temporary directory");
        fs::write(tree.join("file"), "").expect("a file");
        assert_eq!(plain_in_layer(&tree, Path::new("usr/lib")), Some(true));
        assert_eq!(plain_in_layer(&tree, Path::new("opt")), Some(false));
        assert_eq!(plain_in_layer(&tree, Path::new("file/x")), None);
        fs::remove_dir_all(&tree).expect("it is ours");
    }
}
