//! Numbers that look random and are the same in each run.

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 33
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// A vector whose numbers lie about zero as those of models do.
    pub fn vector(&mut self, dimensions: usize) -> Vec<f32> {
        let mut number = || (self.next() >> 40) as f32 / 8_388_608.0 - 1.0;
        (0..dimensions).map(|_| number() + number() + number()).collect()
    }
}
