//! Settings: what files say, and where each value comes from.
//!
//! A project's `fractal.toml` (in the caller's directory or above it, the
//! nearest one alone) speaks before the user's own file, which speaks before
//! the defaults. Unknown keys are errors that name file and line: a typo must
//! not silently widen a limit.

mod attempts;
pub(crate) mod branch;
mod find;
#[cfg(feature = "knowledge")]
mod index;
mod roles;
mod servers;
mod stages;

pub use attempts::TrySettings;
#[cfg(feature = "knowledge")]
pub(crate) use find::is_ours;
#[cfg(any(feature = "tools", feature = "knowledge"))]
pub(crate) use find::read_regular;
#[cfg(feature = "knowledge")]
pub use index::{IndexServers, ModelChoice};
pub use servers::Server;
pub use stages::{Line, Stage};

use crate::template::{BUILT_IN, Template};
use fractal_model::{
    Error, Limits, Mount, MountAccess, MountSource, Network, Result, format_bytes,
    format_duration_ms, parse_bytes, parse_duration_ms,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::{Path, PathBuf};

/// Name of a project's file.
pub const FILE_NAME: &str = "fractal.toml";

/// Forgotten sandboxes expire after seven days.
pub const TTL_MS: u64 = 7 * 86_400_000;
/// Enough for any build, too few for a fork bomb to hurt.
pub const PIDS: u64 = 4096;

/// Everything that was configured.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Strongest first.
    sources: Vec<Source>,
    /// Where the user's own file is, or would be.
    user: Option<PathBuf>,
    /// The directory that they apply to.
    directory: PathBuf,
}

#[derive(Clone, Debug)]
struct Source {
    path: PathBuf,
    file: File,
    /// Its checks and attempts.
    declared: attempts::Declared,
    /// Its stages.
    line: Option<Line>,
}

/// One setting as it stands.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// Its name in the file.
    pub name: String,
    /// Its value as text.
    pub value: String,
    /// The file, or `default`.
    pub origin: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    template: Option<String>,
    ttl: Option<String>,
    net: Option<String>,
    #[serde(default)]
    hide: Vec<String>,
    #[serde(default)]
    show: Vec<String>,
    #[serde(default)]
    limits: LimitsFile,
    #[serde(default)]
    templates: BTreeMap<String, TemplateFile>,
    #[serde(default)]
    check: Vec<attempts::CheckFile>,
    #[serde(default)]
    attempt: Vec<attempts::AttemptFile>,
    #[serde(default)]
    r#try: attempts::TryFile,
    #[serde(default)]
    stage: Vec<toml::Spanned<stages::StageFile>>,
    #[serde(default)]
    role: BTreeMap<String, roles::RoleFile>,
    #[serde(default)]
    mcp: BTreeMap<String, servers::ServerFile>,
    #[cfg(feature = "knowledge")]
    #[serde(default)]
    index: index::IndexFile,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsFile {
    memory: Option<String>,
    cpus: Option<f64>,
    pids: Option<u64>,
    disk: Option<String>,
    time: Option<String>,
    output: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TemplateFile {
    base: Option<String>,
    net: Option<String>,
    cwd: Option<String>,
    #[serde(default)]
    hide: Vec<String>,
    #[serde(default)]
    read_only: Vec<String>,
    tools: Option<BTreeSet<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    limits: LimitsFile,
    #[serde(default)]
    mounts: Vec<MountFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MountFile {
    at: String,
    volume: Option<String>,
    host: Option<String>,
    #[serde(default)]
    scratch: bool,
    access: Option<String>,
}

impl Source {
    fn load(path: PathBuf) -> Result<Source> {
        let text = find::read_regular(&path).map_err(|error| {
            Error::invalid(format!("cannot read {}: {error}", path.display()))
                .hint("settings are a file that you can read: make it one, or move it away")
        })?;
        Source::read(path, &text)
    }

    fn read(path: PathBuf, text: &str) -> Result<Source> {
        let mut file = parse(&path, text)?;
        #[cfg(feature = "knowledge")]
        index::check(&path, &file.index)?;
        let (checks, attempts) = (take(&mut file.check), take(&mut file.attempt));
        let reading = attempts::Reading { path: &path, text };
        let declared = reading.declared(checks, attempts, take(&mut file.r#try))?;
        let line = reading.line(take(&mut file.stage), declared.checks())?;
        Ok(Source { path, file, declared, line })
    }
}

impl Config {
    fn first<T>(&self, get: impl Fn(&File) -> Option<T>) -> Option<(T, &Path)> {
        self.sources.iter().find_map(|source| Some((get(&source.file)?, source.path.as_path())))
    }

    /// The template of new sandboxes.
    pub fn default_template(&self) -> String {
        self.first(|file| file.template.clone())
            .map_or_else(|| "clone".to_owned(), |(name, _)| name)
    }

    /// How long a sandbox may be forgotten.
    pub fn ttl_ms(&self) -> Result<u64> {
        match self.first(|file| file.ttl.clone()) {
            None => Ok(TTL_MS),
            Some((text, path)) => {
                parse_duration_ms(&text).map_err(|error| in_file(path, "ttl", &error))
            }
        }
    }

    /// The network of new sandboxes.
    pub fn network(&self) -> Result<Network> {
        match self.first(|file| file.net.clone()) {
            None => Ok(Network::None),
            Some((text, path)) => {
                Network::parse(&text).map_err(|error| in_file(path, "net", &error))
            }
        }
    }

    /// Limits of new sandboxes.
    pub fn limits(&self) -> Result<Limits> {
        let mut limits = Limits::default();
        for source in &self.sources {
            limits = or(limits, source.file.limits.read(&source.path, "limits")?);
        }
        limits.pids = limits.pids.or(Some(PIDS));
        Ok(limits)
    }

    /// Paths hidden beside the defaults, and paths shown in spite of them.
    pub fn hide_and_show(&self) -> (Vec<String>, Vec<String>) {
        let all = |get: fn(&File) -> &Vec<String>| {
            self.sources.iter().flat_map(|source| get(&source.file).clone()).collect::<Vec<_>>()
        };
        (all(|file| &file.hide), all(|file| &file.show))
    }

    /// Where tools are described: beside the project's file (in `directory`
    /// where it has none), and beside the user's.
    pub fn tool_directories(&self, directory: &Path) -> Vec<PathBuf> {
        let project = self.sources.iter().map(|source| source.path.as_path());
        let project = project.filter(|path| path.ends_with(FILE_NAME)).find_map(Path::parent);
        let user = self.user.as_deref().and_then(Path::parent);
        let places = std::iter::once(project.unwrap_or(directory)).chain(user);
        places.map(|place| place.join("tools")).collect()
    }

    /// Names of configured templates.
    pub fn template_names(&self) -> Vec<String> {
        self.sources.iter().flat_map(|source| source.file.templates.keys().cloned()).collect()
    }

    /// A configured template.
    pub fn template(&self, name: &str, directory: &Path) -> Result<Option<Template>> {
        let Some((file, path)) = self.first(|file| file.templates.get(name).cloned()) else {
            return Ok(None);
        };
        let base = file.base.as_deref().unwrap_or("clone");
        let mut template = Template::built_in(base, directory).ok_or_else(|| {
            let what = format!("templates.{name}.base");
            in_file(
                path,
                &what,
                &Error::invalid(format!("`{base}` is none of: {}", BUILT_IN.join(", "))),
            )
        })?;
        template.name = name.to_owned();
        template.limits =
            or(file.limits.read(path, &format!("templates.{name}.limits"))?, template.limits);
        if let Some(text) = &file.net {
            let what = format!("templates.{name}.net");
            template.network =
                Some(Network::parse(text).map_err(|error| in_file(path, &what, &error))?);
        }
        template.env.extend(file.env);
        template.cwd = file.cwd.or(template.cwd);
        template.hide.extend(file.hide);
        template.read_only.extend(file.read_only);
        template.tools = file.tools.or(template.tools);
        let root = path.parent().unwrap_or(Path::new("/"));
        for mount in &file.mounts {
            let mount = mount
                .read(root)
                .map_err(|error| in_file(path, &format!("templates.{name}.mounts"), &error))?;
            template.mounts.retain(|other| other.at != mount.at);
            template.mounts.push(mount);
        }
        Ok(Some(template))
    }

    /// Whether a text would do as the settings of this file.
    #[cfg(feature = "knowledge")]
    pub(crate) fn check(path: &Path, text: &str) -> Result<()> {
        Source::read(path.to_owned(), text).map(drop)
    }

    /// Every setting with its origin, for `fractal config show`.
    pub fn settings(&self) -> Result<Vec<Setting>> {
        let limits = self.limits()?;
        let text = |value: Option<u64>, show: fn(u64) -> String| {
            value.map_or_else(|| "none".to_owned(), show)
        };
        let mut list = vec![
            self.setting("template", self.default_template(), |file| file.template.is_some()),
            self.setting("ttl", format_duration_ms(self.ttl_ms()?), |file| file.ttl.is_some()),
            self.setting("net", network_text(&self.network()?), |file| file.net.is_some()),
        ];
        let cpus = limits
            .cpu_milli
            .map_or_else(|| "none".to_owned(), |milli| format!("{}", milli as f64 / 1000.0));
        list.push(self.setting("limits.cpus", cpus, |file| file.limits.cpus.is_some()));
        list.push(self.setting("limits.memory", text(limits.memory_bytes, format_bytes), |file| {
            file.limits.memory.is_some()
        }));
        list.push(self.setting(
            "limits.pids",
            text(limits.pids, |pids| pids.to_string()),
            |file| file.limits.pids.is_some(),
        ));
        list.push(self.setting("limits.disk", text(limits.disk_bytes, format_bytes), |file| {
            file.limits.disk.is_some()
        }));
        list.push(self.setting("limits.time", text(limits.time_ms, format_duration_ms), |file| {
            file.limits.time.is_some()
        }));
        list.push(self.setting("limits.output", text(limits.output_bytes, format_bytes), |file| {
            file.limits.output.is_some()
        }));
        let (hide, show) = self.hide_and_show();
        list.push(self.setting("hide", hide.join(" "), |file| !file.hide.is_empty()));
        list.push(self.setting("show", show.join(" "), |file| !file.show.is_empty()));
        for name in self.template_names() {
            let value = name.clone();
            list.push(self.setting("templates", value, |file| file.templates.contains_key(&name)));
        }
        list.extend(self.attempt_settings());
        list.extend(self.stage_settings());
        list.extend(self.role_settings());
        list.extend(self.server_settings());
        #[cfg(feature = "knowledge")]
        list.extend(self.index_settings());
        Ok(list)
    }

    fn setting(&self, name: &str, value: String, is_set: impl Fn(&File) -> bool) -> Setting {
        let source = self.sources.iter().find(|source| is_set(&source.file));
        let origin =
            source.map_or_else(|| "default".to_owned(), |source| source.path.display().to_string());
        Setting { name: name.to_owned(), value, origin }
    }
}

fn network_text(network: &Network) -> String {
    match network {
        Network::None => "none".to_owned(),
        Network::Host => "host".to_owned(),
        Network::Allow(hosts) => {
            format!("allow:{}", hosts.iter().cloned().collect::<Vec<_>>().join(","))
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<File> {
    toml::from_str(text).map_err(|error| {
        let line = line_of(text, error.span().map_or(0, |span| span.start));
        let reason = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
        Error::invalid(format!("{}:{line}: {reason}", path.display()))
            .hint("mend that line; `fractal config show` lists the settings there are")
    })
}

/// The line, from 1, of a place in a text.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn in_file(path: &Path, what: &str, error: &Error) -> Error {
    let hint = error.hint.clone();
    let line = std::fs::read_to_string(path).ok().and_then(|text| line_of_key(&text, what));
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    let mut error = Error::invalid(format!("{}{line}: {what}: {error}", path.display()));
    error.hint = hint;
    error
}

/// The line, from 1, on which a value is set, where it has one of its own. The
/// parser has forgotten by now where it was.
fn line_of_key(text: &str, what: &str) -> Option<usize> {
    let mut table = String::new();
    text.lines()
        .position(|line| {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                table = format!("{}.", header.split(']').next().unwrap_or_default().trim());
                return false;
            }
            line.split_once('=').is_some_and(|(key, _)| format!("{table}{}", key.trim()) == what)
        })
        .map(|index| index + 1)
}

/// The first bound that was given, per field.
pub fn or(a: Limits, b: Limits) -> Limits {
    Limits {
        cpu_milli: a.cpu_milli.or(b.cpu_milli),
        memory_bytes: a.memory_bytes.or(b.memory_bytes),
        pids: a.pids.or(b.pids),
        disk_bytes: a.disk_bytes.or(b.disk_bytes),
        time_ms: a.time_ms.or(b.time_ms),
        output_bytes: a.output_bytes.or(b.output_bytes),
    }
}

impl LimitsFile {
    fn read(&self, path: &Path, table: &str) -> Result<Limits> {
        let bytes = |name: &str, text: &Option<String>| {
            text.as_deref()
                .map(|text| {
                    parse_bytes(text)
                        .map_err(|error| in_file(path, &format!("{table}.{name}"), &error))
                })
                .transpose()
        };
        let time = self.time.as_deref().map(parse_duration_ms).transpose();
        let cpus = self.cpus.map(|cpus| (cpus * 1000.0) as u64);
        if self.cpus.is_some_and(|cpus| !cpus.is_finite() || cpus <= 0.0) {
            return Err(in_file(
                path,
                &format!("{table}.cpus"),
                &Error::invalid("must be more than 0"),
            ));
        }
        Ok(Limits {
            cpu_milli: cpus,
            memory_bytes: bytes("memory", &self.memory)?,
            pids: self.pids,
            disk_bytes: bytes("disk", &self.disk)?,
            time_ms: time.map_err(|error| in_file(path, &format!("{table}.time"), &error))?,
            output_bytes: bytes("output", &self.output)?,
        })
    }
}

impl MountFile {
    fn read(&self, root: &Path) -> Result<Mount> {
        let source = match (&self.volume, &self.host, self.scratch) {
            (Some(name), None, false) => {
                MountSource::Volume(fractal_model::Name::parse(name)?.to_string())
            }
            (None, Some(path), false) => MountSource::Host(root.join(path).display().to_string()),
            (None, None, true) => MountSource::Scratch,
            _ => {
                return Err(Error::invalid(format!(
                    "the mount at `{}` needs one of volume, host, scratch",
                    self.at
                )));
            }
        };
        let access = match (self.access.as_deref(), &source) {
            (Some("read"), _) | (None, MountSource::Host(_)) => MountAccess::Read,
            (Some("write"), _) | (None, _) => MountAccess::Write,
            (Some(other), _) => {
                return Err(Error::invalid(format!(
                    "access `{other}` is neither `read` nor `write`"
                )));
            }
        };
        if !self.at.starts_with('/')
            || self.at.split('/').any(|part| part == "..")
            || self.at == "/"
        {
            return Err(Error::invalid(format!("`{}` is not an absolute path below /", self.at)));
        }
        Ok(Mount { at: self.at.clone(), source, access })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn read(text: &str) -> Result<Config> {
        let source = Source::read(PathBuf::from("/p/fractal.toml"), text)?;
        Ok(Config { sources: vec![source], directory: PathBuf::from("/p/a/b"), user: None })
    }

    #[test]
    fn unknown_keys_and_bad_units_name_file_and_line() {
        let error = read("net = \"none\"\nmemroy = 3\n").expect_err("a typo");
        assert!(error.message.starts_with("/p/fractal.toml:2: unknown field `memroy`"), "{error}");
        let error = read("[limits]\nmemory = \"5 apples\"\n")
            .and_then(|config| config.limits())
            .expect_err("units");
        assert!(error.message.contains("limits.memory"), "{error}");
    }

    #[test]
    fn values_are_found_on_their_lines() {
        let text = "ttl = \"x\"\nlimits.time = \"1\"\n[limits]\n# memory = 1\nmemory = \"5\"\n\
                    [templates.web.limits]\nmemory=\"6\"\n";
        let check = |what: &str, line: Option<usize>| {
            assert_eq!(line_of_key(text, what), line, "{what}");
        };
        check("ttl", Some(1));
        check("limits.time", Some(2));
        check("limits.memory", Some(5));
        check("templates.web.limits.memory", Some(7));
        check("memory", None);
    }

    #[test]
    fn templates_extend_a_built_in_one() {
        let config = read(
            "[templates.web]\nbase = \"standard\"\nnet = \"host\"\nmounts = [{ at = \"/data\", volume = \"web\" }]\n",
        )
        .expect("it is valid");
        let template =
            config.template("web", Path::new("/p")).expect("it reads").expect("it exists");
        assert_eq!(template.network, Some(Network::Host));
        assert_eq!(template.mounts.len(), 4);
        assert!(
            template.mounts.iter().any(|mount| mount.source == MountSource::Volume("web".into()))
        );
    }

    #[test]
    fn settings_tell_their_origin() {
        let settings =
            read("ttl = \"1d\"\n").and_then(|config| config.settings()).expect("it is valid");
        let origin =
            |name: &str| settings.iter().find(|s| s.name == name).map(|s| s.origin.clone());
        assert_eq!(origin("ttl").as_deref(), Some("/p/fractal.toml"));
        assert_eq!(origin("net").as_deref(), Some("default"));
    }
}
