//! A small set of questions with known answers, so that a change which makes
//! search worse is seen at once. `bench/run find` measures with a larger one.

use fractal_index::embed::{self, Embedder};
use fractal_index::{Index, Mix, Root, RootKind};
use fractal_model::Find;
use std::fs;
use std::path::{Path, PathBuf};

/// What words alone must find among the first five, of all questions.
const TEXT_RECALL_MIN: f64 = 0.85;

/// Name, title and text.
const RECORDS: [(&str, &str, &str); 36] = [
    (
        "pool",
        "Connection pool ran dry under load",
        "Each worker held two connections while it waited for a third. Acquire both at once, or raise `max_connections` above twice the workers.",
    ),
    (
        "keepalive",
        "Idle sockets are cut by the balancer",
        "The balancer drops what is silent for 60 s. Set keepalive to 45 s on the client.",
    ),
    (
        "retry",
        "Retries without jitter come in waves",
        "All clients came back in the same second. Exponential backoff with full jitter spread them out.",
    ),
    (
        "idempotent",
        "Payments were booked twice",
        "A timeout is no refusal: the request had been carried out. Send an idempotency key with every charge.",
    ),
    (
        "lockorder",
        "Deadlock between orders and stock",
        "Two transactions updated the same rows in opposite order. Sort by primary key before updating.",
    ),
    (
        "index",
        "Slow listing needed a composite index",
        "`EXPLAIN` showed a sequential scan. An index on (tenant_id, created_at) took it from 4 s to 12 ms.",
    ),
    (
        "migration",
        "Add columns without rewriting the table",
        "A default that is computed rewrites every row and locks out writers. Add it nullable, backfill in batches, then set NOT NULL.",
    ),
    (
        "vacuum",
        "Table bloat after mass deletes",
        "Dead tuples stayed until autovacuum was made more eager for this table.",
    ),
    (
        "n1",
        "The page sent one query per row",
        "The serializer touched a lazy relation. Prefetch the authors together with the posts.",
    ),
    (
        "cache",
        "Stampede when a popular cache entry expires",
        "Hundreds of workers recomputed the same value. One computes under a lock, the others serve the stale value.",
    ),
    (
        "ttl",
        "Cached prices were a day old",
        "Nobody invalidated on import. Publish the changed product ids and delete those keys.",
    ),
    (
        "dns",
        "Resolver answers were kept for ever",
        "The runtime caches name lookups without end, so a failover was not noticed. Set `networkaddress.cache.ttl=30`.",
    ),
    (
        "tls",
        "Handshake fails: certificate has expired",
        "`x509: certificate has expired or is not yet valid`. The clock of the virtual machine was two years behind; start chrony before the service.",
    ),
    (
        "cors",
        "Browser refuses the answer of the API",
        "`No 'Access-Control-Allow-Origin' header is present`. The gateway answered the preflight itself; let OPTIONS through.",
    ),
    (
        "utf8",
        "Names with umlauts were garbled in the export",
        "The file was written as UTF-8 and opened as Latin-1. A byte order mark makes the spreadsheet guess right.",
    ),
    (
        "float",
        "Invoices were off by one cent",
        "Sums were floating point. Count in cents with integers and round once, at the end.",
    ),
    (
        "timezone",
        "Reports miss an hour twice a year",
        "Days were computed in local time; daylight saving made one of them 23 hours long. Keep UTC, convert for display only.",
    ),
    (
        "leap",
        "Anniversaries on 29 February crash the job",
        "`ValueError: day is out of range for month`. Use the last day of the month where there is no such day.",
    ),
    (
        "oom",
        "Worker is killed by the kernel: exit code 137",
        "The import read the whole file. Stream it line by line; memory stays at 80 MB.",
    ),
    (
        "leak",
        "Memory grows until restart",
        "Event listeners were added on each request and never removed. Register them once.",
    ),
    (
        "fd",
        "Too many open files",
        "`EMFILE` after some hours: responses were not closed on error paths. Close them in a finally block; raise `ulimit -n` as a stopgap.",
    ),
    (
        "disk",
        "No space left on device although df shows room",
        "`ENOSPC` came from inodes: millions of tiny session files. Look at `df -i`, move sessions to a database.",
    ),
    (
        "docker",
        "Image shrank from 1.2 GB to 90 MB",
        "Build in one stage, copy the binary into a slim one; clean the package lists in the same layer.",
    ),
    (
        "layer",
        "Every build downloads all packages again",
        "The sources were copied before the manifest, so each change spoiled the cached layer. Copy lock file first, install, then copy the rest.",
    ),
    (
        "flaky",
        "Test passes alone and fails together with others",
        "It depended on a global clock that another test had frozen. Give each test its own.",
    ),
    (
        "snapshot",
        "Golden files differ between machines",
        "Paths and the locale leaked into the output. Normalise them before comparing.",
    ),
    (
        "race",
        "Counter loses increments",
        "Read, add and write were three steps. `fetch_add` on an atomic, or UPDATE … SET n = n + 1.",
    ),
    (
        "gil",
        "Threads did not make the parser faster",
        "Python runs one thread at a time. Processes brought six times the throughput on eight cores.",
    ),
    (
        "async",
        "One blocking call froze the whole server",
        "`time.sleep` inside of a coroutine stops the event loop. Hand such work to `asyncio.to_thread`.",
    ),
    (
        "queue",
        "Messages are handled more than once",
        "The visibility timeout was shorter than the work. Extend the lease while working, and make handlers idempotent.",
    ),
    (
        "poison",
        "One bad message stops the consumer",
        "It is delivered again and again. After five attempts move it to a dead letter queue.",
    ),
    (
        "log",
        "Passwords appeared in the logs",
        "The whole request was logged at debug level. Redact known fields in the formatter.",
    ),
    (
        "jwt",
        "Sign-out had no effect for an hour",
        "Access tokens are valid until they expire. Make them short and check a list of revoked ones at refresh.",
    ),
    (
        "csrf",
        "Form is refused after the session changed",
        "`CSRF token mismatch`: the token belongs to the session from before the login. Fetch a new one after signing in.",
    ),
    (
        "pin",
        "Build broke without a change of ours",
        "A dependency's minor release removed a function. Commit the lock file and update on purpose.",
    ),
    (
        "abi",
        "undefined symbol: _ZN4core3fmt",
        "Two shared libraries were built by different compilers. Build both in the same image.",
    ),
];

/// A question, and the record that answers it.
const QUESTIONS: [(&str, &str); 20] = [
    ("customers were charged two times after a network problem", "idempotent"),
    ("two transactions wait for each other forever", "lockorder"),
    ("how do I add a column to a big table without downtime", "migration"),
    ("many workers recompute the same expired value", "cache"),
    ("x509: certificate has expired or is not yet valid", "tls"),
    ("No 'Access-Control-Allow-Origin' header", "cors"),
    ("special characters look wrong when opened in Excel", "utf8"),
    ("rounding mistakes in amounts of money", "float"),
    ("daylight saving breaks daily statistics", "timezone"),
    ("exit code 137", "oom"),
    ("EMFILE", "fd"),
    ("disk is full but there are free gigabytes", "disk"),
    ("make container image smaller", "docker"),
    ("dependencies are installed anew on every build", "layer"),
    ("test fails only when run with the others", "flaky"),
    ("fetch_add", "race"),
    ("event loop hangs because of a synchronous function", "async"),
    ("a broken message blocks everything behind it", "poison"),
    ("secrets must not be written to log files", "log"),
    ("asyncio.to_thread", "async"),
];

fn records(dir: &Path) -> Index {
    for (name, title, text) in RECORDS {
        let file = dir.join(format!("notes/{name}.md"));
        fs::create_dir_all(dir.join("notes")).expect("it is made");
        fs::write(file, format!("# {title}\n\n{text}\n")).expect("it is written");
    }
    let root = Root { name: "notes".into(), path: dir.join("notes"), kind: RootKind::Notes };
    let index = Index::open(&dir.join("cache"), vec![root]).expect("it opens");
    index.sync(&mut |_, _| ()).expect("it is in step");
    index
}

/// The share of questions whose answer is among the first five, and the mean of
/// the reciprocal ranks.
fn quality(index: &Index, model: Option<&dyn Embedder>, mix: Mix) -> (f64, f64) {
    let rank = |(text, name): &(&str, &str)| {
        let question = Find { text: (*text).to_owned(), ..Find::default() };
        let answer = index.search(&question, model, mix, 0, Vec::new()).expect("an answer");
        answer.hits.iter().position(|hit| hit.path == format!("{name}.md"))
    };
    let ranks: Vec<usize> = QUESTIONS.iter().filter_map(rank).collect();
    let count = QUESTIONS.len() as f64;
    let found = ranks.iter().filter(|rank| **rank < 5).count() as f64;
    (found / count, ranks.iter().map(|rank| 1.0 / (*rank as f64 + 1.0)).sum::<f64>() / count)
}

#[test]
fn words_alone_find_most_answers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (recall, mean) = quality(&records(dir.path()), None, Mix::default());
    println!("words: recall@5 {recall:.2}, MRR {mean:.2}");
    assert!(recall >= TEXT_RECALL_MIN, "recall@5 is {recall}");
}

#[test]
fn words_and_meaning_together_are_no_worse_than_either() {
    let Some(source) = std::env::var_os("FRACTAL_TEST_MODEL").map(PathBuf::from) else {
        println!("skipped: no model (FRACTAL_TEST_MODEL)");
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let added = embed::add(&source, &dir.path().join("models")).expect("it is a model");
    let model = embed::open(&added.dir).expect("it opens");
    let index = records(dir.path());
    index.embed(model.as_ref(), None, &mut |_, _| ()).expect("vectors");
    let model = Some(model.as_ref());
    let words = quality(&index, None, Mix::default());
    let meaning = quality(&index, model, Mix { text: 0.0, graph: 0.0 });
    let both = quality(&index, model, Mix::default());
    println!("recall@5 and MRR: words {words:?}, meaning {meaning:?}, both {both:?}");
    for single in [words, meaning] {
        assert!(both.0 >= single.0 && both.1 >= single.1 - 1e-9, "{both:?}, alone {single:?}");
    }
}
