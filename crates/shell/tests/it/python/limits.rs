//! Programs that want everything get what they may have, in bounded time and
//! memory, and what they did before stays.

use super::{patient, program};
use crate::{run, shown, text};
use fractal_fs::{Limits, Vfs};
use fractal_shell::{Ended, Outcome, Settings, Shell};
use std::time::{Duration, Instant};

fn small(time_max: Duration) -> Shell {
    let settings = Settings {
        output_bytes_max: 100_000,
        time_max,
        memory_bytes_max: 8 << 20,
        python_memory_bytes_max: 96 << 20,
        ..Settings::default()
    };
    Shell::new(Vfs::new(Limits { bytes_max: 16 << 20, entries_max: 20_000 }), settings)
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs something greedy that has to end by itself.
fn greedy(code: &str) -> Outcome {
    let mut shell = small(Duration::from_secs(600));
    let before = resident_bytes();
    let outcome = program(&mut shell, code);
    let grown = resident_bytes().saturating_sub(before);
    // Other tests run beside this one.
    assert!(grown < 1 << 30, "{code}: {} MiB", grown >> 20);
    assert!(outcome.stdout.len() <= 100_000 && outcome.stderr.len() <= 101_000, "{code}");
    assert_eq!(run(&mut shell, "echo alive"), "alive\n", "after {code}");
    outcome
}

/// Runs something that never ends by itself.
fn endless(code: &str) -> Outcome {
    let mut shell = small(Duration::from_secs(3));
    let outcome = program(&mut shell, code);
    assert_eq!((outcome.ended.clone(), outcome.exit), (Ended::Timeout, 124), "{}", shown(&outcome));
    assert_eq!(run(&mut shell, "cat /begun; echo alive"), "x\nalive\n", "after {code}");
    outcome
}

#[test]
fn endless_programs_end_at_the_time_limit_and_their_files_stay() {
    for code in [
        "while True: pass",
        "import time; time.sleep(10 ** 6)",
        "import itertools; sum(itertools.count())",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import re; re.match('(a+)+b', 'a' * 64)",
        "10 ** 10 ** 8",
        "import asyncio; asyncio.run(asyncio.sleep(10 ** 6))",
    ] {
        endless(&format!("f = open('/begun', 'w'); f.write('x\\n'); f.flush()\n{code}"));
    }
}

#[test]
fn what_was_said_before_the_time_limit_is_kept() {
    let code = "import sys\nopen('/begun', 'w').write('x\\n')\nprint('early', flush=True)\nprint('problem', file=sys.stderr)\nwhile True: pass";
    let outcome = endless(code);
    assert_eq!(text(&outcome.stdout), "early\n", "{}", shown(&outcome));
    assert!(text(&outcome.stderr).starts_with("problem\n"), "{}", shown(&outcome));
}

#[test]
fn cancelling_stops_a_program_wherever_it_is() {
    for code in ["while True: pass", "import time; time.sleep(500)", "sum(range(10 ** 12))"] {
        let mut shell = patient(Vfs::default());
        let (canceller, view) = (shell.canceller(), shell.view().clone());
        let other = std::thread::spawn(move || {
            while !view.exists("/begun") {
                std::thread::sleep(Duration::from_millis(5));
            }
            canceller.cancel();
        });
        let start = Instant::now();
        let head = "print('said', flush=True); open('/begun', 'w').close()";
        let outcome = program(&mut shell, &format!("{head}\n{code}"));
        other.join().unwrap();
        assert_eq!(text(&outcome.stdout), "said\n", "{code}");
        assert_eq!(outcome.ended, Ended::Cancelled, "{code}: {}", shown(&outcome));
        assert!(start.elapsed() < Duration::from_secs(120), "{code}");
        assert_eq!(run(&mut shell, "python3 -c 'print(1)'"), "1\n", "after {code}");
    }
}

#[test]
fn memory_has_an_end_that_programs_are_told_of() {
    for code in [
        "x = []\ntry:\n    while True: x.append(bytearray(1 << 20))\nexcept MemoryError: n = len(x); del x; print('told', n)",
        "try:\n    bytearray(1 << 30)\nexcept MemoryError: print('told')",
        "try:\n    x = 'a' * (1 << 28)\nexcept MemoryError: print('told')",
        "import zlib\npacked = zlib.compress(bytes(1 << 24))\ntry:\n    parts = [zlib.decompress(packed) for _ in range(100)]\nexcept MemoryError: print('told')",
    ] {
        let outcome = greedy(code);
        assert!(text(&outcome.stdout).starts_with("told"), "{code}: {}", shown(&outcome));
    }
    let outcome =
        greedy("print('first', flush=True)\nx = []\nwhile True: x.append(bytearray(1 << 20))");
    assert_eq!(outcome.exit, 1, "{}", shown(&outcome));
    assert!(text(&outcome.stderr).contains("MemoryError"), "{}", shown(&outcome));
}

#[test]
fn too_little_memory_to_start_is_said() {
    let settings = Settings { python_memory_bytes_max: 16 << 20, ..Settings::default() };
    let outcome = Shell::new(Vfs::default(), settings).run("python3 -c 'print(1)'", b"");
    assert_eq!(outcome.exit, 126, "{}", shown(&outcome));
    assert!(text(&outcome.stderr).contains("may have 16 MiB"), "{}", shown(&outcome));
}

#[test]
fn endless_output_is_cut_and_ends_the_program() {
    for code in [
        "while True: print('0123456789' * 100)",
        "import sys\nwhile True: sys.stderr.write('0123456789' * 100)",
        "import os\nwhile True: os.write(1, bytes(1 << 20))",
    ] {
        let outcome = greedy(code);
        assert!(outcome.truncated, "{code}: {}", shown(&outcome));
        assert!(outcome.exit != 0, "{code}: {}", shown(&outcome));
    }
}

#[test]
fn recursion_without_end_ends_the_program_alone() {
    for code in [
        "def f(): f()\nf()",
        "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
        "x = []\nfor _ in range(200000): x = [x]\nrepr(x)",
        "import json; json.loads('[' * 100000)",
        "eval('(' * 10000 + ')' * 10000)",
        "class A:\n    def __getattr__(self, n): return getattr(self, n + 'x')\nA().y",
        "import sys; sys.setrecursionlimit(10 ** 9)\nclass A:\n    def __repr__(self): return repr([self])\nrepr(A())",
        "import ast; ast.parse('-' * 100000 + '1')",
        "import pickle\nx = []\nfor _ in range(200000): x = [x]\npickle.dumps(x)",
    ] {
        let outcome = greedy(code);
        assert!(outcome.exit != 0 && outcome.ended == Ended::Exited, "{code}: {}", shown(&outcome));
    }
}

#[test]
fn files_are_limited_by_the_tree() {
    let outcome = greedy(
        "import errno
try:
    with open('/big', 'wb') as f:
        while True: f.write(bytes(range(256)) * 4096)
except OSError as e: print(e.errno == errno.ENOSPC)
import os; print(os.path.getsize('/big') <= 16 << 20); os.remove('/big'); open('/small', 'w').write('fits')",
    );
    assert_eq!(text(&outcome.stdout), "True\nTrue\n", "{}", shown(&outcome));
    let outcome = greedy(
        "import errno, os
os.mkdir('/d')
try:
    for i in range(30000): os.symlink('x', f'/d/{i}')
except OSError as e: print(e.errno == errno.ENOSPC)",
    );
    assert_eq!(text(&outcome.stdout), "True\n", "{}", shown(&outcome));
    // Holes take nothing, and what is read of them comes in pieces.
    let outcome = greedy(
        "import os
f = open('/sparse', 'wb+'); f.truncate(1 << 40); f.seek(1 << 39); f.write(b'x'); f.seek((1 << 39) - 2); print(f.read(4), os.fstat(f.fileno()).st_size == 1 << 40)
try: f.seek(0); f.read()
except (MemoryError, OverflowError): print('told')
try: f.truncate(1 << 60)
except OSError: print('too large')",
    );
    assert_eq!(
        text(&outcome.stdout),
        "b'\\x00\\x00x\\x00' True\ntold\ntoo large\n",
        "{}",
        shown(&outcome)
    );
}

#[test]
fn bombs_in_archives_are_defused() {
    let outcome = greedy(
        "import zipfile, io, os
b = io.BytesIO()
with zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED) as z:
    for i in range(5):
        with z.open(f'f{i}', 'w') as f:
            for _ in range(4): f.write(bytes(range(256)) * 4096)
print(b.tell() < 1 << 20)
try: zipfile.ZipFile(b).extractall('/out')
except OSError: print('full')",
    );
    assert_eq!(text(&outcome.stdout), "True\nfull\n", "{}", shown(&outcome));
}

#[test]
fn descriptors_and_depth_have_an_end() {
    let outcome = greedy(
        "import errno, os
fs = []
try:
    while True: fs.append(os.open('/f', os.O_CREAT | os.O_RDONLY))
except OSError as e: print(e.errno == errno.EMFILE, len(fs) > 500)
for f in fs: os.close(f)
os.chdir('/'); n = 0
try:
    while n < 5000: os.mkdir('d'); os.chdir('d'); n += 1
except OSError as e: print(n > 200)
import shutil; os.chdir('/')
try: shutil.rmtree('/d')
except (RecursionError, OSError) as e: print(type(e).__name__)
print('survived')",
    );
    let said = text(&outcome.stdout);
    assert!(
        said.starts_with("True True\nTrue\n") && said.ends_with("survived\n"),
        "{}",
        shown(&outcome)
    );
}
