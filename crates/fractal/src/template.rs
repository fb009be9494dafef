//! Templates: mounts, limits and environment of new sandboxes.

use crate::Caller;
use fractal_model::{Error, Limits, Mount, MountAccess, MountSource, Network, Result, World};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a new sandbox starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// What is mounted over the clone.
    pub mounts: Vec<Mount>,
    /// Limits where the caller asked for none.
    pub limits: Limits,
    /// Network where the caller asked for none.
    pub network: Option<Network>,
    /// Variables set inside.
    pub env: BTreeMap<String, String>,
    /// Where programs start, if not in the caller's directory.
    pub cwd: Option<String>,
    /// More paths to hide.
    pub hide: Vec<String>,
    /// Paths that cannot be written.
    pub read_only: Vec<String>,
    /// The tools that may be used, where it says which.
    pub tools: Option<BTreeSet<String>>,
    /// How programs run, where a run does not say.
    pub world: World,
}

/// The templates that are always there.
pub const BUILT_IN: [&str; 3] = ["clone", "standard", "virtual"];

/// Directories made in the standard topology on first use.
pub const DATA_DIRS: [&str; 4] = ["knowledge", "memory", "cache", "output"];
/// The same for scratch space.
pub const WORKSPACE_DIRS: [&str; 2] = ["docs", "temp"];

impl Template {
    /// Finds a template by name: the project's own, or a built-in one.
    pub fn find(caller: &Caller, name: &str) -> Result<Template> {
        if let Some(template) = caller.config.template(name, &caller.directory)? {
            return Ok(template);
        }
        Template::built_in(name, &caller.directory).ok_or_else(|| {
            let mut names = caller.config.template_names();
            names.extend(BUILT_IN.map(str::to_owned));
            Error::not_found(format!("there is no template `{}`", name.escape_debug()))
                .hint(format!("there are: {}", names.join(", ")))
        })
    }

    /// One of [`BUILT_IN`].
    pub fn built_in(name: &str, directory: &Path) -> Option<Template> {
        let mut template = Template {
            name: name.to_owned(),
            mounts: Vec::new(),
            limits: Limits::default(),
            network: None,
            env: BTreeMap::new(),
            cwd: None,
            hide: Vec::new(),
            read_only: Vec::new(),
            tools: None,
            world: World::Native,
        };
        match name {
            "clone" => Some(template),
            "virtual" => Some(Template { world: World::Virtual, ..template }),
            "standard" => {
                let mount = |at: &str, source, access| Mount { at: at.to_owned(), source, access };
                template.mounts = vec![
                    mount("/data", MountSource::Volume(volume_name(directory)), MountAccess::Write),
                    mount(
                        "/src",
                        MountSource::Host(directory.display().to_string()),
                        MountAccess::Read,
                    ),
                    mount("/workspace", MountSource::Scratch, MountAccess::Write),
                    mount("/root", MountSource::Scratch, MountAccess::Write),
                ];
                template.env.insert("HOME".to_owned(), "/root".to_owned());
                template.cwd = Some("/workspace".to_owned());
                Some(template)
            }
            _ => None,
        }
    }
}

/// The directories of scratch space: its mount points, and what is in them
/// from the start.
pub fn scratch(mounts: &[Mount]) -> Vec<String> {
    let scratch = mounts.iter().filter(|mount| mount.source == MountSource::Scratch);
    let with_inner = scratch.flat_map(|mount| {
        let inner: &[&str] = if mount.at == "/workspace" { &WORKSPACE_DIRS } else { &[] };
        let inner = inner.iter().map(|name| format!("{}/{name}", mount.at));
        std::iter::once(mount.at.clone()).chain(inner.collect::<Vec<_>>())
    });
    with_inner.collect()
}

/// A volume per project: its directory's name, and enough of a hash of the
/// whole path to keep two projects of one name apart.
fn volume_name(directory: &Path) -> String {
    let base: String = directory
        .file_name()
        .map_or_else(|| "root".into(), |name| name.to_string_lossy())
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(40)
        .collect();
    let bytes = directory.as_os_str().as_encoded_bytes();
    // FNV-1a: stable across versions, which the standard hasher is not.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}-{:06x}", base.trim_start_matches(['-', '_']), hash & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_two_projects_of_one_name_differ() {
        let (a, b) = (volume_name(Path::new("/a/app")), volume_name(Path::new("/b/app")));
        assert_ne!(a, b);
        for name in [a, b, volume_name(Path::new("/")), volume_name(Path::new("/x/ü b"))] {
            assert!(fractal_model::Name::parse(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_standard_topology_has_four_mounts() {
        let template = Template::built_in("standard", Path::new("/p")).expect("it is built in");
        let points: Vec<&str> = template.mounts.iter().map(|mount| mount.at.as_str()).collect();
        assert_eq!(points, ["/data", "/src", "/workspace", "/root"]);
    }
}
