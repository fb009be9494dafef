//! Times one thing per line, for `bench/run vfs`: our virtual filesystem and
//! sandfs-core, the same questions in the same order.
//!
//! `bench-vfs steps ENTRIES ROUNDS` prints `step ours|theirs ns` lines;
//! `bench-vfs memory ours|theirs ENTRIES` prints bytes per entry;
//! `bench-vfs attempts ROUNDS` prints the eight-attempt workflow.

mod attempts;
mod clock;
mod memory;
mod steps;
mod worlds;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> usize {
        words.get(at).and_then(|word| word.parse().ok()).expect("a number")
    };
    match words.first().map(String::as_str) {
        Some("steps") => steps::main(number(1), number(2)),
        Some("memory") => memory::main(&words[1], number(2)),
        Some("attempts") => attempts::main(number(1)),
        _ => panic!("steps ENTRIES ROUNDS | memory ours|theirs ENTRIES | attempts ROUNDS"),
    }
}
