//! `skunk extract`: what works, taken out of an experiment to be used again.
//!
//! The pattern is a record like others: it holds the way that was found and
//! leads to everything it was learned from. Chosen files lie beside it; with a
//! template, new sandboxes have them at `/pattern/NAME`.

use super::new::cannot;
use super::{own_records, problem, write_down};
use crate::config::{Config, FILE_NAME};
use crate::knowledge::experiment::{self, Experiment};
use crate::knowledge::{PROJECT, failed};
use crate::verbs::note::{stamp, suffix};
use crate::{Caller, Engine, RunIo};
use fractal_index::record::{Draft, Kind, Record, Relation, Value, read};
use fractal_model::{
    Code, Error, Extract, ExtractReply, Id, Learning, Name, NoteReply, Promote, PromoteReply,
    Result, Run, TypedPath, format_iso_ms,
};
use fractal_store::new_id;
use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};

const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 256 << 20;
const DEPTH_MAX: usize = 64;
/// Of each kind so many records stand in a pattern's text; it leads to all.
const TOLD_MAX: usize = 50;
/// What is shown of one record's text.
const SHOWN_BYTES: usize = 4000;
/// Files that hold an environment, in which a pattern works.
const ENVIRONMENT: [&str; 9] = [
    "pyproject.toml",
    "uv.lock",
    ".python-version",
    "requirements.txt",
    "Cargo.toml",
    "Cargo.lock",
    "package.json",
    "package-lock.json",
    "rust-toolchain.toml",
];

pub fn extract(engine: &Engine, caller: &Caller, asked: &Extract) -> Result<ExtractReply> {
    let experiment = experiment::named(caller, &asked.name)?;
    let title = match &asked.title {
        Some(title) => super::checked_title(title)?.to_owned(),
        None => problem(&experiment)?.record.title,
    };
    let chosen = choose(&experiment, &asked.files)?;
    check_into(&chosen, asked.into.as_deref())?;
    let settings = asked
        .template
        .as_deref()
        .map(|name| new_template(caller, &experiment, name))
        .transpose()?;
    let index = engine.index(caller)?;
    let journey = own_records(&index, &experiment)?;
    let mut draft = draft(caller, &experiment, &title, &journey, asked)?;
    draft.extra = environment(&experiment, asked);
    let file = experiment.bundle.write(&draft, &suffix()).map_err(failed)?;
    let files_dir = file.with_extension("");
    let done = copy(experiment.bundle.dir(), &chosen, &files_dir)
        .and_then(|()| settings.map_or(Ok(()), |it| it.write(&experiment, &files_dir)));
    if let Err(error) = done {
        // Without its files a pattern is of no use.
        let _ = fs::remove_file(&file);
        super::discard(&files_dir);
        return Err(error);
    }
    if let Some(id) = draft.record.id {
        // The problem leads to what came of it; a head that cannot be edited
        // is left alone, and the pattern leads back all the same.
        let problem = experiment.bundle.dir().join(fractal_index::bundle::PROBLEM);
        let _ = crate::knowledge::recording::relate(&experiment, &problem, "extracted-to", id);
    }
    let _ = experiment.bundle.refresh();
    write_down(engine, caller, "extract", &experiment)?;
    let path = experiment.path_of(&file);
    let pattern = NoteReply {
        noted: draft.record.id.unwrap_or_else(new_id),
        kind: draft.record.kind.name().to_owned(),
        title,
        root: PROJECT.to_owned(),
        path,
        file: Some(file.to_string_lossy().into_owned()),
    };
    let promotion = match &asked.into {
        // The pattern is a record of its own, whatever becomes of the files.
        Some(into) => {
            Some(promote(engine, caller, &experiment, &chosen, into).map_err(|error| {
                let why = error.hint.clone().map(|hint| format!("{hint}; ")).unwrap_or_default();
                error.hint(format!("{why}the pattern is written: {}", pattern.path))
            })?)
        }
        None => None,
    };
    let files = chosen.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    Ok(ExtractReply { pattern, files, template: asked.template.clone(), promotion })
}

/// Brings the files into a directory of the project as any other change comes
/// there: made in a sandbox, weighed, checked, with an undo.
fn promote(
    engine: &Engine,
    caller: &Caller,
    experiment: &Experiment,
    chosen: &[PathBuf],
    into: &str,
) -> Result<PromoteReply> {
    const COPY: &str = "from=$1 into=$2; shift 2; for file; do \
        mkdir -p \"$into/$(dirname \"$file\")\" && cp -p \"$from/$file\" \"$into/$file\" || exit; done";
    let dir = experiment.project.join(into);
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| Error::invalid(format!("{} is not UTF-8", path.display())))
    };
    let mut command: Vec<String> = ["sh", "-c", COPY, "sh"].map(str::to_owned).into();
    // As seen from the project: a copy of it may lie elsewhere.
    command.extend([experiment.path(), into.to_owned()]);
    for path in chosen {
        command.push(text(path)?);
    }
    let name = format!("extract-{}", suffix());
    let caller = Caller { directory: experiment.project.clone(), ..caller.clone() };
    let run = Run {
        command,
        name: Some(name.clone()),
        template: Some("clone".to_owned()),
        ..Run::default()
    };
    let copied = crate::verbs::run::run(engine, &caller, run, RunIo::captured())?;
    let promoted = if copied.exit == 0 {
        let asked = Promote {
            sandbox: Some(name.clone()),
            only: vec![TypedPath::from(text(&dir)?.as_str())],
            experiment: Some(experiment.name.clone()),
            ..Promote::default()
        };
        engine.promote_recorded(&caller, &asked)
    } else {
        Err(Error::new(
            Code::Failed,
            format!("the files cannot be copied: {}", copied.stderr.trim()),
        ))
    };
    crate::verbs::drop::drop(engine, &caller, &[name], true)?;
    promoted
}

/// Refuses a directory that is not below the project, or nothing to bring there.
fn check_into(chosen: &[PathBuf], into: Option<&str>) -> Result<()> {
    let Some(into) = into else { return Ok(()) };
    let is_plain = Path::new(into).components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || into.is_empty() {
        return Err(Error::invalid(format!(
            "`{}` is no directory of the project",
            into.escape_debug()
        ))
        .hint("name one as seen from the project, as in `--into src/pool`"));
    }
    if chosen.is_empty() {
        return Err(
            Error::invalid("there is nothing to promote").hint("name files: `--files PATH`")
        );
    }
    Ok(())
}

/// The files of an experiment that were asked for, those of directories one by
/// one. Nothing is followed and nothing lies outside.
fn choose(experiment: &Experiment, asked: &[String]) -> Result<Vec<PathBuf>> {
    let root = experiment.bundle.dir();
    let mut chosen = Vec::new();
    let mut bytes = 0;
    for name in asked {
        let path = Path::new(name.trim_start_matches("./"));
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || name.is_empty() {
            return Err(Error::invalid(format!(
                "`{}` does not lie in the experiment",
                name.escape_debug()
            ))
            .hint(format!("name files as seen from {}", experiment.path())));
        }
        take(root, path, 0, &mut chosen, &mut bytes)?;
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

fn take(
    root: &Path,
    path: &Path,
    depth: usize,
    chosen: &mut Vec<PathBuf>,
    bytes: &mut u64,
) -> Result<()> {
    let full = root.join(path);
    let meta = full.symlink_metadata().map_err(|error| cannot("find", &full, &error))?;
    // A link on the way would lead elsewhere.
    let way = path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
    if way.map(|dir| root.join(dir)).any(|dir| dir.is_symlink()) || meta.is_symlink() {
        return Err(Error::invalid(format!("{} is a link, or lies behind one", path.display()))
            .hint("name the file itself"));
    }
    if meta.is_file() {
        *bytes += meta.len();
        if chosen.len() >= FILES_MAX || *bytes > BYTES_MAX {
            return Err(Error::new(
                Code::Limit,
                format!("a pattern holds at most {FILES_MAX} files and {} MiB", BYTES_MAX >> 20),
            )
            .hint("name the files that belong to it, not all of the experiment"));
        }
        chosen.push(path.to_owned());
        return Ok(());
    }
    if !meta.is_dir() || depth > DEPTH_MAX {
        return Err(Error::invalid(format!("{} is neither file nor directory", path.display())));
    }
    let entries = fs::read_dir(&full).map_err(|error| cannot("read", &full, &error))?;
    for entry in entries.flatten() {
        let inner = path.join(entry.file_name());
        // Sockets and links within a directory are left where they are.
        if entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_dir()) {
            take(root, &inner, depth + 1, chosen, bytes)?;
        }
    }
    Ok(())
}

fn copy(root: &Path, chosen: &[PathBuf], to: &Path) -> Result<()> {
    for path in chosen {
        let target = to.join(path);
        let dir = target.parent().unwrap_or(to);
        fs::create_dir_all(dir).map_err(|error| cannot("make", dir, &error))?;
        fs::copy(root.join(path), &target).map_err(|error| cannot("write", &target, &error))?;
    }
    Ok(())
}

/// The pattern's record: what was understood, and what it was learned from.
fn draft(
    caller: &Caller,
    experiment: &Experiment,
    title: &str,
    journey: &[Learning],
    asked: &Extract,
) -> Result<Draft> {
    let mut record = Record::new(Kind::Pattern, title);
    record.id = Some(new_id());
    record.generated = Some(stamp(caller));
    let problem = problem(experiment)?.record;
    record.tags.clone_from(&problem.tags);
    let ids =
        problem.id.into_iter().chain(journey.iter().filter_map(|one| Id::parse(&one.key).ok()));
    let mut seen = std::collections::BTreeSet::new();
    for id in ids.filter(|id| seen.insert(*id)) {
        record.relations.push(Relation {
            kind: "cites".to_owned(),
            id: Some(id),
            path: journey
                .iter()
                .find(|one| one.key == id.as_str())
                .map(|one| from_pattern(experiment, &one.path)),
            thing: None,
            line: 0,
        });
    }
    let mut body = String::new();
    if let Some(insight) = &asked.insight {
        let _ = writeln!(body, "{}\n", insight.trim());
    }
    let _ = writeln!(body, "The problem: {}", problem.title);
    let parts = [
        ("Insights", Kind::Insight, ""),
        ("Decisions", Kind::Decision, ""),
        ("What works", Kind::Experiment, "passed"),
        ("What failed", Kind::Failure, ""),
        ("What was tried in vain", Kind::Experiment, "failed"),
    ];
    for (heading, kind, outcome) in parts {
        tell(&mut body, experiment, journey, heading, &kind, outcome);
    }
    if !asked.files.is_empty() {
        let _ = writeln!(body, "\n## Files\n");
        for file in &asked.files {
            let _ = writeln!(body, "- `{}`", file.replace('`', "'"));
        }
    }
    Ok(Draft::new(record, body))
}

/// Where a record lies as seen from the folder of patterns.
fn from_pattern(experiment: &Experiment, path: &str) -> String {
    let own = format!("{}/", experiment.path());
    format!("../{}", path.strip_prefix(&own).unwrap_or(path))
}

/// The records of one kind, oldest first: with their texts where these are what
/// somebody understood, as a line otherwise.
fn tell(
    body: &mut String,
    experiment: &Experiment,
    journey: &[Learning],
    heading: &str,
    kind: &Kind,
    outcome: &str,
) {
    let is_meant =
        |one: &&Learning| one.kind == kind.name() && (outcome.is_empty() || one.outcome == outcome);
    let all: Vec<&Learning> = journey.iter().filter(is_meant).collect();
    if all.is_empty() {
        return;
    }
    let _ = writeln!(body, "\n## {heading}\n");
    for one in all.iter().take(TOLD_MAX).rev() {
        let when = one.at_ms.map(|ms| format!(" ({:.10})", format_iso_ms(ms))).unwrap_or_default();
        let title = one.title.replace(['[', ']'], "");
        let link = from_pattern(experiment, &one.path).replace(' ', "%20");
        let _ = writeln!(body, "- [{title}]({link}){when}");
        if matches!(kind, Kind::Insight | Kind::Decision)
            && let Some(text) = text_of(experiment, one)
        {
            let _ = writeln!(body, "\n{}\n", indented(&text));
        }
    }
    if all.len() > TOLD_MAX {
        let _ = writeln!(body, "- and {} older ones", all.len() - TOLD_MAX);
    }
}

fn text_of(experiment: &Experiment, one: &Learning) -> Option<String> {
    let path = experiment.project.join(&one.path);
    let (bytes, _) = experiment.bundle.read(&path).ok()?;
    let reading = read(&bytes, "");
    let text = String::from_utf8_lossy(&bytes[reading.body]).trim().to_owned();
    let cut = (0..=SHOWN_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
    (!text.is_empty()).then(|| text[..cut].to_owned())
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("  {line}").trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// In which environment it worked, as keys of the record.
fn environment(experiment: &Experiment, asked: &Extract) -> Vec<(String, Value)> {
    use sha2::{Digest, Sha256};
    let mut extra = Vec::new();
    let mut files = Vec::new();
    for name in ENVIRONMENT {
        let path = experiment.bundle.dir().join(name);
        let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
        if let Some(bytes) = is_file.then(|| fs::read(&path).ok()).flatten() {
            let digest: String =
                Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            files.push((name.to_owned(), Value::Text(format!("sha256:{digest}"))));
        }
    }
    if !files.is_empty() {
        extra.push(("environment".to_owned(), Value::Map(files)));
    }
    if let Some(template) = &asked.template {
        extra.push(("template".to_owned(), Value::from(template.as_str())));
    }
    extra
}

/// A template about to be written into the project's settings.
struct NewTemplate {
    name: Name,
    settings: PathBuf,
    before: String,
}

fn new_template(caller: &Caller, experiment: &Experiment, name: &str) -> Result<NewTemplate> {
    let name = Name::parse(name)?;
    let taken = crate::template::BUILT_IN.contains(&name.as_str())
        || caller.config.template_names().iter().any(|other| other == name.as_str());
    if taken {
        return Err(Error::new(Code::Exists, format!("there is already a template `{name}`"))
            .hint("choose another name: `--template NAME`"));
    }
    let settings = experiment.project.join(FILE_NAME);
    let before = match crate::config::read_regular(&settings) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(cannot("read", &settings, &error)),
    };
    Ok(NewTemplate { name, settings, before })
}

impl NewTemplate {
    /// Adds it to the settings, which stay as they are otherwise.
    fn write(&self, experiment: &Experiment, files: &Path) -> Result<()> {
        let name = self.name.as_str();
        let host = experiment.path_of(files);
        let mounts = match files.is_dir() {
            true => format!(
                "mounts = [{{ at = \"/pattern/{name}\", host = {}, access = \"read\" }}]\n",
                toml::Value::String(host)
            ),
            false => String::new(),
        };
        let gap = if self.before.is_empty() || self.before.ends_with('\n') { "" } else { "\n" };
        let text = format!(
            "{}{gap}\n# Extracted from {}.\n[templates.{}]\n{mounts}env = {{ FRACTAL_PATTERN = \"/pattern/{name}\" }}\n",
            self.before,
            experiment.path().replace(|c: char| c.is_control(), " "),
            toml::Value::String(name.to_owned()),
        );
        Config::check(&self.settings, &text)?;
        write_whole(&self.settings, text.trim_start_matches('\n'))
    }
}

/// Replaces a file at once; its mode stays.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let beside = path.with_file_name(format!(".fractal-{}", suffix()));
    let write = || {
        let mut file = fs::File::create_new(&beside)?;
        if let Ok(meta) = fs::metadata(path) {
            file.set_permissions(meta.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&beside);
        cannot("write", path, &error)
    })
}
