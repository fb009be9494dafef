//! What this machine can do, found out by trying.
//!
//! [`best_tier`] climbs down the ladder until a run of nothing works, and
//! remembers the answer until the next boot. [`probes`] looks at each part
//! separately and names the fix for what is missing, for `fractal doctor`.

use crate::cgroup::Controllers;
use crate::spec::{Spec, Stack, Top};
use crate::{Input, JailError, Output, Streams};
use fractal_model::{Limits, Network, Tier};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// What.
    pub name: String,
    /// Whether it is there.
    pub ok: bool,
    /// What was found.
    pub found: String,
    /// What to type to have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// CAP_SYS_ADMIN.
const SYS_ADMIN: u32 = 21;

/// The strongest tier that works here, and why stronger ones do not.
pub fn best_tier(state_dir: &Path) -> Result<Tier, JailError> {
    let (uid, _) = crate::sys::process::effective_ids();
    let memory = state_dir.join("cache").join(format!("tier-{uid}"));
    let key = machine_key();
    if let Some(tier) = fs::read_to_string(&memory).ok().and_then(|text| recall(&text, &key)) {
        return Ok(tier);
    }
    let mut reasons = Vec::new();
    for tier in candidates() {
        match trial(tier, state_dir) {
            Ok(()) => {
                // Only a cache: without it the next start is a little slower.
                // The last resort is never remembered, so that a machine that
                // was given namespaces is noticed at once.
                if tier != Tier::Copied {
                    let _ = fs::write(&memory, format!("{key} {}\n", tier.name()));
                }
                return Ok(tier);
            }
            Err(error) => reasons.push(format!("{}: {error}", tier.name())),
        }
    }
    Err(JailError::Isolation { asked: "any", why: reasons.join("; ") })
}

fn recall(text: &str, key: &str) -> Option<Tier> {
    let (known, tier) = text.trim().rsplit_once(' ')?;
    (known == key).then(|| Tier::parse(tier)).flatten()
}

/// Changes with every boot, user namespace and set of privileges.
fn machine_key() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = fs::read_link("/proc/self/ns/user").unwrap_or_default();
    let admin = crate::sys::security::has_capability(SYS_ADMIN);
    format!("{}:{}:{admin}", boot.trim(), user.display())
}

/// Tiers worth trying with our privileges, strongest first.
fn candidates() -> Vec<Tier> {
    if crate::sys::security::has_capability(SYS_ADMIN) {
        Tier::LADDER.to_vec()
    } else {
        vec![Tier::Rootless, Tier::Copied]
    }
}

/// Runs nothing in a tier. Starting is what is tested: the "program" is a
/// directory, which no kernel executes.
pub fn trial(tier: Tier, state_dir: &Path) -> Result<(), JailError> {
    if tier == Tier::Copied {
        keeps_marks(state_dir)?;
    }
    let layers_dir = state_dir.join("layers");
    let spec = Spec {
        command: vec!["/".into()],
        env: Vec::new(),
        cwd: "/".into(),
        stack: Stack {
            layers_dir,
            sealed: Vec::new(),
            top: Top::Memory { size_bytes: 1 << 20 },
            state_dir: state_dir.to_path_buf(),
            project: "/".into(),
            mounts: Vec::new(),
        },
        limits: Limits::default(),
        network: Network::None,
        hidden: Vec::new(),
        read_only: Vec::new(),
        tier,
        terminal: false,
        label: format!("probe-{}", std::process::id()),
        join: None,
        door: false,
        last_words: None,
    };
    let streams = Streams {
        stdin: Input::Null,
        stdout: Output::Capture(0),
        stderr: Output::Capture(0),
        interactive: false,
        caller: None,
    };
    crate::run(&spec, streams).map(|_| ())
}

/// Whether a copy in the state directory can be marked as one.
fn keeps_marks(state_dir: &Path) -> Result<(), JailError> {
    let thread = std::thread::current().id();
    let name = format!("marks-{}-{thread:?}", std::process::id());
    let dir = state_dir.join("cache").join(name);
    let marked = fs::create_dir(&dir).and_then(|()| {
        let flags = rustix::fs::XattrFlags::empty();
        Ok(rustix::fs::setxattr(&dir, "user.overlay.opaque", b"y", flags)?)
    });
    let _ = fs::remove_dir(&dir);
    marked.map_err(|error| JailError::System {
        what: format!("mark a directory in {}", state_dir.display()),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    })
}

/// Everything `fractal doctor` shows.
pub fn probes(state_dir: &Path) -> Vec<Probe> {
    let mut list = vec![kernel()];
    list.push(user_namespaces());
    for tier in Tier::LADDER {
        list.push(tier_probe(tier, state_dir));
    }
    let controllers = Controllers::find();
    list.extend(["memory", "pids", "cpu"].map(|name| controller(&controllers, name)));
    list.push(seccomp());
    list.push(landlock());
    list
}

fn probe(name: &str, ok: bool, found: impl Into<String>, fix: &str) -> Probe {
    let fix = (!ok && !fix.is_empty()).then(|| fix.to_owned());
    Probe { name: name.to_owned(), ok, found: found.into(), fix }
}

fn kernel() -> Probe {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = crate::host::kernel_version();
    let fix = "upgrade to Linux 5.19 or later: overlays of idmapped mounts came with it";
    probe("kernel", version >= (5, 19), release.trim(), fix)
}

fn user_namespaces() -> Probe {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let max = read("/proc/sys/user/max_user_namespaces");
    if max.as_deref() == Some("0") {
        return probe(
            "user namespaces",
            false,
            "user.max_user_namespaces is 0",
            "sudo sysctl -w user.max_user_namespaces=15000",
        );
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return probe(
            "user namespaces",
            false,
            "kernel.unprivileged_userns_clone is 0",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        );
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        let found = "AppArmor restricts them to programs with a profile (Ubuntu 23.10 and later)";
        return probe(
            "user namespaces",
            crate::sys::security::has_capability(SYS_ADMIN),
            found,
            &apparmor_fix(),
        );
    }
    probe("user namespaces", true, format!("up to {}", max.unwrap_or_else(|| "?".to_owned())), "")
}

/// A profile that lets just this program make user namespaces.
fn apparmor_fix() -> String {
    let exe = std::env::current_exe()
        .map_or_else(|_| "/usr/bin/fractal".to_owned(), |path| path.display().to_string());
    format!(
        "sudo tee /etc/apparmor.d/fractal <<'EOF'\nabi <abi/4.0>,\ninclude <tunables/global>\n\nprofile fractal {exe} flags=(unconfined) {{\n  userns,\n  include if exists <local/fractal>\n}}\nEOF\nsudo apparmor_parser -r /etc/apparmor.d/fractal"
    )
}

fn tier_probe(tier: Tier, state_dir: &Path) -> Probe {
    let name = format!("isolation {}", tier.name());
    let needs_root = tier >= Tier::Masked;
    if needs_root && !crate::sys::security::has_capability(SYS_ADMIN) {
        return probe(
            &name,
            false,
            "needs root (CAP_SYS_ADMIN)",
            "run fractal with sudo for a clone of the whole machine",
        );
    }
    match trial(tier, state_dir) {
        Ok(()) => probe(&name, true, "a trial run works", ""),
        Err(error) => probe(&name, false, error.to_string(), tier_fix(tier)),
    }
}

fn tier_fix(tier: Tier) -> &'static str {
    match tier {
        Tier::Clone => {
            "keep / and the state directory on ext4, xfs or btrfs (Linux 5.19 or later), which can shift owners"
        }
        Tier::Rootless => {
            "allow unprivileged user namespaces (see above) and overlay mounts in them (Linux 5.11 or later)"
        }
        Tier::Copied => {
            "use a kernel with landlock (Linux 5.13 or later, lsm=landlock,…) and keep the state directory on a filesystem with user attributes (FRACTAL_HOME)"
        }
        Tier::Masked | Tier::Virtual => "",
    }
}

fn controller(controllers: &Controllers, name: &str) -> Probe {
    let version = if controllers.v1.iter().any(|(other, _)| other == name) { "v1" } else { "v2" };
    let ok = controllers.has(name);
    let found = if ok {
        format!("cgroup {version}")
    } else {
        format!("not delegated to us: {}", crate::cgroup::without(name))
    };
    let fix = "start fractal with `systemd-run --user --scope -p Delegate=yes`, or as root";
    probe(&format!("limit {name}"), ok, found, fix)
}

fn seccomp() -> Probe {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ok = status.lines().any(|line| line.starts_with("Seccomp:"));
    probe(
        "seccomp",
        ok,
        if ok { "filters work" } else { "none" },
        "use a kernel with CONFIG_SECCOMP_FILTER",
    )
}

fn landlock() -> Probe {
    match crate::sys::security::landlock_version() {
        Ok(version) => probe("landlock", true, format!("version {version}"), ""),
        Err(_) => probe(
            "landlock",
            false,
            "none: one fence fewer",
            "boot with lsm=landlock,… (Linux 5.13 or later)",
        ),
    }
}
