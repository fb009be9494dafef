//! The second fence around files: landlock rules as data.
//!
//! It holds even if a hole is found in the mounts: no devices are made, the
//! system stays read-only for an unprivileged run, nothing outside can be
//! signalled or reached over abstract sockets, and mounts cannot change.

use crate::host::Facts;
use crate::spec::Spec;
use crate::step::CPath;
use crate::sys::{self, Sys};
use fractal_model::{Network, Tier};
use serde::{Deserialize, Serialize};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// Rights that make sense for something that is no directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// Binding and connecting TCP sockets.
const NET_ALL: u64 = 0b11;

/// Scopes: abstract unix sockets and signals stay inside.
const SCOPE_ALL: u64 = 0b11;

/// All filesystem rights a version knows.
fn rights(version: u32) -> u64 {
    match version {
        0 => 0,
        1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        _ => (1 << 16) - 1,
    }
}

/// What to allow where; everything else is refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    /// The kernel's version; 0 is none.
    pub version: u32,
    /// Rights that need a rule at all.
    pub handled: u64,
    /// Kinds of communication that stay inside.
    pub scoped: u64,
    /// Network rights that need a rule; there is never one.
    pub network: u64,
    /// Path and rights below it.
    pub allow: Vec<(CPath, u64)>,
    /// A directory of ours, what lies below it without any link on the way,
    /// and rights there. Unlike the others these must exist.
    pub own: Vec<(CPath, CPath, u64)>,
}

impl Rules {
    /// Rules for a run, on this kernel.
    pub fn new(spec: &Spec, facts: &Facts) -> Rules {
        Rules::for_version(spec, facts, sys::security::landlock_version().unwrap_or(0))
    }

    fn for_version(spec: &Spec, facts: &Facts, version: u32) -> Rules {
        if version == 0 {
            return Rules::default();
        }
        if spec.tier == Tier::Copied {
            return Rules::copied(spec, facts, version);
        }
        let all = rights(version);
        let safe = all & !(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV);
        let read = EXECUTE | READ_FILE | READ_DIR;
        let path = |text: &str| CPath::new(text).expect("a literal has no NUL");
        let mut allow = Vec::new();
        if spec.tier == Tier::Rootless {
            allow.push((path("/"), read));
            allow.push((path("/run"), safe));
            allow.push((path("/proc"), read | WRITE_FILE));
            let own = facts.own.iter().map(|own| &own.path);
            let mounts =
                spec.stack.mounts.iter().filter(|mount| mount.writable).map(|mount| &mount.at);
            for dir in own.chain(mounts) {
                allow.extend(crate::spec::c_path(dir).ok().map(|dir| (dir, safe)));
            }
        } else {
            allow.push((path("/"), safe));
            // From each file that is opened the kernel looks upwards until it
            // has found all that is asked for. The same again, near the work,
            // ends that early.
            allow.extend(crate::spec::c_path(&spec.stack.project).ok().map(|dir| (dir, safe)));
        }
        allow.push((path("/dev"), (safe | IOCTL_DEV) & all));
        let scoped = if version >= 6 { SCOPE_ALL } else { 0 };
        Rules { version, handled: all, scoped, allow, ..Rules::default() }
    }

    /// The first fence and not the second: without mounts, what is not
    /// allowed here cannot be reached.
    fn copied(spec: &Spec, facts: &Facts, version: u32) -> Rules {
        const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
        let all = rights(version);
        let safe = all & !(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV);
        let read = EXECUTE | READ_FILE | READ_DIR;
        let device = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV;
        let mut allow: Vec<(CPath, u64)> = DEVICES
            .iter()
            .filter_map(|name| Some((CPath::new(format!("/dev/{name}")).ok()?, device)))
            .collect();
        for (path, is_dir) in &facts.readable {
            let rights = if *is_dir { read } else { read & OF_FILES };
            allow.extend(crate::spec::c_path(path).ok().map(|path| (path, rights)));
        }
        let mut own = Vec::new();
        let mut add = |base: &std::path::Path, below: &std::path::Path| {
            let pair = (crate::spec::c_path(base), crate::spec::c_path(below));
            if let (Ok(base), Ok(below)) = pair {
                own.push((base, below, safe));
            }
        };
        if let Some((tree, project)) = crate::copied::project_copy(&spec.stack) {
            add(&tree, project);
        }
        if let Some(scratch) = crate::copied::scratch(spec) {
            add(&scratch, std::path::Path::new("."));
        }
        let closed = version >= 4 && spec.network != Network::Host;
        Rules {
            version,
            handled: all,
            scoped: if version >= 6 { SCOPE_ALL } else { 0 },
            network: if closed { NET_ALL } else { 0 },
            allow,
            own,
        }
    }

    /// Puts this process under the rules. Allocates nothing.
    pub fn apply(&self) -> Sys<()> {
        if self.version == 0 {
            return Ok(());
        }
        let size = match self.version {
            0..=3 => 8,
            4 | 5 => 16,
            _ => 24,
        };
        let ruleset = sys::security::LandlockRuleset {
            handled_access_fs: self.handled,
            handled_access_net: self.network,
            scoped: self.scoped,
        };
        let rules = sys::security::landlock_ruleset(&ruleset, size)?;
        for (path, access) in &self.allow {
            // What does not exist inside needs no rule.
            let Ok(fd) = sys::fd::open(path.as_c(), libc::O_PATH, 0) else { continue };
            sys::security::landlock_allow(rules, fd, access & self.handled)?;
            sys::fd::close(fd);
        }
        for (base, below, access) in &self.own {
            let base = sys::fd::open(base.as_c(), libc::O_PATH | libc::O_DIRECTORY, 0)?;
            let fd = sys::fd::open_beneath(base, below.as_c())?;
            sys::security::landlock_allow(rules, fd, access & self.handled)?;
            sys::fd::close(fd);
            sys::fd::close(base);
        }
        let result = sys::security::landlock_restrict(rules);
        sys::fd::close(rules);
        result
    }

    /// For `--explain`.
    pub fn explain(&self) -> Vec<String> {
        let line = |(path, access): &(CPath, u64)| {
            let words = if access & WRITE_FILE != 0 { "read and write" } else { "read only" };
            format!("landlock: {path} {words}")
        };
        let own = self.own.iter();
        let own = own.map(|(base, below, _)| format!("landlock: {base}/{below} read and write"));
        self.allow.iter().map(line).chain(own).collect()
    }
}
