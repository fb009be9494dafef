//! What a project's file says about stages: `[[stage]]`, in the order of the
//! line.
//!
//! Only stages that are written down exist. Everything is judged when the file
//! is read, with the place of each value at hand, so that a mistake is named
//! by file and line before anything runs. The line cannot turn back on itself:
//! no two stages write to the same place, and the project itself comes last,
//! since what has reached it no longer differs from it and could not move on.

use super::attempts::Reading;
use super::branch::refuse_no_branch;
use super::{Config, FILE_NAME, Setting};
use fractal_model::{Check, Error, Result, STAGE_NAMES, StageKind, Window, format_duration_ms};
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};
use toml::Spanned;

/// Names of stages stand in names of sandboxes, with a mark of the project.
const NAME_BYTES_MAX: usize = 40;
/// More people than any gate waits for.
const APPROVE_MAX: u32 = 100;
/// Longer than most deployments take; nobody waits for one that hangs.
const PUBLISH_MS: u64 = 30 * 60_000;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageFile {
    name: Option<Spanned<String>>,
    directory: Option<Spanned<String>>,
    git: Option<Spanned<String>>,
    checks: Option<Vec<Spanned<String>>>,
    approve: Option<Spanned<u32>>,
    wait: Option<Spanned<String>>,
    freeze: Option<Vec<Spanned<String>>>,
    publish: Option<Spanned<String>>,
    #[serde(rename = "publish-time")]
    publish_time: Option<Spanned<String>>,
}

/// One stage and its gate, as the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// What it is; the path of a directory is absolute.
    pub kind: StageKind,
    /// What must hold for what would come out.
    pub checks: Vec<Check>,
    /// How many must approve.
    pub approve: u32,
    /// How long a change must have stood in the stage before.
    pub wait_ms: Option<u64>,
    /// When nothing comes in.
    pub freeze: Vec<Window>,
    /// What runs on the host after something came in.
    pub publish: Option<String>,
    /// How long that may take.
    pub publish_ms: u64,
}

/// The stages of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The project's directory: the one with the file.
    pub root: PathBuf,
    /// In order; at least one.
    pub stages: Vec<Stage>,
}

impl Line {
    /// The place of a stage in the line.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.stages.iter().position(|stage| stage.name == name)
    }

    /// All names, as a person would list them.
    pub fn names(&self) -> String {
        self.stages.iter().map(|stage| stage.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Reading<'_> {
    /// The line that one file declares; `None` when it declares none.
    pub(super) fn line(
        &self,
        files: Vec<Spanned<StageFile>>,
        checks: &[Check],
    ) -> Result<Option<Line>> {
        let Some(first) = files.first() else { return Ok(None) };
        if self.path.file_name().is_none_or(|name| name != FILE_NAME) {
            let why = Error::invalid("stages belong to a project")
                .hint(format!("move them into the {FILE_NAME} of the project"));
            return Err(self.at(first.span(), "stage", &why));
        }
        let root = self.path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut stages: Vec<Stage> = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let stage = self.stage(file, at, &root, checks)?;
            self.fits(file, &stage, &stages, &root)?;
            stages.push(stage);
        }
        Ok(Some(Line { root, stages }))
    }

    fn stage(
        &self,
        file: &Spanned<StageFile>,
        at: usize,
        root: &Path,
        checks: &[Check],
    ) -> Result<Stage> {
        if let (0, Some(wait)) = (at, &file.get_ref().wait) {
            let why = Error::invalid("there is no stage before the first one to wait in")
                .hint("leave it out, or write the stage before it");
            return Err(self.at(wait.span(), "stage.wait", &why));
        }
        if let Some(publish) = &file.get_ref().publish {
            self.not_empty("stage.publish", publish)?;
        } else if let Some(time) = &file.get_ref().publish_time {
            let why = Error::invalid("there is no `publish` that it could limit");
            return Err(self.at(time.span(), "stage.publish-time", &why));
        }
        let freeze = file.get_ref().freeze.iter().flatten().map(|text| {
            Window::parse(text.get_ref())
                .map_err(|error| self.at(text.span(), "stage.freeze", &error))
        });
        Ok(Stage {
            name: self.stage_name(file, at)?,
            kind: self.kind(file, root)?,
            checks: self.checks_of(file, checks)?,
            approve: self
                .count("stage.approve", file.get_ref().approve.clone(), APPROVE_MAX)?
                .unwrap_or(0),
            wait_ms: self.duration("stage.wait", file.get_ref().wait.clone())?,
            freeze: freeze.collect::<Result<_>>()?,
            publish: file.get_ref().publish.clone().map(Spanned::into_inner),
            publish_ms: self
                .duration("stage.publish-time", file.get_ref().publish_time.clone())?
                .unwrap_or(PUBLISH_MS),
        })
    }

    /// Its own name, or the usual one of its place.
    fn stage_name(&self, file: &Spanned<StageFile>, at: usize) -> Result<String> {
        let Some(name) = &file.get_ref().name else {
            return STAGE_NAMES.get(at).map(|name| (*name).to_owned()).ok_or_else(|| {
                let why = Error::invalid("a stage beyond the fifth has no usual name")
                    .hint("give it one with `name = \"…\"`");
                self.at(file.span(), "stage", &why)
            });
        };
        let text = self.name("stage.name", name)?;
        let why = match text.as_str() {
            "reality" => "`reality` is the project itself, and no name for a stage".to_owned(),
            long if long.len() > NAME_BYTES_MAX => {
                format!("it is longer than {NAME_BYTES_MAX} characters")
            }
            _ => return Ok(text),
        };
        let why =
            Error::invalid(why).hint(format!("the usual names are {}", STAGE_NAMES.join(", ")));
        Err(self.at(name.span(), "stage.name", &why))
    }

    fn kind(&self, file: &Spanned<StageFile>, root: &Path) -> Result<StageKind> {
        match (&file.get_ref().directory, &file.get_ref().git) {
            (None, None) => Ok(StageKind::Virtual),
            (Some(directory), None) => {
                let path = lexical(&root.join(directory.get_ref()));
                if path == root {
                    return Ok(StageKind::Reality);
                }
                Ok(StageKind::Directory(path.to_string_lossy().into_owned()))
            }
            (None, Some(branch)) => {
                // As in `git:staging`, which is how a stage of this kind is shown.
                let name = branch.get_ref().trim_start_matches("git:").trim();
                refuse_no_branch(name)
                    .map_err(|error| self.at(branch.span(), "stage.git", &error))?;
                Ok(StageKind::Git(name.to_owned()))
            }
            (Some(_), Some(branch)) => {
                let why = Error::invalid("a stage is a directory or a git branch, not both")
                    .hint("leave one out, or make two stages of it");
                Err(self.at(branch.span(), "stage.git", &why))
            }
        }
    }

    /// The named checks; without a word about them, all that there are.
    fn checks_of(&self, file: &Spanned<StageFile>, known: &[Check]) -> Result<Vec<Check>> {
        let Some(names) = &file.get_ref().checks else { return Ok(known.to_vec()) };
        let find = |name: &Spanned<String>| {
            known.iter().find(|check| check.name == *name.get_ref()).cloned().ok_or_else(|| {
                let names: Vec<&str> = known.iter().map(|check| check.name.as_str()).collect();
                let hint = match names.is_empty() {
                    true => "there are none: write one as [[check]]".to_owned(),
                    false => format!("there are: {}", names.join(", ")),
                };
                let why = Error::invalid(format!("there is no check `{}`", name.get_ref()));
                self.at(name.span(), "stage.checks", &why.hint(hint))
            })
        };
        names.iter().map(find).collect()
    }

    /// Whether a stage can follow those before it.
    fn fits(
        &self,
        file: &Spanned<StageFile>,
        stage: &Stage,
        before: &[Stage],
        root: &Path,
    ) -> Result<()> {
        if let Some(twin) = before.iter().find(|other| other.name == stage.name) {
            let why = Error::invalid(format!("there is another stage `{}`", twin.name))
                .hint("give every stage a name of its own");
            return Err(self.at(file.span(), "stage.name", &why));
        }
        if let Some(last) = before.last().filter(|last| last.kind == StageKind::Reality) {
            let why =
                format!("`{}` follows `{}`, which is the project itself", stage.name, last.name);
            let why = Error::invalid(why).hint("the project's own directory is the last stage");
            return Err(self.at(file.span(), "stage", &why));
        }
        let places = before.iter().map(|other| (other.name.as_str(), &other.kind));
        let project = [("reality", &StageKind::Reality)];
        for (name, other) in places.chain(project.into_iter().filter(|_| !is_reality(stage))) {
            if overlap(&stage.kind, other, root) {
                let why = format!(
                    "`{}` writes where `{name}` does: the line would run in a cycle",
                    stage.name
                );
                let why = Error::invalid(why).hint("give every stage a place of its own");
                return Err(self.at(file.span(), "stage", &why));
            }
        }
        Ok(())
    }
}

fn is_reality(stage: &Stage) -> bool {
    stage.kind == StageKind::Reality
}

/// Whether two stages would write to the same place.
fn overlap(one: &StageKind, other: &StageKind, root: &Path) -> bool {
    let directory = |kind: &StageKind| match kind {
        StageKind::Reality => Some(root.to_path_buf()),
        StageKind::Directory(path) => Some(PathBuf::from(path)),
        StageKind::Virtual | StageKind::Git(_) => None,
    };
    match (one, other) {
        (StageKind::Git(one), StageKind::Git(other)) => one == other,
        _ => match (directory(one), directory(other)) {
            (Some(one), Some(other)) => one.starts_with(&other) || other.starts_with(&one),
            _ => false,
        },
    }
}

/// A path without `.` and `..`; what it names need not exist yet.
fn lexical(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    whole
}

impl Config {
    /// The project's stages; `None` where there is only its directory.
    pub fn line(&self) -> Option<Line> {
        self.sources.iter().find_map(|source| source.line.clone())
    }

    /// Each stage, for `fractal config show`.
    pub(super) fn stage_settings(&self) -> Vec<Setting> {
        let Some(source) = self.sources.iter().find(|source| source.line.is_some()) else {
            return Vec::new();
        };
        let origin = source.path.display().to_string();
        let stages = source.line.iter().flat_map(|line| &line.stages);
        let setting = |stage: &Stage| Setting {
            name: "stage".to_owned(),
            value: stage_text(stage),
            origin: origin.clone(),
        };
        stages.map(setting).collect()
    }
}

fn stage_text(stage: &Stage) -> String {
    let mut words = vec![format!("{}: {}", stage.name, kind_text(&stage.kind))];
    if !stage.checks.is_empty() {
        let names: Vec<&str> = stage.checks.iter().map(|check| check.name.as_str()).collect();
        words.push(format!("checks {}", names.join(" ")));
    }
    if stage.approve > 0 {
        words.push(format!("approve {}", stage.approve));
    }
    words.extend(stage.wait_ms.map(|ms| format!("wait {}", format_duration_ms(ms))));
    words.extend(stage.freeze.iter().map(|window| format!("freeze {window}")));
    words.extend(stage.publish.iter().map(|command| format!("publish {command}")));
    if stage.publish_ms != PUBLISH_MS {
        words.push(format!("publish-time {}", format_duration_ms(stage.publish_ms)));
    }
    words.join(", ")
}

/// `virtual`, `reality`, a path, or `git:BRANCH`.
fn kind_text(kind: &StageKind) -> String {
    match kind {
        StageKind::Virtual => "virtual".to_owned(),
        StageKind::Reality => "reality".to_owned(),
        StageKind::Directory(path) => path.clone(),
        StageKind::Git(branch) => format!("git:{branch}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    const TEST: &str = "[[check]]\nname = \"test\"\ncommand = \"true\"\n";

    #[test]
    fn a_line_is_read_in_its_order() {
        let text = format!(
            "{TEST}[[check]]\nname = \"smoke\"\ncommand = \"true\"\n\
             [[stage]]\n[[stage]]\nchecks = []\n\
             [[stage]]\nname = \"uat\"\nchecks = [\"smoke\"]\nwait = \"10m\"\n\
             [[stage]]\ngit = \"git:staging\"\napprove = 2\n\
             [[stage]]\ndirectory = \"../live\"\nfreeze = [\"22:00-06:00\"]\npublish = \"make ship\"\n\
             [[stage]]\nname = \"here\"\ndirectory = \".\"\n"
        );
        let config = read(&text).expect("it is valid");
        let line = config.line().expect("it has stages");
        assert_eq!(line.names(), "verified, dev, uat, staging, production, here");
        assert_eq!(line.root, Path::new("/p"));
        let kinds: Vec<String> = line.stages.iter().map(|stage| kind_text(&stage.kind)).collect();
        assert_eq!(kinds, ["virtual", "virtual", "virtual", "git:staging", "/live", "reality"]);
        let checks = |at: usize| line.stages[at].checks.len();
        assert_eq!((checks(0), checks(1), checks(2)), (2, 0, 1), "all, none, the named one");
        assert_eq!((line.stages[2].wait_ms, line.stages[3].approve), (Some(600_000), 2));
        let shown = config.settings().expect("it is valid");
        let stages: Vec<&str> =
            shown.iter().filter(|s| s.name == "stage").map(|s| s.value.as_str()).collect();
        assert_eq!(stages[2], "uat: virtual, checks smoke, wait 10 minutes");
        assert_eq!(stages[1], "dev: virtual");
        assert!(read("net = \"none\"\n").expect("it is valid").line().is_none());
    }

    #[test]
    fn mistakes_name_file_line_and_what_is_allowed() {
        let check = |text: &str, place: &str, words: &str| {
            let error = read(text).expect_err(text);
            let all = format!("{error} {}", error.hint.clone().unwrap_or_default());
            assert!(error.message.starts_with(&format!("/p/fractal.toml:{place}: ")), "{error}");
            assert!(all.contains(words), "{all}");
        };
        check("[[stage]]\nafter = \"dev\"\n", "2", "expected one of `name`, `directory`, `git`");
        check(&format!("{TEST}[[stage]]\nchecks = [\"tset\"]\n"), "5", "there are: test");
        check("[[stage]]\nchecks = [\"test\"]\n", "2", "write one as [[check]]");
        check("[[stage]]\n[[stage]]\nwait = \"5 apples\"\n", "3", "ms, s, m, h or d");
        check("[[stage]]\nwait = \"5m\"\n", "2", "no stage before the first");
        check("[[stage]]\nfreeze = [\n\"friday\"]\n", "3", "fri 16:00-mon 08:00");
        check("[[stage]]\napprove = 0\n", "2", "between 1 and 100");
        check("[[stage]]\napprove = \"two\"\n", "2", "expected u32");
        check("[[stage]]\nname = \"\"\n", "2", "letters, digits");
        check("[[stage]]\nname = \"reality\"\n", "2", "verified, dev, tested, staging");
        check("[[stage]]\nname = \"a\"\n[[stage]]\nname = \"a\"\n", "3", "another stage `a`");
        check("[[stage]]\npublish = \" \"\n", "2", "no command");
        check("[[stage]]\npublish = \"x\"\npublish-time = \"0s\"\n", "3", "not above zero");
        check("[[stage]]\npublish-time = \"5m\"\n", "2", "no `publish`");
        check("[[stage]]\ngit = \"b\"\ndirectory = \"/d\"\n", "2", "not both");
        check("[[stage]]\ngit = \"\"\n", "2", "no name for a branch");
        check("[[stage]]\n[[stage]]\ngit = \"git:bad..name\"\n", "3", "words joined by `/`");
        check("[[stage]]\ngit = \"b\"\n[[stage]]\ngit = \"b\"\n", "3", "in a cycle");
        check("[[stage]]\ndirectory = \"/d\"\n[[stage]]\ndirectory = \"/d/e\"\n", "3", "cycle");
        check("[[stage]]\ndirectory = \"out\"\n", "1", "where `reality` does");
        check("[[stage]]\ndirectory = \".\"\n[[stage]]\nname = \"b\"\n", "3", "the last stage");
    }

    #[test]
    fn stages_belong_to_a_project() {
        let path = PathBuf::from("/home/you/.config/fractal/config.toml");
        let error = super::super::Source::read(path, "[[stage]]\nname = \"a\"\n");
        assert!(error.expect_err("it is no project").message.contains("belong to a project"));
    }
}
