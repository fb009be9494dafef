//! How records stand to each other and to files, packages and sandboxes.
//!
//! An edge leads where its file says: to the record with that id, otherwise to
//! what lies at exactly that path. Nothing is guessed: an edge that leads to
//! nothing, or to an id that two records have, is kept and can be listed.

use crate::bundle;
use crate::record::{Reading, Thing};
use fractal_model::Id;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;

/// One edge as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub kind: String,
    pub target: Target,
    /// As it stands in the file.
    pub raw: String,
    /// None for what follows from where the file lies.
    pub line: Option<u32>,
}

/// Where an edge leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub id: Option<Id>,
    /// From the root.
    pub path: Option<String>,
    /// Something that is no record, as `kind:name`.
    pub thing: Option<String>,
}

/// The edges of the record at this path of its root.
pub(crate) fn of(path: &str, reading: &Reading) -> Vec<Written> {
    let mut edges = Vec::new();
    for relation in &reading.record.relations {
        let thing = relation.thing.as_ref().map(|thing| match thing {
            Thing::File(name) => format!("file:{name}"),
            Thing::Package(name) => format!("package:{name}"),
            Thing::Sandbox(name) => format!("sandbox:{name}"),
        });
        let raw = relation.id.map(|id| id.to_string());
        let raw = raw.or_else(|| relation.path.clone()).or_else(|| thing.clone());
        edges.push(Written {
            kind: relation.kind.clone(),
            target: Target {
                id: relation.id,
                path: relation.path.as_deref().and_then(|target| beneath(path, target)),
                thing,
            },
            raw: raw.unwrap_or_default(),
            line: Some(relation.line),
        });
    }
    edges.extend(reading.links.iter().filter_map(|link| {
        let target = of_link(path, &link.target)?;
        let line = Some(link.line);
        Some(Written { kind: "cites".to_owned(), target, raw: link.target.clone(), line })
    }));
    edges.extend(problem_of(path).map(|problem| Written {
        kind: "part-of".to_owned(),
        raw: problem.clone(),
        target: Target { path: Some(problem), ..Target::default() },
        line: None,
    }));
    edges
}

/// Where a link in a text leads; links within the page lead nowhere.
fn of_link(path: &str, target: &str) -> Option<Target> {
    let has_scheme = target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
    });
    if has_scheme {
        return Some(Target { thing: Some(format!("url:{target}")), ..Target::default() });
    }
    let plain = target.split(['#', '?']).next().unwrap_or_default();
    if plain.is_empty() {
        return None;
    }
    let plain = percent_decoded(plain);
    Some(Target { path: beneath(path, &plain), ..Target::default() })
}

/// A path relative to a file (or, with a slash in front, to the bundle that it
/// lies in) as one from the root; none where it would leave the root.
fn beneath(file: &str, target: &str) -> Option<String> {
    let base = match target.starts_with('/') {
        true => bundle_of(file).unwrap_or_default(),
        false => file.rsplit_once('/').map_or("", |(dir, _)| dir),
    };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The innermost bundle that a file lies in.
fn bundle_of(file: &str) -> Option<&str> {
    let (dir, _) = file.rsplit_once('/')?;
    let end = dir.rfind(bundle::SUFFIX)? + bundle::SUFFIX.len();
    // The suffix must end a name.
    match dir[end..].starts_with('/') || end == dir.len() {
        true => Some(&dir[..end]),
        false => None,
    }
}

/// The problem that a record is about: that of its bundle, and for a bundle's
/// own problem that of the bundle above.
fn problem_of(file: &str) -> Option<String> {
    let inner = bundle_of(file)?;
    let own = format!("{inner}/problem.md");
    if own != file {
        return Some(own);
    }
    Some(format!("{}/problem.md", bundle_of(inner)?))
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Looks up where edges lead: those of these records, and all that name one of
/// these ids or paths. Answers with the other records whose edges lead elsewhere
/// now: what they stand in relation to changed, though their files did not.
pub(crate) fn resolve(
    conn: &Connection,
    nums: &[i64],
    ids: &BTreeSet<String>,
    paths: &[(String, String)],
) -> rusqlite::Result<BTreeSet<i64>> {
    // By id where one record has it; by path where no id is given, or nobody has it.
    const TARGET: &str = "COALESCE( \
        (SELECT MIN(num) FROM files WHERE id = to_id GROUP BY id HAVING COUNT(*) = 1), \
        (SELECT num FROM files WHERE root = to_root AND path = to_path \
            AND NOT EXISTS (SELECT 1 FROM files WHERE id = to_id)))";
    let mut of_source =
        conn.prepare(&format!("UPDATE edges SET target = {TARGET} WHERE source = ?"))?;
    for num in nums {
        of_source.execute([num])?;
    }
    let others = |which: &str| {
        conn.prepare(&format!(
            "UPDATE edges SET target = {TARGET} WHERE {which} AND target IS NOT {TARGET} RETURNING source"
        ))
    };
    let mut moved = BTreeSet::new();
    let mut to_id = others("to_id = ?")?;
    for id in ids {
        let sources = to_id.query_map([id], |row| row.get(0))?;
        moved.extend(sources.collect::<rusqlite::Result<Vec<i64>>>()?);
    }
    let mut to_path = others("to_root = ? AND to_path = ?")?;
    for (root, path) in paths {
        let sources = to_path.query_map(params![root, path], |row| row.get(0))?;
        moved.extend(sources.collect::<rusqlite::Result<Vec<i64>>>()?);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_where_they_say_and_never_out() {
        let check = |file: &str, link: &str, path: Option<&str>| {
            assert_eq!(of_link(file, link).and_then(|it| it.path).as_deref(), path, "{link}");
        };
        let file = "sandbox/a_skunkworks/insights/x.md";
        check(file, "y.md", Some("sandbox/a_skunkworks/insights/y.md"));
        check(file, "../problem.md#top", Some("sandbox/a_skunkworks/problem.md"));
        check(file, "/failures/f%20g.md", Some("sandbox/a_skunkworks/failures/f g.md"));
        check(file, "./a/../b.md?x", Some("sandbox/a_skunkworks/insights/b.md"));
        check(file, "../../../../etc/passwd", None);
        check(file, "https://example.org/x.md", None);
        check("x.md", "/y.md", Some("y.md"));
        check("x.md", "100%.md", Some("100%.md"));
        assert_eq!(of_link(file, "#here"), None);
        assert_eq!(
            of_link(file, "mailto:a@b").and_then(|it| it.thing).as_deref(),
            Some("url:mailto:a@b")
        );
    }

    #[test]
    fn a_record_is_part_of_the_nearest_problem() {
        let check = |file: &str, problem: Option<&str>| {
            assert_eq!(problem_of(file).as_deref(), problem, "{file}");
        };
        check("s/a_skunkworks/insights/x.md", Some("s/a_skunkworks/problem.md"));
        check("s/a_skunkworks/problem.md", None);
        check("s/a_skunkworks/b_skunkworks/problem.md", Some("s/a_skunkworks/problem.md"));
        check("s/a_skunkworks/b_skunkworks/x/y.md", Some("s/a_skunkworks/b_skunkworks/problem.md"));
        check("notes/x.md", None);
        check("s/a_skunkworksx/y.md", None);
    }
}
