//! A vector in a quarter of its size, with a bound of what that lost.
//!
//! Each number becomes a byte of a scale that is the vector's own. How far the
//! bytes are from the vector is kept, so that a product with them says between
//! which bounds the exact one lies: a scan over bytes can leave out what cannot
//! be among the best, and only that.

/// Behind the bytes: the scale, and how far they are from the vector.
const TRAILER: usize = 8;

/// What rounding in 32 bits may add to all bounds.
const SLACK: f32 = 1e-5;

/// How long the row of a vector is, in bytes; a multiple of eight.
pub(super) fn stride(dimensions: usize) -> usize {
    dimensions.next_multiple_of(16) + TRAILER
}

/// Appends the row of a vector of length one.
pub(super) fn push(vector: &[f32], out: &mut Vec<u8>) {
    let scale = top(vector) / 127.0;
    let bytes = vector.iter().map(|value| (value / scale).round() as i8);
    let lost = |(value, byte): (&f32, i8)| f64::from(value - f32::from(byte) * scale).powi(2);
    let lost = vector.iter().zip(bytes.clone()).map(lost).sum::<f64>().sqrt();
    let start = out.len();
    out.extend(bytes.map(|byte| byte as u8));
    out.resize(start + stride(vector.len()) - TRAILER, 0);
    out.extend(scale.to_le_bytes());
    // Rounded up, so that it stays a bound.
    out.extend((lost as f32 * 1.0001).to_le_bytes());
}

fn top(vector: &[f32]) -> f32 {
    vector.iter().fold(0.0, |top, value| value.abs().max(top))
}

/// A question of length one, in steps as fine as sums of 32 bits allow.
pub(super) struct Query {
    steps: Vec<i16>,
    scale: f32,
    lost: f32,
}

impl Query {
    pub(super) fn new(vector: &[f32]) -> Query {
        let width = stride(vector.len()) - TRAILER;
        let levels = (i32::MAX as usize / 127 / width).min(i16::MAX as usize) as f32;
        let scale = top(vector) / levels;
        let mut steps: Vec<i16> = vector.iter().map(|value| (value / scale) as i16).collect();
        let lost =
            |(value, step): (&f32, &i16)| f64::from(value - f32::from(*step) * scale).powi(2);
        let lost = vector.iter().zip(&steps).map(lost).sum::<f64>().sqrt() as f32;
        steps.resize(width, 0);
        Query { steps, scale, lost }
    }

    /// The product with the vector of a row: about this, and at most so far off.
    pub(super) fn score(&self, row: &[u8]) -> (f32, f32) {
        let (bytes, trailer) = row.split_at(self.steps.len());
        let (scale, lost) = trailer.split_at(4);
        let (scale, lost) = (number(scale), number(lost));
        let product = |(byte, step): (&u8, &i16)| i32::from(*byte as i8) * i32::from(*step);
        let sum: i32 = bytes.iter().zip(&self.steps).map(product).sum();
        (sum as f32 * (scale * self.scale), lost + self.lost * (1.0 + lost) + SLACK)
    }
}

fn number(bytes: &[u8]) -> f32 {
    bytes.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN)
}

/// The exact product, from the numbers as they lie in a file.
pub(super) fn exact(query: &[f32], bytes: &[u8]) -> f32 {
    let numbers = bytes.as_chunks::<4>().0.iter().map(|one| f32::from_le_bytes(*one));
    let products =
        query.iter().zip(numbers).map(|(left, right)| f64::from(*left) * f64::from(right));
    products.sum::<f64>() as f32
}

/// A vector of length one, if it has a direction.
pub(super) fn unit(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let is_one = length.is_finite() && length > 0.0;
    is_one.then(|| vector.iter().map(|value| (f64::from(*value) / length) as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_product_lies_within_the_bounds_of_the_bytes() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / 8_388_608.0 - 1.0
        };
        for dimensions in [1, 2, 15, 16, 17, 384, 1536, 65_536] {
            let rounds = if dimensions > 1000 { 3 } else { 200 };
            for _ in 0..rounds {
                // Cubes have few large numbers among many small ones.
                let mut vector = || (0..dimensions).map(|_| next().powi(3)).collect::<Vec<_>>();
                let (Some(left), Some(right)) = (unit(&vector()), unit(&vector())) else {
                    continue;
                };
                let mut row = Vec::new();
                push(&right, &mut row);
                assert_eq!(row.len(), stride(dimensions));
                let bytes: Vec<u8> = right.iter().flat_map(|value| value.to_le_bytes()).collect();
                let (about, off) = Query::new(&left).score(&row);
                let exact = exact(&left, &bytes);
                assert!((about - exact).abs() <= off, "{dimensions}: {about} {exact} {off}");
                assert!(off < 0.1, "{dimensions}: {off} bounds nothing");
            }
        }
    }

    #[test]
    fn what_has_no_direction_is_no_vector() {
        for vector in [vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY], vec![]] {
            assert_eq!(unit(&vector), None);
        }
        let large = 2f32.powi(100);
        assert_eq!(unit(&[3.0 * large, 4.0 * large]), Some(vec![0.6, 0.8]));
        assert!(unit(&[1e-42]).is_some());
    }
}
