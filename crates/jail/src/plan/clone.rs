//! Root's plan: a copy-on-write clone of the whole machine.
//!
//! One overlay covers `/`, with the host's root as its lowest layer. The
//! kernel refuses two lower layers of which one lies inside the other, and
//! sealed layers do lie inside `/`; so on a stack the host's root first gets
//! a *veil*, a read-only overlay of its own, which cuts the relation. A veil
//! makes lookups slower, hence the trees that are read most (`/usr`, the
//! project) get direct overlays beside it. All overlays share the layer's
//! `tree`; nested ones are mounted first, as the kernel wants it.

use super::{
    SHIFT_BASE, abs, dev_furniture, kernel_views, layer_tree, make_chain, make_layer_chain, masks,
    memory_size, network, overlay, proc, push_inside, read_only, rel, run_directory, staging,
    upper_of, work_name,
};
use crate::JailError;
use crate::host::{Facts, Own};
use crate::spec::{Spec, Top};
use crate::step::{Kind, Step};
use fractal_model::Tier;
use std::path::Path;

const SLOT_ROOT: usize = 0;
const SLOT_LAYERS: usize = 1;
const SLOT_MEMORY: usize = 2;
const SLOT_FREE: usize = 3;

pub(super) fn steps(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let idmap = spec.tier == Tier::Clone;
    let shift = if idmap { SHIFT_BASE } else { 0 };
    let needs_veil = !spec.stack.sealed.is_empty() && facts.layers_under_root;
    let parts: Vec<&Own> = facts.own.iter().chain(&facts.mounts).collect();
    let mut steps = vec![Step::Private];

    steps.extend(outside_directories(spec, facts, &parts)?);
    let take = |slot: usize, path: &Path| {
        Ok::<_, JailError>(Step::OpenTree { slot, path: abs(path)?, recursive: false, idmap })
    };
    steps.push(take(SLOT_ROOT, Path::new("/"))?);
    steps.push(take(SLOT_LAYERS, &spec.stack.layers_dir)?);
    let mount_slot = SLOT_FREE + parts.len();
    for (index, own) in facts.mounts.iter().enumerate() {
        steps.push(take(SLOT_FREE + facts.own.len() + index, &own.path)?);
    }
    let placed: Vec<_> = spec
        .stack
        .mounts
        .iter()
        .filter_map(|mount| Some((mount, mount.source.as_ref()?)))
        .collect();
    for (index, (_, source)) in placed.iter().enumerate() {
        steps.push(take(mount_slot + index, source)?);
    }

    steps.extend(stage(spec, facts)?);
    // Through a shifted mount, root itself could not create anything.
    steps.push(Step::ActAs { uid: shift, gid: shift });
    let masks = masks(facts, mount_slot + placed.len())?;
    steps.extend(masks.take);
    if needs_veil {
        steps.push(Step::MakeDir { path: rel("veil")?, mode: 0o755, owner: None });
        steps.push(Step::MakeDir { path: rel("none")?, mode: 0o755, owner: None });
        steps.push(overlay(rel("veil")?, vec![b"lower".to_vec(), b"none".to_vec()], None, false)?);
    }
    for (index, own) in parts.iter().enumerate() {
        steps.extend(part(spec, own, index, index >= facts.own.len())?);
    }
    let host: &[u8] = if needs_veil { b"veil" } else { b"lower" };
    let mut lowers: Vec<Vec<u8>> =
        spec.stack.sealed.iter().map(|name| layer_tree(name, Path::new("/"))).collect();
    lowers.push(host.to_vec());
    steps.push(overlay(rel("root")?, lowers, Some(upper_of(spec, Path::new("/"), 0)), false)?);
    steps.push(Step::Enter { dir: rel("root")? });
    steps.push(Step::Pivot);

    for (index, own) in parts.iter().enumerate() {
        let attach = Step::Attach { slot: SLOT_FREE + index, at: abs(&own.path)? };
        steps.push(if index < facts.own.len() { attach } else { Step::Optional(Box::new(attach)) });
    }
    steps.extend(interfaces(spec, facts, shift)?);
    for (index, (mount, _)) in placed.iter().enumerate() {
        let at = abs(&mount.at)?;
        steps.push(Step::Attach { slot: mount_slot + index, at: at.clone() });
        if !mount.writable {
            steps.push(Step::Restrict {
                at,
                attributes: crate::sys::mount::ATTR_RDONLY,
                recursive: false,
            });
        }
    }
    steps.extend(masks.cover);
    steps.extend(read_only(spec)?);
    steps.extend(after_meeting(spec, facts)?);
    Ok(steps)
}

/// Directories that must exist in the top layer before it is mounted, made by
/// their path outside: through the shifted mount root could not create them.
fn outside_directories(spec: &Spec, facts: &Facts, parts: &[&Own]) -> Result<Vec<Step>, JailError> {
    let Top::Disk(name) = &spec.stack.top else { return Ok(Vec::new()) };
    let layer = spec.stack.layers_dir.join(name);
    let tree = layer.join("tree");
    let mut steps = Vec::new();
    for own in parts.iter().filter(|own| !own.read_only) {
        steps.extend(make_layer_chain(&tree, &own.chain, true)?);
    }
    for chain in &facts.make_points {
        steps.extend(make_layer_chain(&tree, chain, true)?);
    }
    for index in 0..=parts.len() {
        let path = abs(&layer.join("work").join(work_name(spec, index)))?;
        steps.push(Step::MakeDir { path, mode: 0o700, owner: None });
    }
    Ok(steps)
}

/// The host's root and the layers in the staging directory.
fn stage(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let mut steps = staging(spec, facts, &["lower", "layers", "root"])?;
    steps.push(Step::Attach { slot: SLOT_ROOT, at: rel("lower")? });
    steps.push(Step::Attach { slot: SLOT_LAYERS, at: rel("layers")? });
    if let Top::Memory { .. } = spec.stack.top {
        steps.extend(memory_top(spec, facts)?);
    }
    Ok(steps)
}

/// The top of a throw-away run, in the staging directory's own filesystem: a
/// second one would be made and torn down for nothing.
fn memory_top(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let dir = |name: &str, mode: u32| {
        Ok::<_, JailError>(Step::MakeDir { path: rel(name)?, mode, owner: None })
    };
    let mut steps = vec![
        dir("memory", 0o755)?,
        dir("top", 0o755)?,
        dir("memory/tree", facts.root_mode)?,
        dir("memory/work", 0o700)?,
    ];
    let parts = facts.own.iter().chain(&facts.mounts).collect::<Vec<_>>();
    for index in 0..=parts.len() {
        steps.push(dir(&format!("memory/work/{}", work_name(spec, index)), 0o700)?);
    }
    for own in parts.iter().filter(|own| !own.read_only) {
        steps.extend(make_chain(Path::new("memory/tree"), &own.chain, true)?);
    }
    for chain in &facts.make_points {
        steps.extend(make_chain(Path::new("memory/tree"), chain, true)?);
    }
    let idmap = spec.tier == Tier::Clone;
    steps.push(Step::OpenTree { slot: SLOT_MEMORY, path: rel("memory")?, recursive: false, idmap });
    steps.push(Step::Attach { slot: SLOT_MEMORY, at: rel("top")? });
    steps.push(Step::OpenTop { path: rel("memory/tree")? });
    Ok(steps)
}

/// A part of the tree with an overlay of its own, left in its slot.
fn part(spec: &Spec, own: &Own, index: usize, is_mount: bool) -> Result<Vec<Step>, JailError> {
    let slot = SLOT_FREE + index;
    let name = format!("part{index}");
    let mut steps = vec![Step::MakeDir { path: rel(name.as_str())?, mode: 0o755, owner: None }];
    let mut lowers: Vec<Vec<u8>> = (spec.stack.sealed.iter().zip(&own.in_sealed))
        .filter(|(_, present)| **present)
        .map(|(layer, _)| layer_tree(layer, &own.path))
        .collect();
    let host = if is_mount {
        let lower = format!("mount{index}");
        steps.push(Step::MakeDir { path: rel(lower.as_str())?, mode: 0o755, owner: None });
        steps.push(Step::Attach { slot, at: rel(lower.as_str())? });
        lower.into_bytes()
    } else {
        let mut host = b"lower".to_vec();
        push_inside(&mut host, &own.path);
        host
    };
    if own.read_only {
        // Nothing to write: a veil, through which no socket is reached.
        steps.push(Step::MakeDir { path: rel("none")?, mode: 0o755, owner: None });
        steps.push(overlay(rel(name.as_str())?, vec![host, b"none".to_vec()], None, false)?);
        steps.push(Step::OpenTree {
            slot,
            path: rel(name.as_str())?,
            recursive: false,
            idmap: false,
        });
        return Ok(steps);
    }
    let veiled = own.holds_layers && !spec.stack.sealed.is_empty();
    if veiled {
        let veil = format!("veil{index}");
        steps.push(Step::MakeDir { path: rel(veil.as_str())?, mode: 0o755, owner: None });
        steps.push(Step::MakeDir { path: rel("none")?, mode: 0o755, owner: None });
        steps.push(overlay(rel(veil.as_str())?, vec![host, b"none".to_vec()], None, false)?);
        lowers.push(veil.into_bytes());
    } else {
        lowers.push(host);
    }
    let upper = upper_of(spec, &own.path, index + 1);
    steps.push(overlay(rel(name.as_str())?, lowers, Some(upper), false)?);
    steps.push(Step::OpenTree { slot, path: rel(name.as_str())?, recursive: false, idmap: false });
    Ok(steps)
}

fn interfaces(spec: &Spec, facts: &Facts, shift: u32) -> Result<Vec<Step>, JailError> {
    let size = memory_size(spec);
    let mut steps = vec![Step::Filesystem {
        kind: Kind::Tmpfs,
        at: rel("/dev")?,
        flags: (libc::MS_NOSUID | libc::MS_NOEXEC) as u64,
        data: rel(format!("mode=755{size}"))?,
    }];
    let devices = [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)];
    for (name, minor) in devices {
        steps.push(Step::Device { path: rel(format!("/dev/{name}"))?, major: 1, minor });
    }
    steps.push(Step::Device { path: rel("/dev/tty")?, major: 5, minor: 0 });
    steps.extend(dev_furniture()?);
    steps.push(proc("/proc")?);
    steps.extend(run_directory(spec, facts, shift)?);
    Ok(steps)
}

/// What shows or changes the network namespace, once we are in it.
fn after_meeting(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let mut steps = vec![Step::Meet];
    let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    let sysfs = Step::Filesystem {
        kind: Kind::Sysfs,
        at: rel("/sys")?,
        flags: quiet as u64,
        data: rel("")?,
    };
    steps.push(Step::Optional(Box::new(sysfs)));
    steps.extend(network(spec)?);
    steps.extend(kernel_views(facts)?);
    if spec.tier == Tier::Masked {
        steps.extend(masked_proc(facts)?);
    }
    Ok(steps)
}

/// With unshifted ids the program owns what is in `/proc`, so all of it is
/// read-only: also modes and owners there, which all mounts of it share. The
/// kernel's switches are bound once more, should the first lock be lost.
pub(super) fn masked_proc(facts: &Facts) -> Result<Vec<Step>, JailError> {
    let mut steps = Vec::new();
    let lock =
        |at| Step::Restrict { at, attributes: crate::sys::mount::ATTR_RDONLY, recursive: false };
    for path in &facts.kernel_switches {
        let at = abs(path)?;
        steps.push(Step::Bind { from: at.clone(), at: at.clone() });
        steps.push(lock(at));
    }
    steps.push(lock(rel("/proc")?));
    Ok(steps)
}
