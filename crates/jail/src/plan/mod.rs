//! From a request and facts about the host to a plan: pure, printable data.
//!
//! `clone.rs` plans for root (the whole machine, copy-on-write), `rootless.rs`
//! for everybody else, `copied.rs` where no namespace can be made. Nothing
//! here touches the system.

mod clone;
mod copied;
mod rootless;

use crate::JailError;
use crate::cgroup;
use crate::host::{Dir, Facts};
use crate::landlock::Rules;
use crate::spec::{Spec, Top};
use crate::step::{CPath, Kind, Overlay, SLOTS, Step};
use fractal_model::{Network, Tier};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// First host id that a sandbox's ids are shifted to, and how many.
pub const SHIFT_BASE: u32 = 100_000;
/// Ids 0 to 65535 exist inside.
pub const SHIFT_COUNT: u32 = 65_536;

/// How ids inside relate to ids of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mapping {
    /// 0… inside is [`SHIFT_BASE`]… outside.
    Shifted,
    /// The same ids, all of them: only with a masked `/proc`.
    Same,
    /// Only the caller's own ids.
    Own {
        /// The caller.
        uid: u32,
        /// Their group.
        gid: u32,
    },
    /// There is no user namespace.
    None,
}

/// Everything the child needs, ready to execute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The tier it realises.
    pub tier: Tier,
    /// Namespaces that the init process is born into.
    pub namespaces: u64,
    /// What the monitor does in a network namespace that it makes beside
    /// init's work: it is the costliest of all, and init need not wait for it.
    pub network: Option<Vec<Step>>,
    /// Id maps of the user namespace.
    pub mapping: Mapping,
    /// What to do before the program starts, in order.
    pub steps: Vec<Step>,
    /// Resource limits: number and value.
    pub rlimits: Vec<(u32, u64)>,
    /// Capabilities that the program keeps, a bit each.
    pub capabilities: u64,
    /// The second fence around files.
    pub landlock: Rules,
    /// What the filter must make up for without namespaces.
    pub copied: Option<crate::seccomp::Copied>,
    /// Limits that the kernel enforces on the group.
    pub cgroup: cgroup::CgroupPlan,
    /// Cpus to use where no controller can share them.
    pub cpus: Option<usize>,
    /// Fences that this machine cannot put up.
    pub missing: Vec<String>,
}

impl Plan {
    /// Plans a run.
    pub fn new(
        spec: &Spec,
        facts: &Facts,
        controllers: &cgroup::Controllers,
    ) -> Result<Plan, JailError> {
        let mapping = match spec.tier {
            Tier::Clone => Mapping::Shifted,
            Tier::Masked => Mapping::Same,
            Tier::Rootless => Mapping::Own { uid: facts.uid, gid: facts.gid },
            Tier::Copied => Mapping::None,
            Tier::Virtual => {
                let why = "it runs no real programs".to_owned();
                return Err(JailError::Isolation { asked: spec.tier.name(), why });
            }
        };
        let cgroup = cgroup::CgroupPlan::new(
            controllers,
            &spec.limits,
            &spec.label,
            facts.namespaces_limit_pids,
        )?;
        let copied = spec.tier == Tier::Copied;
        // Without namespaces there is nothing to join.
        let join = spec.join.as_ref().filter(|_| !copied);
        let mut steps = match (join, spec.tier) {
            (Some(_), _) => joining(spec, facts)?,
            (None, Tier::Copied) => copied::steps(spec)?,
            (None, Tier::Rootless) => rootless::steps(spec, facts)?,
            (None, _) => clone::steps(spec, facts)?,
        };
        limit_pids(&mut steps, cgroup.pid_max)?;
        let mut missing = cgroup.missing.clone();
        missing.extend(facts.shadowed.iter().cloned());
        let landlock = Rules::new(spec, facts);
        if landlock.version == 0 {
            missing.push("landlock: the kernel offers none".to_owned());
        }
        if copied {
            if landlock.version == 0 {
                let why = "the kernel offers no landlock".to_owned();
                return Err(JailError::Isolation { asked: "copied", why });
            }
            missing.extend(copied::missing(spec, &landlock));
        }
        Ok(Plan {
            tier: spec.tier,
            namespaces: namespaces(spec),
            network: match monitor_makes_network(spec) {
                true => Some(network_steps()?),
                false => None,
            },
            mapping,
            steps,
            rlimits: rlimits(spec, facts, &cgroup),
            capabilities: if spec.tier >= Tier::Masked { ROOT_CAPABILITIES } else { 0 },
            copied: copied::filter(spec, &landlock),
            landlock,
            cpus: spec.limits.cpu_milli.filter(|_| !cgroup.limits_cpu).map(whole_cpus),
            cgroup,
            missing,
        })
    }

    /// The plan as people read it, one line per step.
    pub fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("tier: {}", self.tier.name())];
        let mapped = match self.mapping {
            Mapping::Shifted => format!("0-{} inside are {SHIFT_BASE}+ outside", SHIFT_COUNT - 1),
            Mapping::Same => "the same inside and outside, /proc is masked".to_owned(),
            Mapping::Own { uid, .. } => format!("only {uid}"),
            Mapping::None => "the caller's own, without privileges".to_owned(),
        };
        lines.push(format!("user ids: {mapped}"));
        lines.extend(self.cgroup.explain());
        lines.extend(self.network.iter().flatten().map(|step| format!("network: {step}")));
        lines.extend(
            self.steps.iter().enumerate().map(|(index, step)| format!("{:>3}. {step}", index + 1)),
        );
        lines.extend(self.landlock.explain());
        lines.push(format!(
            "seccomp: {} rules, new namespaces and mounts denied",
            crate::seccomp::rule_count(self.copied)
        ));
        if self.copied.is_some() {
            let asked = "seccomp: changes of modes, owners and times are carried out by init, in the copy only";
            lines.push(asked.to_owned());
        }
        lines.extend(self.missing.iter().map(|what| format!("missing: {what}")));
        lines
    }
}

/// The capabilities that package managers and servers need of "root" inside.
/// They count only towards the sandbox's own user namespace.
pub const ROOT_CAPABILITIES: u64 = bits(&[
    0,  // CHOWN
    1,  // DAC_OVERRIDE
    3,  // FOWNER
    4,  // FSETID
    5,  // KILL
    6,  // SETGID
    7,  // SETUID
    8,  // SETPCAP
    10, // NET_BIND_SERVICE
    18, // SYS_CHROOT
    29, // AUDIT_WRITE
    31, // SETFCAP
]);

const fn bits(numbers: &[u32]) -> u64 {
    let mut mask = 0;
    let mut index = 0;
    while index < numbers.len() {
        mask |= 1 << numbers[index];
        index += 1;
    }
    mask
}

/// Steps of a run that shares everything but its processes with another.
fn joining(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let network = spec.network != Network::Host;
    let mut steps = vec![Step::Join { network }, Step::Private, proc("/proc")?];
    steps.extend(kernel_views(facts)?);
    if spec.tier == Tier::Masked {
        steps.extend(clone::masked_proc(facts)?);
    }
    steps.extend(door(spec)?);
    if spec.tier != Tier::Rootless {
        steps.push(Step::Meet);
    }
    Ok(steps)
}

fn namespaces(spec: &Spec) -> u64 {
    if spec.tier == Tier::Copied {
        return 0;
    }
    if spec.join.is_some() {
        return libc::CLONE_NEWPID as u64;
    }
    let mut flags =
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if spec.tier == Tier::Rootless {
        flags |= libc::CLONE_NEWUSER;
        if spec.network != Network::Host {
            flags |= libc::CLONE_NEWNET;
        }
    }
    flags as u64
}

fn whole_cpus(milli: u64) -> usize {
    milli.div_ceil(1000).max(1) as usize
}

/// Limits per process, for what no controller covers. They are inherited, so
/// a process cannot shed them.
fn rlimits(spec: &Spec, facts: &Facts, cgroup: &cgroup::CgroupPlan) -> Vec<(u32, u64)> {
    let mut list = vec![(libc::RLIMIT_CORE as u32, 0), (libc::RLIMIT_MEMLOCK as u32, 8 << 20)];
    if let Some(bytes) = spec.limits.disk_bytes {
        // One file cannot pass the limit; the watcher adds files up.
        list.push((libc::RLIMIT_FSIZE as u32, bytes));
    }
    if let Some(bytes) = spec.limits.memory_bytes.filter(|_| !cgroup.limits_memory) {
        // Init watches the sum and stops the run. A tighter bound would deny
        // one large allocation before init sees it, and the program would fail
        // for a reason that nobody can tell; this one only keeps it from being
        // promised more than there is.
        list.push((libc::RLIMIT_DATA as u32, bytes.max(facts.memory_bytes)));
    }
    let covered = cgroup.limits_pids || cgroup.pid_max.is_some();
    if let Some(pids) = spec.limits.pids.filter(|_| !covered) {
        list.push((libc::RLIMIT_NPROC as u32, pids));
    }
    list
}

/// A path relative to the staging directory.
fn rel(text: impl Into<Vec<u8>>) -> Result<CPath, JailError> {
    CPath::new(text)
}

fn abs(path: &Path) -> Result<CPath, JailError> {
    CPath::new(path.as_os_str().as_bytes())
}

/// Directory that holds one layer's tree, below the staging directory.
fn layer_tree(name: &str, inside: &Path) -> Vec<u8> {
    let mut bytes = format!("layers/{name}/tree").into_bytes();
    push_inside(&mut bytes, inside);
    bytes
}

fn push_inside(bytes: &mut Vec<u8>, inside: &Path) {
    let relative = inside.strip_prefix("/").unwrap_or(inside).as_os_str().as_bytes();
    if !relative.is_empty() {
        bytes.push(b'/');
        bytes.extend_from_slice(relative);
    }
}

/// Name of the work directory of the overlay number `index`. Each run has its
/// own: the kernel refuses one that a `volatile` overlay used before, and the
/// mounts of the run before may still be on their way out.
fn work_name(spec: &Spec, index: usize) -> String {
    format!("{}-{index}", spec.label)
}

/// Upper and work directory of the overlay number `index` for `inside`.
fn upper_of(spec: &Spec, inside: &Path, index: usize) -> (Vec<u8>, Vec<u8>) {
    let base = match &spec.stack.top {
        Top::Disk(name) => format!("layers/{name}"),
        Top::Memory { .. } => "top".to_owned(),
    };
    let mut upper = format!("{base}/tree").into_bytes();
    push_inside(&mut upper, inside);
    (upper, format!("{base}/work/{}", work_name(spec, index)).into_bytes())
}

/// An overlay step from byte paths.
fn overlay(
    at: CPath,
    lowers: Vec<Vec<u8>>,
    upper: Option<(Vec<u8>, Vec<u8>)>,
    user_xattr: bool,
) -> Result<Step, JailError> {
    let c = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| JailError::NulInPath);
    // Given one by one, the kernel takes a backslash in these two (not in a
    // lower directory) for an escape.
    let escaped = |bytes: Vec<u8>| {
        let double = |byte: u8| if byte == b'\\' { vec![byte; 2] } else { vec![byte] };
        c(bytes.into_iter().flat_map(double).collect())
    };
    let options = option_string(&lowers, upper.as_ref(), user_xattr);
    let lowers = lowers.into_iter().map(c).collect::<Result<Vec<_>, _>>()?;
    let upper = upper.map(|(upper, work)| Ok((escaped(upper)?, escaped(work)?))).transpose()?;
    let options = options.map(c).transpose()?;
    Ok(Step::Overlay(Box::new(Overlay { lowers, upper, user_xattr, at, options })))
}

/// `mount` takes one page of options; longer stacks and names with special
/// characters go through `fsconfig`, which needs no escaping.
fn option_string(
    lowers: &[Vec<u8>],
    upper: Option<&(Vec<u8>, Vec<u8>)>,
    user_xattr: bool,
) -> Option<Vec<u8>> {
    const OPTIONS_BYTES_MAX: usize = 3800;
    let paths = lowers.iter().chain(upper.iter().flat_map(|(upper, work)| [upper, work]));
    if paths.into_iter().any(|path| path.iter().any(|byte| b":,\\\"".contains(byte))) {
        return None;
    }
    let mut text = b"lowerdir=".to_vec();
    text.extend(lowers.join(&b':'));
    if let Some((upper, work)) = upper {
        text.extend([b",upperdir=".as_slice(), upper, b",workdir=", work, b",volatile"].concat());
    }
    text.extend(b",index=off,metacopy=off");
    if user_xattr {
        text.extend(b",userxattr");
    } else {
        text.extend(b",redirect_dir=off");
    }
    (text.len() <= OPTIONS_BYTES_MAX).then_some(text)
}

/// A private tmpfs to build in, with some directories in it. A memory top lies
/// there too, and its size is then the tmpfs's.
fn staging(spec: &Spec, facts: &Facts, dirs: &[&str]) -> Result<Vec<Step>, JailError> {
    let at = abs(&facts.staging)?;
    let data = match spec.stack.top {
        Top::Memory { size_bytes } => memory_options(size_bytes)?,
        Top::Disk(_) => rel("mode=755")?,
    };
    let mut steps = vec![
        Step::Filesystem { kind: Kind::Tmpfs, at: at.clone(), flags: 0, data },
        Step::Enter { dir: at },
    ];
    for dir in dirs {
        steps.push(Step::MakeDir { path: rel(*dir)?, mode: 0o755, owner: None });
    }
    Ok(steps)
}

/// Options of a memory top; one inode per 4 KiB bounds empty files too.
fn memory_options(size_bytes: u64) -> Result<CPath, JailError> {
    let inodes = (size_bytes / 4096).clamp(1024, 4_000_000);
    rel(format!("mode=755,size={size_bytes},nr_inodes={inodes}"))
}

/// Makes `dirs` below a tree of ours that no program has written.
fn make_chain(tree: &Path, dirs: &[Dir], keep_owner: bool) -> Result<Vec<Step>, JailError> {
    dirs.iter()
        .map(|dir| {
            let path = abs(&tree.join(dir.path.strip_prefix("/").unwrap_or(&dir.path)))?;
            // Root's own are root's from the start.
            let owner = Some((dir.uid, dir.gid)).filter(|owner| keep_owner && *owner != (0, 0));
            Ok(Step::MakeDir { path, mode: dir.mode, owner })
        })
        .collect()
}

/// Makes `dirs` below a layer's tree on disk. A program of an earlier run may
/// have left links there, and root makes these directories.
fn make_layer_chain(tree: &Path, dirs: &[Dir], keep_owner: bool) -> Result<Vec<Step>, JailError> {
    dirs.iter()
        .map(|dir| {
            make_in_layer(tree, &dir.path, dir.mode, keep_owner.then_some((dir.uid, dir.gid)))
        })
        .collect()
}

fn make_in_layer(
    tree: &Path,
    path: &Path,
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Result<Step, JailError> {
    let inside = path.strip_prefix("/").unwrap_or(path);
    let parent = inside.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(Step::MakeInLayer {
        tree: abs(tree)?,
        parent: abs(parent.unwrap_or(Path::new(".")))?,
        name: abs(Path::new(inside.file_name().unwrap_or_default()))?,
        mode,
        owner,
    })
}

/// The size option of a tmpfs: files in memory are memory, and where no
/// controller counts them nothing else bounds them.
fn memory_size(spec: &Spec) -> String {
    let bounds = [spec.limits.disk_bytes, spec.limits.memory_bytes];
    bounds.into_iter().flatten().min().map_or(String::new(), |bytes| format!(",size={bytes}"))
}

/// Bounds the processes of the new pid namespace as soon as its `/proc` is
/// there, which in a rootless plan is still below the staging directory.
fn limit_pids(steps: &mut Vec<Step>, pid_max: Option<u64>) -> Result<(), JailError> {
    let Some(pid_max) = pid_max else { return Ok(()) };
    let proc = steps.iter().enumerate().find_map(|(index, step)| match step {
        Step::Filesystem { kind, at, .. } if *kind == Kind::Proc => Some((index, at.clone())),
        _ => None,
    });
    let (index, point) = proc.expect("every plan mounts /proc");
    let path = CPath::new(format!("{point}/sys/kernel/pid_max"))?;
    steps.insert(index + 1, Step::Write { path, text: CPath::new(pid_max.to_string())? });
    Ok(())
}

/// The processes of the sandbox.
fn proc(at: &str) -> Result<Step, JailError> {
    let flags = (libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC) as u64;
    Ok(Step::Filesystem { kind: Kind::Proc, at: rel(at)?, flags, data: rel("")? })
}

/// A private `/run` inside the new root.
fn run_directory(spec: &Spec, facts: &Facts, shift: u32) -> Result<Vec<Step>, JailError> {
    let mut steps = Vec::new();
    let size = memory_size(spec);
    steps.push(Step::Filesystem {
        kind: Kind::Tmpfs,
        at: rel("/run")?,
        flags: (libc::MS_NOSUID | libc::MS_NODEV) as u64,
        data: rel(format!("mode=755{size}"))?,
    });
    for dir in &facts.run {
        let owned = spec.tier != Tier::Rootless && (dir.uid, dir.gid) != (0, 0);
        let owner = owned.then_some((shift + dir.uid % SHIFT_COUNT, shift + dir.gid % SHIFT_COUNT));
        let step = Step::MakeDir { path: abs(&dir.path)?, mode: dir.mode, owner };
        steps.push(Step::Optional(Box::new(step)));
    }
    if let Some((path, content)) = &facts.resolver {
        steps.push(Step::Optional(Box::new(Step::MakeFile { path: abs(path)?, mode: 0o644 })));
        steps.push(Step::Optional(Box::new(Step::Write {
            path: abs(path)?,
            text: CPath::new(content.clone())?,
        })));
    }
    steps.extend(door(spec)?);
    Ok(steps)
}

/// The socket by which the program reaches its caller. Only who knows the path
/// to it comes there: it is in the run's own `/run`, and nowhere outside.
fn door(spec: &Spec) -> Result<Vec<Step>, JailError> {
    if !spec.door {
        return Ok(Vec::new());
    }
    Ok(vec![
        Step::MakeDir { path: rel(crate::spec::DOORS)?, mode: 0o755, owner: None },
        Step::Door { path: abs(&crate::spec::door_path(&spec.label))? },
    ])
}

/// Links and directories that every `/dev` has.
fn dev_furniture() -> Result<Vec<Step>, JailError> {
    let mut steps = vec![
        Step::MakeDir { path: rel("/dev/pts")?, mode: 0o755, owner: None },
        Step::MakeDir { path: rel("/dev/shm")?, mode: 0o1777, owner: None },
        Step::Filesystem {
            kind: Kind::Devpts,
            at: rel("/dev/pts")?,
            flags: (libc::MS_NOSUID | libc::MS_NOEXEC) as u64,
            data: rel("newinstance,ptmxmode=0666,mode=620")?,
        },
    ];
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
        ("pts/ptmx", "/dev/ptmx"),
    ];
    for (target, path) in links {
        steps.push(Step::Link { target: rel(target)?, path: rel(path)? });
    }
    Ok(steps)
}

/// What shows the whole machine in `/proc` appears empty.
fn kernel_views(facts: &Facts) -> Result<Vec<Step>, JailError> {
    let cover = |path: &PathBuf| Ok(Step::Bind { from: rel("/dev/null")?, at: abs(path)? });
    facts.kernel_views.iter().map(cover).collect()
}

/// How secrets and the state directory appear empty.
struct Masks {
    /// Before the old root goes.
    take: Vec<Step>,
    /// Once everything else is in its place.
    cover: Vec<Step>,
}

/// A hidden file shows as `/dev/null`, a hidden directory as one that is empty
/// and stays so. All directories show the same one, in slots from `slot` on: a
/// filesystem for each would be made and torn down with every run.
fn masks(facts: &Facts, slot: usize) -> Result<Masks, JailError> {
    let flags = (libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV) as u64;
    let empty = |at: CPath| {
        let data = rel("size=4k,nr_inodes=1,mode=555")?;
        Ok::<_, JailError>(Step::Filesystem { kind: Kind::Tmpfs, at, flags, data })
    };
    let mut masks = Masks { take: Vec::new(), cover: Vec::new() };
    let mut slots = slot..SLOTS;
    for (path, is_dir) in &facts.hidden {
        let at = abs(path)?;
        let step = match (is_dir, is_dir.then(|| slots.next()).flatten()) {
            (true, Some(slot)) => {
                let path = rel("empty")?;
                masks.take.push(Step::OpenTree { slot, path, recursive: false, idmap: false });
                Step::Attach { slot, at }
            }
            (true, None) => empty(at)?,
            (false, _) => Step::Bind { from: rel("/dev/null")?, at },
        };
        // A run before this one may have removed the path: then there is
        // nothing to hide.
        masks.cover.push(Step::Optional(Box::new(step)));
    }
    if !masks.take.is_empty() {
        let dir = Step::MakeDir { path: rel("empty")?, mode: 0o755, owner: None };
        masks.take.splice(..0, [dir, empty(rel("empty")?)?]);
    }
    Ok(masks)
}

/// Paths that policy makes read-only inside.
fn read_only(spec: &Spec) -> Result<Vec<Step>, JailError> {
    let mut steps = Vec::new();
    for path in &spec.read_only {
        let at = abs(path)?;
        steps.push(Step::Bind { from: at.clone(), at: at.clone() });
        steps.push(Step::Restrict {
            at,
            attributes: crate::sys::mount::ATTR_RDONLY,
            recursive: false,
        });
    }
    Ok(steps)
}

/// What whoever makes a network namespace as root does in it: loopback, and
/// low ports for everybody.
pub(crate) fn network_steps() -> Result<Vec<Step>, JailError> {
    let path = rel("/proc/sys/net/ipv4/ip_unprivileged_port_start")?;
    let open_ports = Step::Optional(Box::new(Step::Write { path, text: rel("0")? }));
    Ok(vec![Step::Loopback, open_ports])
}

fn monitor_makes_network(spec: &Spec) -> bool {
    spec.tier >= Tier::Masked && spec.join.is_none() && spec.network != Network::Host
}

/// What init itself does for the network: the proxy's socket, and all of it
/// where nobody else can.
fn network(spec: &Spec) -> Result<Vec<Step>, JailError> {
    let mut steps = Vec::new();
    if spec.network != Network::Host && spec.tier == Tier::Rootless {
        steps.push(Step::Loopback);
    }
    if matches!(spec.network, Network::Allow(_)) {
        steps.push(Step::Listen { port: crate::proxy::PORT });
    }
    Ok(steps)
}
