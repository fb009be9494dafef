//! `quality RECORDS QUESTIONS MODEL INDEX`: how well questions with known answers
//! are answered, by words, by meaning and by mixes of both.
//!
//! RECORDS and its `names.tsv` come from `bench/quality/records.py`. Half of the
//! questions, by a hash of their text, chooses the mix; the other half says how
//! good the choice is. Vectors are kept in INDEX, so a second run is short.

use fractal_index::embed::{self, EmbedError, Embedder};
use fractal_index::{Index, Mix, Root, RootKind};
use fractal_model::Find;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

type Done<T> = Result<T, Box<dyn Error>>;

/// What stands further behind counts as not found.
const SEEN: u32 = 20;
/// How far lists go whose ranks are fused.
const DEEP: u32 = 200;
/// What reciprocal ranks are usually damped with.
const RRF_K: f64 = 60.0;

struct Question {
    text: String,
    kind: String,
    answers: BTreeSet<String>,
    is_tuning: bool,
}

/// Keeps what a model said: every question is asked many times here.
struct Remembering {
    model: Box<dyn Embedder>,
    said: Mutex<HashMap<String, Vec<f32>>>,
}

impl Embedder for Remembering {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn dimensions(&self) -> usize {
        self.model.dimensions()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let [text] = texts else { return self.model.embed(texts) };
        let mut said = self.said.lock().expect("nobody panics while holding it");
        if let Some(vector) = said.get(*text) {
            return Ok(vec![vector.clone()]);
        }
        let vectors = self.model.embed(texts)?;
        said.insert((*text).to_owned(), vectors[0].clone());
        Ok(vectors)
    }
}

/// One way to answer, and the ranks that it gives the first right answer.
struct Way {
    name: String,
    ranks: Vec<Option<usize>>,
}

fn main() -> Done<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [records, questions, model, dir] = words.as_slice() else {
        return Err("usage: quality RECORDS QUESTIONS MODEL INDEX".into());
    };
    let names = names(Path::new(records))?;
    let questions = read(Path::new(questions), &names)?;
    let model = Remembering { model: opened(model, Path::new(dir))?, said: Mutex::default() };
    let index = indexed(Path::new(records), &Path::new(dir).join("index"), &model)?;
    println!("{} records, {} questions\n", names.len(), questions.len());
    let ways = ways(&index, &model, &questions)?;
    table("Tuning half", &questions, &ways, |it| it.is_tuning);
    table("Reporting half", &questions, &ways[..FIXED], |it| !it.is_tuning);
    for kind in ["paraphrase", "identifier", "error-message"] {
        let of_kind = |it: &Question| !it.is_tuning && it.kind == kind;
        table(&format!("Reporting half, {kind}"), &questions, &ways[..FIXED], of_kind);
    }
    misses(&questions, &ways[2]);
    Ok(())
}

/// Names of records by their path.
fn names(records: &Path) -> Done<HashMap<String, String>> {
    let text = fs::read_to_string(records.join("names.tsv"))?;
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(lines.map(|(name, path)| (path.to_owned(), name.to_owned())).collect())
}

fn read(path: &Path, names: &HashMap<String, String>) -> Done<Vec<Question>> {
    let known: BTreeSet<&String> = names.values().collect();
    let mut questions = Vec::new();
    for line in fs::read_to_string(path)?.lines() {
        let value: serde_json::Value = serde_json::from_str(line)?;
        let text = value["question"].as_str().ok_or("a question without text")?.to_owned();
        let answers = value["answers"].as_array().ok_or("a question without answers")?;
        let answers: BTreeSet<String> =
            answers.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
        if let Some(unknown) = answers.iter().find(|name| !known.contains(name)) {
            return Err(format!("there is no record {unknown}").into());
        }
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        let is_tuning = Sha256::digest(text.as_bytes())[0] & 1 == 0;
        questions.push(Question { text, kind, answers, is_tuning });
    }
    Ok(questions)
}

/// A model from its directory or, added first, from a wheel.
fn opened(model: &str, dir: &Path) -> Done<Box<dyn Embedder>> {
    let at = Path::new(model);
    if at.is_dir() {
        return Ok(embed::open(at)?);
    }
    Ok(embed::open(&embed::add(at, &dir.join("model"))?.dir)?)
}

fn indexed(records: &Path, dir: &Path, model: &dyn Embedder) -> Done<Index> {
    let root = Root { name: "docs".into(), path: records.into(), kind: RootKind::Project };
    let index = Index::open(dir, vec![root])?;
    index.sync(&mut |_, _| ())?;
    index.embed(model, None, &mut |done, of| {
        if done % 320 == 0 {
            eprintln!("embedded {done} of {of}");
        }
    })?;
    Ok(index)
}

/// Ways that are reported; the grid behind them is for choosing.
const FIXED: usize = 4;

fn ways(index: &Index, model: &dyn Embedder, questions: &[Question]) -> Done<Vec<Way>> {
    let meaning = Mix { text: 0.0, graph: 0.0 };
    let mut ways = vec![
        asked("words only", index, None, Mix::default(), questions)?,
        asked("meaning only", index, Some(model), meaning, questions)?,
        asked("fused, default", index, Some(model), Mix::default(), questions)?,
        reciprocal(index, model, questions)?,
    ];
    for step in 1..20 {
        let mix = Mix { text: f64::from(step) / 20.0, ..Mix::default() };
        ways.push(asked(
            &format!("fused, text {:.2}", mix.text),
            index,
            Some(model),
            mix,
            questions,
        )?);
    }
    Ok(ways)
}

fn asked(
    name: &str,
    index: &Index,
    model: Option<&dyn Embedder>,
    mix: Mix,
    questions: &[Question],
) -> Done<Way> {
    let mut ranks = Vec::new();
    for question in questions {
        let keys = answer(index, model, mix, &question.text, SEEN)?;
        ranks.push(rank(question, &keys));
    }
    Ok(Way { name: name.to_owned(), ranks })
}

/// Paths of an answer, best first.
fn answer(
    index: &Index,
    model: Option<&dyn Embedder>,
    mix: Mix,
    text: &str,
    limit: u32,
) -> Done<Vec<String>> {
    let find = Find { text: text.to_owned(), limit: Some(limit), ..Find::default() };
    let reply = index.search(&find, model, mix, 0, Vec::new())?;
    Ok(reply.hits.into_iter().map(|hit| name_of(&hit.path)).collect())
}

/// Names are looked up once for all questions.
fn name_of(path: &str) -> String {
    static NAMES: std::sync::OnceLock<HashMap<String, String>> = std::sync::OnceLock::new();
    let records = std::env::args().nth(1).unwrap_or_default();
    let names = NAMES.get_or_init(|| names(Path::new(&records)).unwrap_or_default());
    names.get(path).cloned().unwrap_or_default()
}

fn rank(question: &Question, names: &[String]) -> Option<usize> {
    names.iter().take(SEEN as usize).position(|name| question.answers.contains(name))
}

fn reciprocal(index: &Index, model: &dyn Embedder, questions: &[Question]) -> Done<Way> {
    let meaning = Mix { text: 0.0, graph: 0.0 };
    let mut ranks = Vec::new();
    for question in questions {
        let mut scores: BTreeMap<String, f64> = BTreeMap::new();
        for names in [
            answer(index, None, Mix::default(), &question.text, DEEP)?,
            answer(index, Some(model), meaning, &question.text, DEEP)?,
        ] {
            for (at, name) in names.into_iter().enumerate() {
                *scores.entry(name).or_default() += 1.0 / (RRF_K + 1.0 + at as f64);
            }
        }
        let mut order: Vec<(String, f64)> = scores.into_iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let names: Vec<String> = order.into_iter().map(|(name, _)| name).collect();
        ranks.push(rank(question, &names));
    }
    Ok(Way { name: "reciprocal ranks".to_owned(), ranks })
}

fn table(title: &str, questions: &[Question], ways: &[Way], is_asked: impl Fn(&Question) -> bool) {
    let chosen: Vec<usize> = (0..questions.len()).filter(|at| is_asked(&questions[*at])).collect();
    println!("## {title}: {} questions\n", chosen.len());
    println!("| way | recall@1 | recall@5 | MRR@20 |\n|---|---|---|---|");
    for way in ways {
        let ranks: Vec<Option<usize>> = chosen.iter().map(|at| way.ranks[*at]).collect();
        let share = |most: usize| {
            let found = ranks.iter().flatten().filter(|rank| **rank < most).count();
            found as f64 / ranks.len() as f64
        };
        let sum: f64 = ranks.iter().flatten().map(|rank| 1.0 / (*rank as f64 + 1.0)).sum();
        let mean = sum / ranks.len() as f64;
        println!("| {} | {:.3} | {:.3} | {mean:.3} |", way.name, share(1), share(5));
    }
    println!();
}

/// To learn from: what the tuning half misses.
fn misses(questions: &[Question], way: &Way) {
    for (question, rank) in questions.iter().zip(&way.ranks) {
        if question.is_tuning && rank.is_none_or(|rank| rank >= 5) {
            eprintln!("{rank:?} {} -> {:?}", question.text, question.answers);
        }
    }
}
