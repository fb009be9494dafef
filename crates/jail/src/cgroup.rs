//! Limits that the kernel enforces on all processes of a run together.
//!
//! Version 1 (one hierarchy per controller) and version 2 (one for all) are
//! both planned here as lists of directories and writes; the monitor carries
//! them out and removes the directories again. Version 2 follows the kernel's
//! documentation but was only exercised where a machine delegates controllers.

use crate::JailError;
use crate::step::CPath;
use fractal_model::Limits;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Prefix of our directories, so that left-overs can be found.
pub const PREFIX: &str = "fractal-";

/// Where new groups can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controllers {
    /// Version 1 directories by controller, when writable.
    pub v1: Vec<(String, PathBuf)>,
    /// The version 2 directory and what it delegates.
    pub v2: Option<(PathBuf, Vec<String>)>,
}

const WANTED: [&str; 3] = ["pids", "memory", "cpu"];

impl Controllers {
    /// Finds the groups below our own in which we may make children.
    pub fn find() -> Controllers {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut found = Controllers::default();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if names.is_empty() {
                found.v2 = v2_directory(&mounts, path);
                continue;
            }
            for name in names.split(',').filter(|name| WANTED.contains(name)) {
                if let Some(dir) = v1_directory(&mounts, name, path) {
                    found.v1.push((name.to_owned(), dir));
                }
            }
        }
        found
    }

    /// Whether a controller can be used, in either version.
    pub fn has(&self, name: &str) -> bool {
        self.v1.iter().any(|(controller, _)| controller == name)
            || self.v2.as_ref().is_some_and(|(_, names)| names.iter().any(|other| other == name))
    }
}

/// Mount point of a hierarchy: fields 3 (root) and 4 (point) of mountinfo.
fn hierarchy<'a>(mounts: &'a str, kind: &str, option: Option<&str>) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let fits = right.next() == Some(kind)
            && option.is_none_or(|name| {
                right.nth(1).is_some_and(|text| text.split(',').any(|part| part == name))
            });
        let mut left = left.split(' ').skip(3);
        fits.then(|| Some((left.next()?, left.next()?))).flatten()
    })
}

fn below(root: &str, point: &str, path: &str) -> PathBuf {
    let path = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    Path::new(point).join(path.trim_start_matches('/'))
}

fn v1_directory(mounts: &str, name: &str, path: &str) -> Option<PathBuf> {
    let (root, point) = hierarchy(mounts, "cgroup", Some(name))?;
    let dir = below(root, point, path);
    writable(&dir).then_some(dir)
}

/// In version 2 a group with processes cannot delegate, so children are made
/// beside our own group, in the nearest ancestor that delegates.
fn v2_directory(mounts: &str, path: &str) -> Option<(PathBuf, Vec<String>)> {
    let (root, point) = hierarchy(mounts, "cgroup2", None)?;
    let own = below(root, point, path);
    own.ancestors().take_while(|dir| dir.starts_with(point)).find_map(|dir| {
        let text = fs::read_to_string(dir.join("cgroup.subtree_control")).ok()?;
        let names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let useful = names.iter().any(|name| WANTED.contains(&name.as_str()));
        (useful && writable(dir)).then(|| (dir.to_path_buf(), names))
    })
}

fn writable(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// From this limit on, the highest pid of the namespace does instead of a
/// group: it is not exact (numbers below 300 are not used twice), but joining
/// a group waits for all processors, which is most of a start's time.
pub const PIDS_BY_NAMESPACE: u64 = 4096;

/// The kernel takes no more.
const PIDS_POSSIBLE: u64 = 4 << 20;

/// What holds a limit where its controller is missing.
pub fn without(controller: &str) -> &'static str {
    match controller {
        "memory" => "init adds processes up and stops the run",
        "cpu" => "the run gets whole processors",
        _ => "the limit counts the user's processes",
    }
}

/// What the monitor does with cgroups, as ready data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CgroupPlan {
    /// Directories to make, and to remove at the end.
    pub dirs: Vec<CPath>,
    /// Settings: file and value. A failure stops the run.
    pub writes: Vec<(CPath, CPath)>,
    /// Files through which init joins, by writing `0`.
    pub procs: Vec<CPath>,
    /// File with the highest memory use.
    pub memory_peak: Option<CPath>,
    /// File with a line `oom_kill N`.
    pub memory_events: Option<CPath>,
    /// File with the processor time, in nanoseconds or as `usage_usec N`.
    pub cpu_usage: Option<CPath>,
    /// Writing 1 kills all (version 2).
    pub kill: Option<CPath>,
    /// Whether each limit is enforced by a controller.
    pub limits_cpu: bool,
    /// See `limits_cpu`.
    pub limits_memory: bool,
    /// See `limits_cpu`.
    pub limits_pids: bool,
    /// Highest pid inside, where the pid namespace limits processes.
    pub pid_max: Option<u64>,
    /// What was asked and cannot be enforced on the group.
    pub missing: Vec<String>,
}

/// The pids limit, where a group must hold it.
fn pids_by_group(limits: &Limits, namespaces_limit_pids: bool) -> Option<u64> {
    limits.pids.filter(|pids| *pids < PIDS_BY_NAMESPACE || !namespaces_limit_pids)
}

impl CgroupPlan {
    /// Whether any limit needs a group at all.
    pub fn is_needed(limits: &Limits, namespaces_limit_pids: bool) -> bool {
        limits.memory_bytes.is_some()
            || limits.cpu_milli.is_some()
            || pids_by_group(limits, namespaces_limit_pids).is_some()
    }

    /// Plans groups for the limits that were asked.
    pub fn new(
        controllers: &Controllers,
        limits: &Limits,
        label: &str,
        namespaces_limit_pids: bool,
    ) -> Result<CgroupPlan, JailError> {
        let pid_max = limits
            .pids
            .filter(|pids| *pids >= PIDS_BY_NAMESPACE && namespaces_limit_pids)
            .map(|pids| pids.min(PIDS_POSSIBLE));
        let mut plan = CgroupPlan { pid_max, ..CgroupPlan::default() };
        let name = format!("{PREFIX}{label}");
        let by_group = pids_by_group(limits, namespaces_limit_pids);
        let asked =
            [("pids", by_group), ("memory", limits.memory_bytes), ("cpu", limits.cpu_milli)];
        for (controller, limit) in asked {
            let Some(limit) = limit else { continue };
            if let Some((_, dir)) = controllers.v1.iter().find(|(other, _)| other == controller) {
                plan.add_v1(controller, &dir.join(&name), limit)?;
            } else if let Some((dir, _)) =
                controllers.v2.as_ref().filter(|_| controllers.has(controller))
            {
                plan.add_v2(controller, &dir.join(&name), limit)?;
            } else {
                let instead = without(controller);
                plan.missing
                    .push(format!("cgroup controller `{controller}`: none delegated, {instead}"));
                continue;
            }
            match controller {
                "pids" => plan.limits_pids = true,
                "memory" => plan.limits_memory = true,
                _ => plan.limits_cpu = true,
            }
        }
        Ok(plan)
    }

    fn directory(&mut self, dir: &Path, door: &str) -> Result<(), JailError> {
        let path = crate::spec::c_path(dir)?;
        if !self.dirs.contains(&path) {
            self.dirs.push(path);
            self.procs.push(crate::spec::c_path(&dir.join(door))?);
        }
        Ok(())
    }

    fn write(&mut self, file: PathBuf, value: impl ToString) -> Result<(), JailError> {
        self.writes.push((crate::spec::c_path(&file)?, CPath::new(value.to_string())?));
        Ok(())
    }

    fn add_v1(&mut self, controller: &str, dir: &Path, limit: u64) -> Result<(), JailError> {
        self.directory(dir, "tasks")?;
        match controller {
            "pids" => self.write(dir.join("pids.max"), limit)?,
            "memory" => {
                self.write(dir.join("memory.limit_in_bytes"), limit)?;
                if dir.parent().is_some_and(|dir| dir.join("memory.memsw.limit_in_bytes").exists())
                {
                    self.write(dir.join("memory.memsw.limit_in_bytes"), limit)?;
                }
                self.memory_peak =
                    Some(crate::spec::c_path(&dir.join("memory.max_usage_in_bytes"))?);
                self.memory_events = Some(crate::spec::c_path(&dir.join("memory.oom_control"))?);
            }
            _ => {
                self.write(dir.join("cpu.cfs_period_us"), CPU_PERIOD_US)?;
                self.write(dir.join("cpu.cfs_quota_us"), cpu_quota(limit))?;
            }
        }
        Ok(())
    }

    fn add_v2(&mut self, controller: &str, dir: &Path, limit: u64) -> Result<(), JailError> {
        self.directory(dir, "cgroup.procs")?;
        self.kill = Some(crate::spec::c_path(&dir.join("cgroup.kill"))?);
        match controller {
            "pids" => self.write(dir.join("pids.max"), limit)?,
            "memory" => {
                self.write(dir.join("memory.max"), limit)?;
                if dir.parent().is_some_and(|dir| dir.join("memory.swap.max").exists()) {
                    self.write(dir.join("memory.swap.max"), 0)?;
                }
                self.memory_peak = Some(crate::spec::c_path(&dir.join("memory.peak"))?);
                self.memory_events = Some(crate::spec::c_path(&dir.join("memory.events"))?);
            }
            _ => {
                self.write(dir.join("cpu.max"), format!("{} {CPU_PERIOD_US}", cpu_quota(limit)))?
            }
        }
        self.cpu_usage = Some(crate::spec::c_path(&dir.join("cpu.stat"))?);
        Ok(())
    }

    /// For `--explain`.
    pub fn explain(&self) -> Vec<String> {
        self.writes
            .iter()
            .map(|(file, value)| format!("cgroup: write `{value}` to {file}"))
            .collect()
    }
}

const CPU_PERIOD_US: u64 = 100_000;
/// Ten thousand processors: the kernel refuses numbers that overflow its own.
const CPU_QUOTA_US_MAX: u64 = 10_000 * CPU_PERIOD_US;

/// The kernel takes no quota below one millisecond.
fn cpu_quota(milli: u64) -> u64 {
    (CPU_PERIOD_US.saturating_mul(milli) / 1000).clamp(1000, CPU_QUOTA_US_MAX)
}

/// Removes groups of runs whose label says they are over. `alive` tells
/// whether a label still belongs to a living run.
pub fn sweep(controllers: &Controllers, alive: &dyn Fn(&str) -> bool) {
    let dirs =
        controllers.v1.iter().map(|(_, dir)| dir).chain(controllers.v2.iter().map(|(dir, _)| dir));
    for dir in dirs {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(label) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
                continue;
            };
            if !alive(label) {
                // A group with processes in it cannot be removed: no harm done.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:28 /docker/x /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn hierarchies_are_found_by_controller() {
        assert_eq!(hierarchy(V1, "cgroup", Some("memory")), Some(("/", "/sys/fs/cgroup/memory")));
        assert_eq!(hierarchy(V1, "cgroup", Some("cpu")), Some(("/", "/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(hierarchy(V1, "cgroup", Some("pids")), None);
        assert_eq!(hierarchy(V1, "cgroup2", None), Some(("/docker/x", "/sys/fs/cgroup/unified")));
        assert_eq!(below("/docker/x", "/p", "/docker/x/y"), PathBuf::from("/p/y"));
        assert_eq!(below("/", "/p", "/y"), PathBuf::from("/p/y"));
    }

    #[test]
    fn version_two_limits_become_writes_in_one_directory() {
        let controllers = Controllers {
            v1: vec![],
            v2: Some((PathBuf::from("/cg"), vec!["memory".into(), "pids".into(), "cpu".into()])),
        };
        let limits = Limits {
            pids: Some(10),
            memory_bytes: Some(1 << 20),
            cpu_milli: Some(1500),
            ..Limits::default()
        };
        let plan = CgroupPlan::new(&controllers, &limits, "x", true).expect("plain paths");
        assert_eq!(plan.dirs.len(), 1);
        let lines = plan.explain().join("\n");
        for line in [
            "`10` to /cg/fractal-x/pids.max",
            "`1048576` to /cg/fractal-x/memory.max",
            "`150000 100000` to /cg/fractal-x/cpu.max",
        ] {
            assert!(lines.contains(line), "{lines}");
        }
        assert!(plan.missing.is_empty());
    }

    #[test]
    fn limits_without_a_controller_are_named() {
        let limits = Limits { memory_bytes: Some(1), ..Limits::default() };
        let plan =
            CgroupPlan::new(&Controllers::default(), &limits, "x", true).expect("plain paths");
        assert!(!plan.limits_memory && plan.missing.len() == 1);
    }
}
