//! From a question to an answer.

use super::fuse::{Evidence, State, mix, pull};
use super::{LIMIT, LIMIT_MAX, Mix, words};
use crate::catalog::Catalog;
use crate::graph::GraphStore;
use crate::record::OVERRIDING;
use crate::{IndexError, Result};
use fractal_model::{Find, FindReply, Hit, Scores};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::collections::{BTreeMap, BTreeSet};

/// What is looked at more closely, of the best by words and by meaning each.
const CANDIDATES: usize = 200;
/// Whose relations are looked at.
const WELL_PLACED: usize = 20;
/// More relations of one record say nothing.
const RELATED_MAX: usize = 200;

/// What can be asked.
pub(crate) struct Sources<'a> {
    pub catalog: &'a Catalog,
    pub graph: &'a dyn GraphStore,
    /// None without a model.
    pub meaning: Option<&'a dyn Meaning>,
    /// Why something is not there.
    pub without: Vec<String>,
}

/// How near records are to the question in meaning.
pub(crate) trait Meaning {
    /// The nearest, best first, of those whose number passes.
    fn nearest(&self, limit: usize, passes: &dyn Fn(i64) -> bool) -> Result<Vec<(i64, f64)>>;
    /// How near these are, where that is known.
    fn of(&self, nums: &[i64]) -> Result<Vec<(i64, f64)>>;
}

/// One record on its way into the answer.
#[derive(Default)]
struct Found {
    evidence: Evidence,
    base: f64,
    graph: f64,
    related: Option<String>,
}

pub(crate) fn search(
    sources: &Sources<'_>,
    question: &Find,
    weights: Mix,
    now_ms: u64,
) -> Result<FindReply> {
    let expression = words::expression(&question.text);
    let Some(expression) = expression else {
        return Err(IndexError::Question(
            "the question has no words in it: ask for what you would expect in the answer".into(),
        ));
    };
    let filter = Filter::of(question);
    let passing = filter.passing(sources.catalog)?;
    let passes = |num: i64| passing.as_ref().is_none_or(|nums| nums.contains(&num));
    let mut found = by_words(sources.catalog, &expression, &filter)?;
    let mut without = sources.without.clone();
    let mut used = vec!["text".to_owned()];
    let near = match sources.meaning.map(|meaning| by_meaning(meaning, &mut found, &passes)) {
        None => false,
        Some(Ok(())) => true,
        // What is down must not keep anybody from what is here.
        Some(Err(error)) => {
            without.push(format!("meaning: {error}"));
            false
        }
    };
    if near {
        used.push("meaning".to_owned());
    }
    let evidence = found.iter().map(|(num, it)| (*num, it.evidence)).collect();
    for (num, score) in mix(&evidence, weights, near) {
        found.entry(num).or_default().base = score;
    }
    let keys = keys(sources.catalog, found.keys().copied())?;
    match by_relation(sources, &mut found, &keys, weights.graph, &passes) {
        Ok(()) => used.push("graph".to_owned()),
        Err(error) => without.push(format!("graph: {error}")),
    }
    let best_words = found.values().map(|it| it.evidence.words).fold(0.0, f64::max);
    let mut hits = Vec::new();
    for (num, found) in &found {
        hits.extend(hit(sources.catalog, *num, found, best_words, now_ms)?.map(|hit| (*num, hit)));
    }
    hits.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score).then_with(|| a.key.cmp(&b.key)));
    hits.truncate(question.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX) as usize);
    for (num, hit) in &mut hits {
        hit.snippet = snippet(sources.catalog, *num, &expression)?;
    }
    let records = sources
        .catalog
        .ask(|conn| conn.query_row("SELECT COUNT(*) FROM files", [], |row| row.get(0)))?;
    let hits = hits.into_iter().map(|(_, hit)| hit).collect();
    Ok(FindReply { hits, records, used, without })
}

/// The part of a question that is no matter of degree.
struct Filter {
    sql: String,
    values: Vec<Value>,
}

impl Filter {
    fn of(question: &Find) -> Filter {
        let mut filter = Filter { sql: String::new(), values: Vec::new() };
        let text = |text: &str| Value::Text(text.to_lowercase());
        if !question.kinds.is_empty() {
            let marks = vec!["?"; question.kinds.len()].join(", ");
            let kinds = question.kinds.iter().map(|kind| text(kind)).collect();
            filter.add(&format!("lower(kind) IN ({marks})"), kinds);
        }
        for tag in &question.tags {
            let has = "EXISTS (SELECT 1 FROM json_each(tags) WHERE lower(value) = ?)";
            filter.add(has, vec![text(tag)]);
        }
        if let Some(outcome) = &question.outcome {
            filter.add("lower(outcome) = ?", vec![text(outcome)]);
        }
        if let Some(sandbox) = &question.sandbox {
            filter.add("sandbox = ?", vec![Value::Text(sandbox.clone())]);
        }
        let time = |ms: u64| vec![Value::Integer(i64::try_from(ms).unwrap_or(i64::MAX))];
        if let Some(since) = question.since_ms {
            filter.add("at_ms >= ?", time(since));
        }
        if let Some(until) = question.until_ms {
            filter.add("at_ms < ?", time(until));
        }
        filter
    }

    fn add(&mut self, condition: &str, values: Vec<Value>) {
        self.sql += if self.sql.is_empty() { "" } else { " AND " };
        self.sql += condition;
        self.values.extend(values);
    }

    /// The records that pass; none where all do.
    fn passing(&self, catalog: &Catalog) -> Result<Option<BTreeSet<i64>>> {
        if self.sql.is_empty() {
            return Ok(None);
        }
        let sql = format!("SELECT num FROM files WHERE {}", self.sql);
        let nums = catalog.ask(|conn| {
            let mut rows = conn.prepare_cached(&sql)?;
            rows.query_map(params_from_iter(&self.values), |row| row.get(0))?.collect()
        })?;
        Ok(Some(nums))
    }
}

/// The records with the best words. Those that are as good as the last one come
/// along: which of them were first is an accident. All that have any of the words
/// are weighed, and choosing here costs less than having all of them sorted.
fn by_words(catalog: &Catalog, expression: &str, filter: &Filter) -> Result<BTreeMap<i64, Found>> {
    let only = match filter.sql.as_str() {
        "" => String::new(),
        sql => format!(" AND rowid IN (SELECT num FROM files WHERE {sql})"),
    };
    let sql =
        format!("SELECT rowid, -bm25(words, 4.0, 2.0, 1.0) FROM words WHERE words MATCH ?{only}");
    let mut values = vec![Value::Text(expression.to_owned())];
    values.extend(filter.values.iter().cloned());
    let mut scored: Vec<(i64, f64)> = catalog.ask(|conn| {
        let mut rows = conn.prepare_cached(&sql)?;
        let rows =
            rows.query_map(params_from_iter(&values), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    })?;
    if scored.len() > CANDIDATES {
        let (_, (_, last), _) =
            scored.select_nth_unstable_by(CANDIDATES - 1, |a, b| b.1.total_cmp(&a.1));
        let last = *last;
        scored.retain(|(_, score)| *score >= last);
    }
    let found = scored.into_iter().map(|(num, score)| {
        let evidence = Evidence { words: score.max(0.0), ..Evidence::default() };
        (num, Found { evidence, ..Found::default() })
    });
    Ok(found.collect())
}

fn by_meaning(
    meaning: &dyn Meaning,
    found: &mut BTreeMap<i64, Found>,
    passes: &dyn Fn(i64) -> bool,
) -> Result<()> {
    for (num, cosine) in meaning.nearest(CANDIDATES, passes)? {
        found.entry(num).or_default().evidence.cosine = cosine;
    }
    // Those that were found by their words alone have a meaning, too.
    let others: Vec<i64> =
        found.iter().filter(|(_, it)| it.evidence.cosine == 0.0).map(|(num, _)| *num).collect();
    for (num, cosine) in meaning.of(&others)? {
        found.entry(num).or_default().evidence.cosine = cosine;
    }
    Ok(())
}

/// Gives what the best records stand in relation to a part of their score.
fn by_relation(
    sources: &Sources<'_>,
    found: &mut BTreeMap<i64, Found>,
    keys: &BTreeMap<i64, (String, String)>,
    share: f64,
    passes: &dyn Fn(i64) -> bool,
) -> Result<()> {
    let mut best: Vec<(i64, f64)> = found.iter().map(|(num, it)| (*num, it.base)).collect();
    best.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| keys.get(&a.0).cmp(&keys.get(&b.0))));
    best.truncate(WELL_PLACED);
    for (num, score) in best {
        let Some((key, title)) = keys.get(&num) else { continue };
        let mut edges = sources.graph.touching(std::slice::from_ref(key), RELATED_MAX)?;
        edges.sort();
        for edge in edges {
            let (other, way) = match edge.from == *key {
                true => (&edge.to, format!("“{title}” {} this", edge.kind)),
                false => (&edge.from, format!("this {} “{title}”", edge.kind)),
            };
            let gain = share * score * pull(&edge.kind);
            if gain <= 0.0 {
                continue;
            }
            let Some(other) = number(sources.catalog, other)?.filter(|num| passes(*num)) else {
                continue;
            };
            let other = found.entry(other).or_default();
            if gain > other.graph {
                other.graph = gain;
                other.related = Some(way);
            }
        }
    }
    Ok(())
}

pub(crate) fn number(catalog: &Catalog, key: &str) -> Result<Option<i64>> {
    catalog.ask(|conn| {
        let mut rows = conn.prepare_cached("SELECT num FROM files WHERE key = ? LIMIT 1")?;
        let mut rows = rows.query_map([key], |row| row.get(0))?;
        rows.next().transpose()
    })
}

/// Key and title by number.
fn keys(
    catalog: &Catalog,
    nums: impl Iterator<Item = i64>,
) -> Result<BTreeMap<i64, (String, String)>> {
    catalog.ask(|conn| {
        let mut row = conn.prepare_cached("SELECT key, title FROM files WHERE num = ?")?;
        let mut keys = BTreeMap::new();
        for num in nums {
            let mut rows = row.query_map([num], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if let Some(found) = rows.next() {
                keys.insert(num, found?);
            }
        }
        Ok(keys)
    })
}

const ROW: &str = "SELECT key, root, path, kind, title, status, outcome, tags, at_ms, verified, \
    stale_after_ms FROM files WHERE num = ?";

/// A record of the answer without its snippet; none when it is gone meanwhile.
fn hit(
    catalog: &Catalog,
    num: i64,
    found: &Found,
    best_words: f64,
    now_ms: u64,
) -> Result<Option<Hit>> {
    let overridden = is_overridden(catalog, num)?;
    catalog.ask(|conn| {
        let mut row = conn.prepare_cached(ROW)?;
        let mut rows = row.query([num])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let tags: String = row.get(7)?;
        let stale_after: Option<u64> = row.get(10)?;
        let status: String = row.get(5)?;
        let state = State {
            verified: row.get(9)?,
            stale: stale_after.is_some_and(|time| time <= now_ms),
            deprecated: status.eq_ignore_ascii_case("deprecated"),
            overridden,
        };
        let text = if best_words > 0.0 { found.evidence.words / best_words } else { 0.0 };
        let weight = state.weight();
        Ok(Some(Hit {
            key: row.get(0)?,
            root: row.get(1)?,
            path: row.get(2)?,
            file: None,
            kind: row.get(3)?,
            title: row.get(4)?,
            status,
            outcome: row.get(6)?,
            tags: serde_json::from_str(&tags).unwrap_or_default(),
            at_ms: row.get(8)?,
            snippet: String::new(),
            why: why(text, found),
            marks: state.marks(),
            score: (found.base + found.graph) * weight,
            scores: Scores { text, meaning: found.evidence.cosine, graph: found.graph, weight },
        }))
    })
}

fn why(text: f64, found: &Found) -> Vec<String> {
    let mut why = Vec::new();
    if text > 0.0 {
        why.push("words".to_owned());
    }
    if found.evidence.cosine > 0.3 {
        why.push("meaning".to_owned());
    }
    why.extend(found.related.clone());
    why
}

fn is_overridden(catalog: &Catalog, num: i64) -> Result<bool> {
    let [first, second] = OVERRIDING;
    catalog.ask(|conn| {
        let sql = "SELECT EXISTS (SELECT 1 FROM edges WHERE target = ? AND kind IN (?, ?) AND source <> target)";
        conn.prepare_cached(sql)?.query_row((num, first, second), |row| row.get(0))
    })
}

/// The piece of a text with most words of the question, or its beginning.
fn snippet(catalog: &Catalog, num: i64, expression: &str) -> Result<String> {
    catalog.ask(|conn| {
        let sql = "SELECT snippet(words, 2, '⟦', '⟧', ' … ', 32) FROM words \
                   WHERE words MATCH ? AND rowid = ?";
        let mut rows = conn.prepare_cached(sql)?;
        let mut rows = rows.query_map((expression, num), |row| row.get::<_, String>(0))?;
        let text = match rows.next().transpose()? {
            Some(text) if text.contains('⟦') => text,
            _ => beginning(conn, num)?,
        };
        // What only says how a page looks says nothing in one line.
        let is_mark = |word: &&str| word.starts_with("```") || word.chars().all(|c| c == '#');
        Ok(text.split_whitespace().filter(|word| !is_mark(word)).collect::<Vec<_>>().join(" "))
    })
}

fn beginning(conn: &Connection, num: i64) -> rusqlite::Result<String> {
    let sql = "SELECT description, substr(body, 1, 2000) FROM files JOIN words \
               ON words.rowid = files.num WHERE num = ?";
    let (description, body): (String, String) =
        conn.prepare_cached(sql)?.query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if !description.is_empty() {
        return Ok(description);
    }
    let text = body.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text: String = text.flat_map(|line| [line, " "]).collect();
    Ok(text.trim().chars().take(200).collect())
}
