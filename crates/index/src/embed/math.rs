//! The few functions of a transformer that are not products of matrices.
//!
//! They are written so that the compiler makes several steps at once of them;
//! those of the standard library take one number at a time, which would cost
//! as much as all products together.

/// The error function, as exact as 32 bits allow, as a quotient of polynomials
/// (the one of Eigen and XLA).
fn erf(x: f32) -> f32 {
    const OVER: [f32; 7] = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_6e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    const UNDER: [f32; 5] =
        [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let over = OVER.iter().fold(0.0, |sum, one| sum * square + one);
    let under = UNDER.iter().fold(0.0, |sum, one| sum * square + one);
    x * over / under
}

/// e to a number that is not above zero.
fn exp(x: f32) -> f32 {
    // Adding and taking away this rounds to whole numbers without a call.
    const ROUND: f32 = 12_582_912.0;
    const TERMS: [f32; 6] =
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let x = x.max(-87.0);
    let whole = x * std::f32::consts::LOG2_E + ROUND - ROUND;
    // The logarithm of two in two parts, of which the first is short.
    let rest = x - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let terms = TERMS.iter().fold(0.0, |sum, one| sum * rest + one);
    let value = terms * rest * rest + rest + 1.0;
    value * f32::from_bits(((whole as i32 + 127) as u32) << 23)
}

/// The Gaussian error linear unit, not its approximation by tanh.
pub(super) fn gelu(values: &mut [f32]) {
    for value in values {
        *value *= 0.5 * (1.0 + erf(*value * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// Makes each row sum to one.
pub(super) fn softmax(rows: &mut [f32], width: usize) {
    for row in rows.chunks_exact_mut(width) {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|value| *value = exp(*value - top));
        let share = 1.0 / sum(row);
        row.iter_mut().for_each(|value| *value *= share);
    }
}

/// Scale and shift after each row was brought to mean zero and deviation one.
pub(super) struct LayerNorm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) epsilon: f32,
}

impl LayerNorm {
    pub(super) fn apply(&self, rows: &mut [f32]) {
        let width = self.weight.len();
        for row in rows.chunks_exact_mut(width) {
            let mean = sum(row) / width as f32;
            row.iter_mut().for_each(|value| *value -= mean);
            let variance = dot(row, row) / width as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            for ((value, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
                *value = *value * scale * weight + bias;
            }
        }
    }
}

/// Brings a vector to length one. One of zeros or of no numbers stays so.
pub(super) fn normalize(vector: &mut [f32]) {
    let length = dot(vector, vector).sqrt();
    if length > 0.0 && length.is_finite() {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}

fn sum(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value);
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    let ((left, left_rest), (right, right_rest)) = (left.as_chunks::<8>(), right.as_chunks::<8>());
    let mut lanes = [0.0; 8];
    for (left, right) in left.iter().zip(right) {
        for lane in 0..8 {
            lanes[lane] += left[lane] * right[lane];
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The series, with so many terms that doubles see no more of it.
    fn erf_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn the_error_function_is_exact_to_seven_digits() {
        for step in -500..=500 {
            let x = step as f32 / 125.0;
            let off = (f64::from(erf(x)) - erf_by_series(f64::from(x))).abs();
            assert!(off < 5e-7, "erf({x}) is off by {off}");
        }
        assert!((erf(50.0) - 1.0).abs() < 1e-6 && (erf(-50.0) + 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_exponential_is_exact_to_six_digits() {
        for step in 0..8600 {
            let x = -step as f32 / 100.0;
            let expect = f64::from(x).exp();
            let off = (f64::from(exp(x)) - expect).abs() / expect;
            assert!(off < 3e-7, "exp({x}) is off by {off}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e30) < 1e-37);
    }

    #[test]
    fn a_softmax_sums_to_one_even_of_large_numbers() {
        let mut rows = vec![1000.0, 1000.0, -1000.0, 0.0, 1.0, 2.0];
        softmax(&mut rows, 3);
        assert_eq!(&rows[..2], &[0.5, 0.5]);
        assert!((rows[3..].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((rows[5] - 0.665_240_94).abs() < 1e-6);
    }
}
