//! `scale DIR RECORDS [MODEL]`: an index of many records, with a stopwatch.
//!
//! Makes records below DIR (the same ones each time), indexes them and asks. Each
//! measurement is a line of JSON on standard output; `bench/run find` makes a
//! table of them. Every question opens the index and looks at all files first,
//! as a command does.

use fractal_index::embed::{self, EmbedError, Embedder};
use fractal_index::{Index, Mix, Root, RootKind};
use fractal_model::Find;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Done<T> = Result<T, Box<dyn Error>>;

const PER_EXPERIMENT: usize = 100;
const QUESTIONS: usize = 200;
const VOCABULARY: usize = 30_000;
/// As many numbers as the model has that we measure with.
const DIMENSIONS: usize = 384;
/// The commonest words of any text; questions have them, answers are not about
/// them.
const FUNCTION_WORDS: [&str; 24] = [
    "the", "of", "to", "a", "and", "in", "is", "it", "that", "was", "for", "with", "as", "on",
    "this", "by", "be", "at", "are", "not", "from", "when", "which", "an",
];

fn main() -> Done<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (dir, records, model) = match words.as_slice() {
        [dir, records] => (Path::new(dir), records.parse()?, None),
        [dir, records, model] => (Path::new(dir), records.parse()?, Some(Path::new(model))),
        _ => return Err("usage: scale DIR RECORDS [MODEL]".into()),
    };
    let world = World { words: vocabulary(), records };
    let place = Place { records: dir.join("records"), index: dir.join("index") };
    timed("write files", || world.write(&place.records))?;
    measure(&world, &place)?;
    if let Some(model) = model {
        rate(&world, model, dir)?;
    }
    Ok(())
}

/// Numbers that look random and are the same on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A place in a list whose n-th entry is about n times rarer than its first.
    fn zipf(&mut self, end: usize) -> usize {
        let rank = (end as f64 + 1.0).powf(self.part()) - 1.0;
        (rank as usize).min(end - 1)
    }
}

fn vocabulary() -> Vec<String> {
    let mut dice = Dice(7);
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut words: Vec<String> = FUNCTION_WORDS.map(str::to_owned).to_vec();
    while words.len() < VOCABULARY {
        let syllables = 1 + dice.below(3) + usize::from(words.len() > 500);
        let mut word = String::new();
        for _ in 0..syllables {
            word.push(char::from(b"bcdfghklmnprstvz"[dice.below(16)]));
            word.push(char::from(b"aeiou"[dice.below(5)]));
        }
        word.push(char::from(b"nrtklm"[dice.below(6)]));
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words
}

struct World {
    words: Vec<String>,
    records: usize,
}

impl World {
    fn text(&self, dice: &mut Dice, words: usize) -> String {
        let words: Vec<&str> =
            (0..words).map(|_| self.words[dice.zipf(VOCABULARY)].as_str()).collect();
        words.join(" ")
    }

    fn dice(number: usize) -> Dice {
        Dice((number as u64).wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    fn path(number: usize) -> String {
        let experiment = number / PER_EXPERIMENT;
        let kind = ["insights", "failures", "decisions", "patterns"][number % 4];
        format!("sandbox/e{experiment:04}_skunkworks/{kind}/r{number:06}.md")
    }

    fn id(number: usize) -> String {
        format!("01JQ{number:022}")
    }

    /// A record with three relations on average, one more being implied.
    fn record(&self, number: usize) -> String {
        let mut dice = World::dice(number);
        let kind = ["Insight", "Failure", "Decision", "Pattern"][number % 4];
        let (title, words) = (self.text(&mut dice, 6), 30 + dice.below(171));
        let mut text = format!(
            "---\ntype: {kind}\nid: {}\ntitle: '{title}'\nrelations:\n  - type: touches\n    file: src/f{}.rs\n",
            World::id(number),
            dice.zipf(5000)
        );
        let near = number - number % PER_EXPERIMENT + dice.below(PER_EXPERIMENT);
        for other in [near.min(self.records - 1), dice.below(self.records)] {
            let kind = ["fixed-by", "cites", "supersedes", "cites"][dice.below(4)];
            let _ = write!(text, "  - type: {kind}\n    id: {}\n", World::id(other));
        }
        let _ = write!(text, "---\n{}\n", self.text(&mut dice, words));
        text
    }

    fn write(&self, into: &Path) -> Done<()> {
        for number in 0..self.records {
            let path = into.join(World::path(number));
            if number % PER_EXPERIMENT < 4 {
                fs::create_dir_all(path.parent().expect("it lies in a bundle"))?;
            }
            if number % PER_EXPERIMENT == 0 {
                let bundle = path.ancestors().nth(2).expect("it lies in a bundle");
                fs::write(bundle.join("problem.md"), "---\ntype: Problem\ntitle: One\n---\n")?;
            }
            fs::write(path, self.record(number))?;
        }
        Ok(())
    }

    /// Some words of some record, in their order: what somebody remembers of it.
    fn question(&self, number: usize) -> String {
        let mut dice = Dice(number as u64 + 1_000_000);
        let record = self.record(dice.below(self.records));
        let body: Vec<&str> =
            record.rsplit("---\n").next().unwrap_or("").split_whitespace().collect();
        let (first, count) = (dice.below(body.len() - 12), 4 + dice.below(8));
        body[first..first + count].join(" ")
    }
}

struct Place {
    records: PathBuf,
    index: PathBuf,
}

impl Place {
    fn roots(&self) -> Vec<Root> {
        let path = self.records.clone();
        vec![Root { name: "project".into(), path, kind: RootKind::Project }]
    }

    fn open(&self) -> Done<Index> {
        Ok(Index::open(&self.index, self.roots())?)
    }

    fn synced(&self) -> Done<Index> {
        let index = self.open()?;
        index.sync(&mut |_, _| ())?;
        Ok(index)
    }
}

/// Vectors of length one that mean nothing: as much work as real ones.
struct Meaningless;

impl Embedder for Meaningless {
    fn name(&self) -> &str {
        "meaningless"
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let unit = |text: &&str| {
            let digest = Sha256::digest(text.as_bytes());
            let seed = digest.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte));
            let mut dice = Dice(seed);
            let numbers: Vec<f32> = (0..DIMENSIONS).map(|_| dice.part() as f32 - 0.5).collect();
            let length = numbers.iter().map(|number| number * number).sum::<f32>().sqrt();
            numbers.into_iter().map(|number| number / length).collect()
        };
        Ok(texts.iter().map(unit).collect())
    }
}

fn measure(world: &World, place: &Place) -> Done<()> {
    let index =
        timed("rebuild", || Ok(Index::rebuild(&place.index, place.roots(), &mut |_, _| ())?.0))?;
    let counts = index.counts()?;
    say("records", counts.records as f64, "");
    say("edges", counts.edges as f64, "");
    say("size", index.size_bytes() as f64 / 1e6, "MB");
    drop(index);
    many("sync, nothing changed", 20, |_| place.synced().map(drop))?;
    many("sync, one record changed", 10, |round| {
        let text = format!("{}\nround {round}\n", world.record(round * 7));
        fs::write(place.records.join(World::path(round * 7)), text)?;
        place.synced().map(drop)
    })?;
    // Files that are too young are looked at twice.
    std::thread::sleep(Duration::from_millis(50));
    place.synced()?;
    let find = |number: usize, model: Option<&dyn Embedder>, is_synced: bool| -> Done<()> {
        let index = if is_synced { place.synced()? } else { place.open()? };
        let question = Find { text: world.question(number), ..Find::default() };
        let reply = index.search(&question, model, Mix::default(), 0, Vec::new())?;
        if reply.hits.is_empty() { Err("nothing was found".into()) } else { Ok(()) }
    };
    many("find, words, without the look at the files", QUESTIONS, |at| find(at, None, false))?;
    many("find, words", QUESTIONS, |at| find(at, None, true))?;
    timed("vectors (meaningless ones)", || {
        place.open()?.embed(&Meaningless, None, &mut |_, _| ())?;
        Ok(())
    })?;
    many("find, words and vectors", QUESTIONS, |at| find(at, Some(&Meaningless), true))?;
    let index = place.open()?;
    many("around, depth 3", QUESTIONS, |at| {
        index.around(&World::id(at * 37 % world.records), 3)?;
        Ok(())
    })?;
    say("size with vectors", index.size_bytes() as f64 / 1e6, "MB");
    Ok(())
}

/// How long a real model takes for records like these.
fn rate(world: &World, wheel: &Path, dir: &Path) -> Done<()> {
    let model = embed::open(&embed::add(wheel, &dir.join("model"))?.dir)?;
    let texts: Vec<String> = (0..500.min(world.records)).map(|at| world.record(at)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let started = Instant::now();
    for batch in texts.chunks(32) {
        model.embed(batch)?;
    }
    say("the model, records per second", texts.len() as f64 / started.elapsed().as_secs_f64(), "");
    Ok(())
}

fn timed<T>(what: &str, work: impl FnOnce() -> Done<T>) -> Done<T> {
    forget_peak();
    let started = Instant::now();
    let done = work()?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{{\"what\": \"{what}\", \"s\": {seconds:.3}, \"peak_mb\": {:.1}}}", peak_mb());
    Ok(done)
}

fn many(what: &str, rounds: usize, mut work: impl FnMut(usize) -> Done<()>) -> Done<()> {
    forget_peak();
    let mut times = Vec::new();
    for round in 0..rounds {
        let started = Instant::now();
        work(round)?;
        times.push(format!("{:.3}", started.elapsed().as_secs_f64() * 1e3));
    }
    let times = times.join(", ");
    println!("{{\"what\": \"{what}\", \"ms\": [{times}], \"peak_mb\": {:.1}}}", peak_mb());
    Ok(())
}

fn say(what: &str, value: f64, unit: &str) {
    println!("{{\"what\": \"{what}\", \"value\": {value:.1}, \"unit\": \"{unit}\"}}");
}

/// The most memory so far, which Linux lets a process begin anew.
fn peak_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or_default() / 1e3
}

fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}
