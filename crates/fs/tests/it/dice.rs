//! Random numbers that are the same in every run.

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }

    pub fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Seeds of a fuzz target: so many, always the same; with FRACTAL_FUZZ_SECONDS
/// new ones without end until that time is over.
pub fn seeds(target: &str, rounds: u64) -> impl Iterator<Item = u64> {
    let seconds = std::env::var("FRACTAL_FUZZ_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|text| text.parse().expect("a number of seconds"));
    let start = std::time::Instant::now();
    let fresh = std::process::id();
    let target = target.to_owned();
    (0..).map_while(move |round| match seconds {
        None => (round < rounds).then_some(round),
        Some(seconds) if start.elapsed().as_secs() < seconds => {
            Some(if round < rounds { round } else { u64::from(fresh) << 32 | round })
        }
        Some(_) => {
            println!("{target}: {round} rounds");
            None
        }
    })
}
