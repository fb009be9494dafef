//! Everybody's plan: the system read-only, what the user owns copy-on-write.
//!
//! The new root is a small tmpfs with the host's top-level directories bound
//! into it read-only. Directories that may hold sockets of host services get
//! a veil (a read-only overlay): a socket cannot be reached through one. What
//! the user owns (project, home, `/tmp`) gets an overlay each, with its marks
//! in `user.` attributes because `trusted.` ones are not ours to set.

use super::{
    abs, dev_furniture, kernel_views, layer_tree, make_chain, make_in_layer, make_layer_chain,
    masks, memory_size, network, overlay, proc, read_only, rel, run_directory, staging, upper_of,
    work_name,
};
use crate::JailError;
use crate::host::{Entry, Facts, Own, PRIVATE_TOPS};
use crate::spec::{Spec, Top};
use crate::step::{Kind, Step};
use crate::sys::mount::{ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY};
use std::path::Path;

const SLOT_LAYERS: usize = 0;
const SLOT_FREE: usize = 1;
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Top-level directories without sockets in them, which need no veil.
const PLAIN_TOPS: [&str; 8] = ["usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

pub(super) fn steps(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let tops: Vec<&str> = facts
        .root
        .iter()
        .filter_map(|entry| match entry {
            Entry::Dir(name) if !PRIVATE_TOPS.contains(&name.as_str()) => Some(name.as_str()),
            _ => None,
        })
        .take(40)
        .collect();
    let slot_own = SLOT_FREE + tops.len();
    let slot_dev = slot_own + facts.own.len();
    let slot_mounts = slot_dev + DEVICES.len() + 1;
    let mut steps = vec![Step::Private];
    steps.extend(outside_directories(spec, facts)?);

    let take = |slot: usize, path: &Path, recursive: bool| {
        Ok::<_, JailError>(Step::OpenTree { slot, path: abs(path)?, recursive, idmap: false })
    };
    steps.push(take(SLOT_LAYERS, &spec.stack.layers_dir, false)?);
    for (index, name) in tops.iter().enumerate() {
        steps.push(take(SLOT_FREE + index, &Path::new("/").join(name), true)?);
    }
    for (index, own) in facts.own.iter().enumerate().filter(|(_, own)| !own.bare) {
        steps.push(take(slot_own + index, &own.path, true)?);
    }
    for (index, name) in DEVICES.iter().enumerate() {
        steps.push(take(slot_dev + index, &Path::new("/dev").join(name), false)?);
    }
    steps.push(take(slot_dev + DEVICES.len(), Path::new("/sys"), true)?);
    let placed: Vec<_> = spec
        .stack
        .mounts
        .iter()
        .filter_map(|mount| Some((mount, mount.source.as_ref()?)))
        .collect();
    for (index, (_, source)) in placed.iter().enumerate() {
        steps.push(take(slot_mounts + index, source, true)?);
    }

    steps.extend(stage(spec, facts)?);
    let masks = masks(facts, slot_mounts + placed.len())?;
    steps.extend(masks.take);
    steps.extend(root(facts, &tops)?);
    // Inner ones first: the kernel complains about an upper directory inside
    // one that is in use, not about the reverse.
    for (index, own) in facts.own.iter().enumerate().rev() {
        steps.extend(part(spec, own, index, slot_own + index)?);
    }
    steps.extend(scratches(spec, facts)?);
    // The kernel wants to see the host's own /proc beside a new one, so this
    // one comes before the old root goes.
    steps.push(proc("root/proc")?);
    steps.push(Step::Enter { dir: rel("root")? });
    steps.push(Step::Pivot);
    for (index, own) in facts.own.iter().enumerate() {
        steps.push(Step::Attach { slot: slot_own + index, at: abs(&own.path)? });
    }
    steps.extend(interfaces(spec, facts, slot_dev)?);
    for (index, (mount, _)) in placed.iter().enumerate() {
        let at = abs(&mount.at)?;
        steps.push(Step::Attach { slot: slot_mounts + index, at: at.clone() });
        if !mount.writable {
            steps.push(Step::Restrict { at, attributes: ATTR_RDONLY, recursive: true });
        }
    }
    steps.extend(masks.cover);
    steps.extend(read_only(spec)?);
    steps.extend(network(spec)?);
    steps.push(Step::Restrict { at: rel("/")?, attributes: ATTR_RDONLY, recursive: false });
    Ok(steps)
}

fn scratch_paths(spec: &Spec) -> impl Iterator<Item = &Path> {
    spec.stack.mounts.iter().filter(|mount| mount.source.is_none()).map(|mount| mount.at.as_path())
}

fn outside_directories(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let Top::Disk(name) = &spec.stack.top else { return Ok(Vec::new()) };
    let layer = spec.stack.layers_dir.join(name);
    let mut steps = Vec::new();
    for own in &facts.own {
        steps.extend(make_layer_chain(&layer.join("tree"), &own.chain, false)?);
    }
    for path in scratch_paths(spec) {
        let mut above: Vec<&Path> = path.ancestors().filter(|dir| dir.parent().is_some()).collect();
        above.reverse();
        for dir in above {
            steps.push(make_in_layer(&layer.join("tree"), dir, 0o755, None)?);
        }
    }
    for index in 0..=facts.own.len() + spec.stack.mounts.len() {
        let path = abs(&layer.join("work").join(work_name(spec, index)))?;
        steps.push(Step::MakeDir { path, mode: 0o700, owner: None });
    }
    Ok(steps)
}

fn stage(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let dir = |name: &str| {
        Ok::<_, JailError>(Step::MakeDir { path: rel(name)?, mode: 0o755, owner: None })
    };
    let mut steps = staging(spec, facts, &["layers", "root", "none"])?;
    steps.push(Step::Attach { slot: SLOT_LAYERS, at: rel("layers")? });
    if let Top::Memory { .. } = spec.stack.top {
        steps.push(dir("top")?);
        steps.push(dir("top/tree")?);
        steps.push(dir("top/work")?);
        for own in &facts.own {
            steps.extend(make_chain(Path::new("top/tree"), &own.chain, false)?);
        }
        for path in scratch_paths(spec) {
            let mut at = Path::new("top/tree").to_path_buf();
            for part in path.strip_prefix("/").unwrap_or(path).components() {
                at.push(part);
                steps.push(Step::MakeDir { path: abs(&at)?, mode: 0o755, owner: None });
            }
        }
        for index in 0..=facts.own.len() + spec.stack.mounts.len() {
            steps.push(dir(&format!("top/work/{}", work_name(spec, index)))?);
        }
        steps.push(Step::OpenTop { path: rel("top/tree")? });
    }
    Ok(steps)
}

/// The new root: top-level directories bound in, links made again.
fn root(facts: &Facts, tops: &[&str]) -> Result<Vec<Step>, JailError> {
    let mut steps = vec![Step::Filesystem {
        kind: Kind::Tmpfs,
        at: rel("root")?,
        flags: (libc::MS_NOSUID | libc::MS_NODEV) as u64,
        data: rel("mode=755,size=1m")?,
    }];
    for name in PRIVATE_TOPS {
        steps.push(Step::MakeDir { path: rel(format!("root/{name}"))?, mode: 0o755, owner: None });
    }
    for entry in &facts.root {
        if let Entry::Link(name, target) = entry {
            steps.push(Step::Link { target: abs(target)?, path: rel(format!("root/{name}"))? });
        }
    }
    for (index, name) in tops.iter().enumerate() {
        let at = rel(format!("root/{name}"))?;
        steps.push(Step::MakeDir { path: at.clone(), mode: 0o755, owner: None });
        steps.push(Step::Attach { slot: SLOT_FREE + index, at: at.clone() });
        if !PLAIN_TOPS.contains(name) {
            // Falls back to the bind below it where the kernel refuses, as it
            // does when the directory has mounts of its own in it.
            let lowers = vec![format!("root/{name}").into_bytes(), b"none".to_vec()];
            steps.push(Step::Optional(Box::new(overlay(at.clone(), lowers, None, true)?)));
        }
        steps.push(Step::Restrict {
            at,
            attributes: ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV,
            recursive: true,
        });
    }
    for dir in facts.make_points.iter().flatten() {
        let path = abs(&Path::new("root").join(dir.path.strip_prefix("/").unwrap_or(&dir.path)))?;
        steps.push(Step::MakeDir { path, mode: 0o755, owner: None });
    }
    Ok(steps)
}

/// One directory of the user's, with an overlay of its own.
fn part(spec: &Spec, own: &Own, index: usize, slot: usize) -> Result<Vec<Step>, JailError> {
    let (name, lower, veil) =
        (format!("part{index}"), format!("host{index}"), format!("veil{index}"));
    let dir = |name: &str| {
        Ok::<_, JailError>(Step::MakeDir { path: rel(name)?, mode: 0o755, owner: None })
    };
    let mut steps = vec![dir(&name)?];
    if !own.bare {
        steps.push(dir(&lower)?);
        steps.push(Step::Attach { slot, at: rel(lower.as_str())? });
    }
    let mut lowers: Vec<Vec<u8>> = (spec.stack.sealed.iter().zip(&own.in_sealed))
        .filter(|(_, present)| **present)
        .map(|(layer, _)| layer_tree(layer, &own.path))
        .collect();
    if own.bare {
        lowers.push(b"none".to_vec());
    } else if own.holds_layers && !spec.stack.sealed.is_empty() {
        steps.push(dir(&veil)?);
        steps.push(overlay(
            rel(veil.as_str())?,
            vec![lower.into_bytes(), b"none".to_vec()],
            None,
            true,
        )?);
        lowers.push(veil.into_bytes());
    } else {
        lowers.push(lower.into_bytes());
    }
    let upper = upper_of(spec, &own.path, index);
    steps.push(overlay(rel(name.as_str())?, lowers, Some(upper), true)?);
    steps.push(Step::OpenTree { slot, path: rel(name.as_str())?, recursive: false, idmap: false });
    Ok(steps)
}

/// Scratch directories: the sandbox's own layers with nothing of the host.
fn scratches(spec: &Spec, facts: &Facts) -> Result<Vec<Step>, JailError> {
    let mut steps = Vec::new();
    // The numbers before are those of the user's own directories.
    let first = facts.own.len();
    for (index, path) in scratch_paths(spec).enumerate() {
        let mut lowers: Vec<Vec<u8>> = Vec::new();
        for name in &spec.stack.sealed {
            let tree = spec.stack.layers_dir.join(name).join("tree");
            // A link in its place would show what it points to on the host.
            let inside = path.strip_prefix("/").unwrap_or(path);
            if crate::host::plain_in_layer(&tree, inside) == Some(true) {
                lowers.push(layer_tree(name, path));
            }
        }
        lowers.push(b"none".to_vec());
        let (upper, _) = upper_of(spec, path, 0);
        let (_, work) = upper_of(spec, path, first + index);
        let mut at = b"root".to_vec();
        super::push_inside(&mut at, path);
        steps.push(overlay(rel(at)?, lowers, Some((upper, work)), true)?);
    }
    Ok(steps)
}

fn interfaces(spec: &Spec, facts: &Facts, slot_dev: usize) -> Result<Vec<Step>, JailError> {
    let mut steps = vec![Step::Filesystem {
        kind: Kind::Tmpfs,
        at: rel("/dev")?,
        flags: (libc::MS_NOSUID | libc::MS_NOEXEC) as u64,
        data: rel(format!("mode=755{}", memory_size(spec)))?,
    }];
    for (index, name) in DEVICES.iter().enumerate() {
        let at = rel(format!("/dev/{name}"))?;
        steps.push(Step::MakeFile { path: at.clone(), mode: 0o666 });
        steps.push(Step::Attach { slot: slot_dev + index, at });
    }
    steps.extend(dev_furniture()?);
    steps.extend(kernel_views(facts)?);
    steps.extend(run_directory(spec, facts, 0)?);
    steps.push(Step::Attach { slot: slot_dev + DEVICES.len(), at: rel("/sys")? });
    steps.push(Step::Restrict { at: rel("/sys")?, attributes: ATTR_RDONLY, recursive: true });
    Ok(steps)
}
