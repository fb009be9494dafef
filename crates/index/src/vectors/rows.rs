//! The vectors of one key, as they were put: what a server is sent that does
//! the same.

use super::{Flat, VectorsError};
use std::os::unix::fs::FileExt;

impl Flat {
    /// The vectors of a key, of length one, in the order in which they were
    /// put; none where the key is not there.
    pub fn vectors_of(&self, key: u64) -> Result<Vec<Vec<f32>>, VectorsError> {
        let state = &self.state;
        let Some(entry) = state.live.iter().find(|entry| entry.key == key) else {
            return Ok(Vec::new());
        };
        let width = self.dimensions() * 4;
        let mut bytes = vec![0; entry.count as usize * width];
        let damaged = || VectorsError::damaged(&state.dir, "its vectors cannot be read");
        let full = state.full.as_ref().ok_or_else(damaged)?;
        full.read_exact_at(&mut bytes, u64::from(entry.first) * width as u64)
            .map_err(|_| damaged())?;
        let numbers = |bytes: &[u8]| {
            bytes.as_chunks::<4>().0.iter().map(|one| f32::from_le_bytes(*one)).collect()
        };
        Ok(bytes.chunks_exact(width).map(numbers).collect())
    }
}
