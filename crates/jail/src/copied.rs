//! Where things lie in the tier `copied`, and what it cannot do.
//!
//! Nothing can be mounted there, so paths inside are paths of the host: the
//! project is a copy in the top layer, home and temporary files lie in a
//! scratch directory of the run, and the rest of the system is as it is. A
//! request is first [`check`]ed and then translated; pure but for the search
//! for what may be read.

use crate::JailError;
use crate::spec::{Spec, Stack, Top};
use fractal_model::{Network, Tier};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What programs need of the system, read-only.
const SYSTEM: [&str; 12] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/nix", "/gnu",
    "/snap",
];

/// What programs read to learn about the machine: number of processors,
/// limits. Processes of others show in `/proc`; landlock keeps their memory,
/// environment and descriptors closed.
const MACHINE: [&str; 5] = [
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];

/// Variables that name directories with programs and libraries.
const TOOLS: [&str; 17] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "NODE_PATH",
    "PERL5LIB",
    "PKG_CONFIG_PATH",
    "RUSTUP_HOME",
    "GOROOT",
    "JAVA_HOME",
    "M2_HOME",
    "MAVEN_HOME",
    "GRADLE_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "RBENV_ROOT",
];

/// What the owner of the system could read in it, and no program needs.
const CLOSED: [&str; 2] = ["/etc/shadow", "/etc/gshadow"];

/// Variables that would lead into the real home.
const HOMES: [&str; 5] =
    ["CARGO_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"];

/// Rust's tools, below the home where no variable says otherwise.
const RUSTUP: &str = ".rustup";

/// At most so many entries are told apart around what is hidden.
const ENTRIES_MAX: usize = 4096;

/// The project's place below a layer's tree, and the tree.
pub(crate) fn project_copy(stack: &Stack) -> Option<(PathBuf, &Path)> {
    let Top::Disk(name) = &stack.top else { return None };
    let relative = stack.project.strip_prefix("/").ok()?;
    Some((stack.layers_dir.join(name).join("tree"), relative))
}

/// The run's own directory for home and temporary files.
pub(crate) fn scratch(spec: &Spec) -> Option<PathBuf> {
    let Top::Disk(name) = &spec.stack.top else { return None };
    let work = spec.stack.layers_dir.join(name).join("work");
    Some(work.join(format!("{}-scratch", spec.label)))
}

/// Refuses what this tier cannot do.
pub fn check(spec: &Spec) -> Result<(), JailError> {
    let refuse =
        |what: String, hint: &str| Err(JailError::Unsupported { what, hint: hint.to_owned() });
    let project = &spec.stack.project;
    if let Some(mount) = spec.stack.mounts.first() {
        let what = format!("isolation `copied` cannot mount anything at {}", mount.at.display());
        return refuse(what, "use a template without mounts: `--template clone`");
    }
    if matches!(spec.network, Network::Allow(_)) {
        let what = "isolation `copied` cannot let single hosts through";
        return refuse(what.to_owned(), "use `--net none` or `--net host`");
    }
    let writes = matches!(spec.stack.top, Top::Disk(_));
    let system = SYSTEM.iter().chain(&MACHINE).any(|dir| Path::new(dir).starts_with(project));
    if writes && system {
        let what = format!(
            "isolation `copied` copies the project, and {} is the system",
            project.display()
        );
        return refuse(what, "start in a directory of your own");
    }
    let meets = |path: &&PathBuf| path.starts_with(project) || project.starts_with(path);
    if let Some(path) = spec.read_only.iter().find(meets) {
        let what = format!("isolation `copied` cannot keep {} from being written", path.display());
        return refuse(what, "leave it out, or hide it from a new sandbox with `--hide`");
    }
    let system = SYSTEM.iter().chain(&MACHINE).any(|dir| spec.cwd.starts_with(dir));
    if !spec.cwd.starts_with(project) && !system {
        if !spec.cwd.is_dir() {
            return Err(JailError::NoDirectory { path: spec.cwd.display().to_string() });
        }
        let what = format!("{} is not in the copy of {}", spec.cwd.display(), project.display());
        return refuse(what, &format!("start there with `-w {}`", project.display()));
    }
    Ok(())
}

/// The same request in paths of the host; other tiers need none.
pub(crate) fn translate(spec: &Spec) -> Cow<'_, Spec> {
    if spec.tier != Tier::Copied {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    if let (Some((tree, relative)), Some(scratch)) = (project_copy(&spec.stack), scratch(&spec)) {
        let project = spec.stack.project.clone();
        let copy = tree.join(relative);
        let moved = |path: &Path| Some(copy.join(path.strip_prefix(&project).ok()?));
        if let Some(cwd) = moved(&spec.cwd) {
            spec.cwd = cwd;
        }
        let home = value(&spec.env, "HOME").map(PathBuf::from);
        for (_, value) in &mut spec.env {
            *value = moved_list(value, &moved);
        }
        spec.env.retain(|(key, _)| !HOMES.iter().any(|home| key == home));
        // Found by its default place otherwise, which moves with HOME.
        let rustup = home.map(|home| home.join(RUSTUP)).filter(|dir| dir.is_dir());
        if let (Some(rustup), None) = (rustup, value(&spec.env, "RUSTUP_HOME")) {
            spec.env.push(("RUSTUP_HOME".into(), rustup.into()));
        }
        let own = [("HOME", "home"), ("TMPDIR", "tmp"), ("TMP", "tmp"), ("TEMP", "tmp")];
        for (key, name) in own {
            spec.env.retain(|(other, _)| other != key);
            spec.env.push((key.into(), scratch.join(name).into()));
        }
    }
    Cow::Owned(spec)
}

fn value<'a>(env: &'a [(OsString, OsString)], key: &str) -> Option<&'a OsString> {
    env.iter().find(|(other, _)| other == key).map(|(_, value)| value)
}

/// Paths of the project in a list with colons, as paths in the copy.
fn moved_list(value: &OsStr, moved: &impl Fn(&Path) -> Option<PathBuf>) -> OsString {
    let parts = value.as_bytes().split(|byte| *byte == b':');
    let part = |part: &[u8]| {
        let path = Path::new(OsStr::from_bytes(part));
        moved(path).map_or_else(|| part.to_vec(), |path| path.into_os_string().as_bytes().to_vec())
    };
    OsStr::from_bytes(&parts.map(part).collect::<Vec<_>>().join(&b':')).to_owned()
}

/// What of the host may be read, and whether each is a directory: the system
/// and the caller's tools, without the project, the state directory and what
/// is hidden. Landlock only ever allows, so around a hidden path everything
/// else is named one by one.
pub(crate) fn readable(spec: &Spec, hidden: &[(PathBuf, bool)]) -> Vec<(PathBuf, bool)> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let project = real(&spec.stack.project);
    let home = value(&spec.env, "HOME").map(|home| real(Path::new(home)));
    let state = real(&spec.stack.state_dir);
    let secret = hidden.iter().map(|(path, _)| path.as_path()).chain(CLOSED.map(Path::new));
    let closed: Vec<&Path> = (secret.filter(|path| may_open(path)))
        .chain([project.as_path(), state.as_path()])
        .collect();
    // A tool that lies beside the user's files does not open them.
    let above = |path: &Path| {
        let inner = [Some(&project), home.as_ref(), Some(&state)];
        inner.into_iter().flatten().any(|inner| inner.starts_with(path))
    };
    let tools = spec.env.iter().filter(|(key, _)| TOOLS.iter().any(|tool| key == tool));
    let named = tools
        .flat_map(|(_, value)| value.as_bytes().split(|byte| *byte == b':'))
        .map(|part| PathBuf::from(OsStr::from_bytes(part)))
        .chain(home.iter().map(|home| home.join(RUSTUP)))
        .filter(|path| path.is_absolute())
        .map(|path| real(&path))
        .filter(|path| !above(path));
    let roots = SYSTEM.iter().chain(&MACHINE).map(PathBuf::from).chain(named).chain(resolver());
    let roots: BTreeSet<PathBuf> = roots.filter_map(|path| path.canonicalize().ok()).collect();
    let mut found = Vec::new();
    let mut last: Option<PathBuf> = None;
    for root in roots {
        // Sorted, so what lies inside another comes right after it.
        if last.as_ref().is_some_and(|outer| root.starts_with(outer)) {
            continue;
        }
        carve(&root, &closed, &mut found);
        last = Some(root);
    }
    found.sort();
    found
}

/// What the user may not open anyway needs no fence; what is theirs they could
/// open to themselves.
fn may_open(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (uid, _) = crate::sys::process::effective_ids();
    let allowed = |access| rustix::fs::access(path, access).is_ok();
    std::fs::metadata(path).is_ok_and(|meta| meta.uid() == uid)
        || allowed(rustix::fs::Access::READ_OK)
        || allowed(rustix::fs::Access::EXEC_OK)
}

/// Where names are looked up, if that lies outside the system.
fn resolver() -> Option<PathBuf> {
    std::fs::canonicalize("/etc/resolv.conf").ok()
}

fn carve(root: &Path, closed: &[&Path], found: &mut Vec<(PathBuf, bool)>) {
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        // A link is opened by what it leads to, which has its own place.
        if meta.is_symlink() || closed.iter().any(|closed| path.starts_with(closed)) {
            continue;
        }
        if !closed.iter().any(|closed| closed.starts_with(&path)) {
            found.push((path, meta.is_dir()));
        } else if found.len() + todo.len() < ENTRIES_MAX {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            todo.extend(entries.map(|entry| entry.path()));
        }
    }
}
