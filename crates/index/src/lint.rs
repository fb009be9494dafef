//! What is wrong in records, and where an index differs from its files.

use crate::index::Index;
use crate::walk::{Ground, Stamp, walk};
use crate::{Result, record};
use fractal_model::{LintFault, LintReply};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

impl Index {
    /// Everything that is not as it should be in records as they were last
    /// taken over: heads that cannot be read, relations that lead nowhere, ids
    /// that several records have.
    pub fn lint(&self) -> Result<LintReply> {
        let mut faults = self.faults()?;
        faults.extend(self.unresolved()?);
        faults.extend(self.twins()?);
        faults.sort();
        faults.dedup();
        Ok(LintReply { faults, files: self.counts()?.records })
    }

    fn faults(&self) -> Result<Vec<LintFault>> {
        self.catalog.ask(|conn| {
            let sql = "SELECT root, path, line, what FROM faults JOIN files USING (num)";
            conn.prepare(sql)?
                .query_map([], |row| {
                    let (root, path) = (row.get(0)?, row.get(1)?);
                    Ok(LintFault { root, path, line: row.get(2)?, what: row.get(3)? })
                })?
                .collect()
        })
    }

    /// Relations and links to records that are not there. A link to another
    /// file that exists is fine.
    fn unresolved(&self) -> Result<Vec<LintFault>> {
        struct Loose {
            fault: LintFault,
            to: Option<String>,
            twins: bool,
        }
        let loose: Vec<Loose> = self.catalog.ask(|conn| {
            let sql = "SELECT files.root, files.path, edges.line, edges.kind, edges.raw, to_path, \
                       (SELECT COUNT(*) FROM files AS b WHERE b.id = to_id) > 1 \
                       FROM edges JOIN files ON files.num = edges.source \
                       WHERE target IS NULL AND thing IS NULL AND line IS NOT NULL";
            conn.prepare(sql)?
                .query_map([], |row| {
                    let (kind, raw): (String, String) = (row.get(3)?, row.get(4)?);
                    let what = format!("{kind} `{}` leads to no record", raw.escape_debug());
                    let fault =
                        LintFault { root: row.get(0)?, path: row.get(1)?, line: row.get(2)?, what };
                    Ok(Loose { fault, to: row.get(5)?, twins: row.get(6)? })
                })?
                .collect()
        })?;
        let roots: BTreeMap<&str, &Path> =
            self.roots().iter().map(|root| (root.name.as_str(), root.path.as_path())).collect();
        let is_there = |loose: &Loose| {
            let root = roots.get(loose.fault.root.as_str());
            let to = root.zip(loose.to.as_ref()).map(|(root, to)| root.join(to));
            to.is_some_and(|to| fs::symlink_metadata(to).is_ok())
        };
        Ok(loose
            .into_iter()
            .filter(|loose| !is_there(loose))
            .map(|mut loose| {
                if loose.twins {
                    loose.fault.what += ": several have this id, so it leads to none of them";
                }
                loose.fault
            })
            .collect())
    }

    fn twins(&self) -> Result<Vec<LintFault>> {
        let twins: Vec<(String, String, String)> = self.catalog.ask(|conn| {
            let sql = "SELECT id, root, path FROM files WHERE id IN \
                       (SELECT id FROM files WHERE id IS NOT NULL GROUP BY id HAVING COUNT(*) > 1) \
                       ORDER BY id, root, path";
            conn.prepare(sql)?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect()
        })?;
        Ok(twins
            .iter()
            .map(|(id, root, path)| {
                let others =
                    twins.iter().filter(|it| it.0 == *id && (&it.1, &it.2) != (root, path));
                let others: Vec<String> =
                    others.map(|(_, root, path)| format!("{root}:{path}")).collect();
                LintFault {
                    root: root.clone(),
                    path: path.clone(),
                    line: None,
                    what: format!(
                        "its id {id} is also that of {}: give the copy an id of its own, \
                         or remove its line `id`",
                        others.join(", ")
                    ),
                }
            })
            .collect())
    }

    /// Where the index differs from its files, which stay as they are; nothing
    /// is changed. An empty list says that it answers what the files say.
    pub fn verify(&self) -> Result<LintReply> {
        let mut reply = LintReply::default();
        let mut say = |root: &str, path: &str, what: &str| {
            let (root, path, what) = (root.to_owned(), path.to_owned(), what.to_owned());
            reply.faults.push(LintFault { root, path, line: None, what });
        };
        let mut files = 0;
        for root in self.roots() {
            let mut known = self.known(&root.name)?;
            let ground = Ground::open(root)?;
            for seen in walk(root)?.files {
                files += 1;
                let Some((stamp, print)) = known.remove(&seen.path) else {
                    say(&root.name, &seen.path, "it is not in the index");
                    continue;
                };
                let is_settled = stamp != Stamp::default().to_text();
                if is_settled && stamp != seen.stamp.to_text() {
                    say(&root.name, &seen.path, "it changed since it was taken over");
                    continue;
                }
                if ground.as_ref().is_some_and(|it| reads_otherwise(it, &seen.path, &print)) {
                    say(&root.name, &seen.path, "the index says something else than the file");
                }
            }
            for path in known.keys() {
                say(&root.name, path, "it is in the index and gone");
            }
        }
        reply.files = files;
        Ok(reply)
    }

    fn known(&self, root: &str) -> Result<BTreeMap<String, (String, String)>> {
        self.catalog.ask(|conn| {
            let sql = "SELECT path, stamp, print FROM files WHERE root = ?";
            conn.prepare_cached(sql)?
                .query_map([root], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
                .collect()
        })
    }
}

/// Whether a file says something else than what was found of it.
fn reads_otherwise(ground: &Ground<'_>, path: &str, print: &str) -> bool {
    let Ok(file) = ground.read(path) else { return false };
    let reading = record::read(&file.bytes, path.rsplit('/').next().unwrap_or(path));
    let body = String::from_utf8_lossy(&file.bytes[reading.body.clone()]);
    crate::sync::print_of_record(&reading.record, &body) != print
}
