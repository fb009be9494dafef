//! The guest's memory as its host sees it. Every address and length comes
//! from the guest and is checked here.

use super::abi::{Done, Errno};
use fractal_fs::PATH_BYTES_MAX;
use std::ops::Range;

/// The most buffers that one call may name, as in Linux.
const BUFFERS_MAX: u32 = 1024;

pub(super) struct Memory<'a>(pub(super) &'a mut [u8]);

/// A piece of the guest's memory.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Memory<'_> {
    fn range(&self, at: u32, len: u32) -> Done<Range<usize>> {
        let start = at as usize;
        let end = start.checked_add(len as usize).filter(|end| *end <= self.0.len());
        Ok(start..end.ok_or(Errno::FAULT)?)
    }

    pub(super) fn get(&self, at: u32, len: u32) -> Done<&[u8]> {
        Ok(&self.0[self.range(at, len)?])
    }

    pub(super) fn get_mut(&mut self, at: u32, len: u32) -> Done<&mut [u8]> {
        let range = self.range(at, len)?;
        Ok(&mut self.0[range])
    }

    pub(super) fn put(&mut self, at: u32, bytes: &[u8]) -> Done {
        let len = u32::try_from(bytes.len()).map_err(|_| Errno::FAULT)?;
        self.get_mut(at, len)?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn put_u32(&mut self, at: u32, value: usize) -> Done {
        let value = u32::try_from(value).map_err(|_| Errno::FAULT)?;
        self.put(at, &value.to_le_bytes())
    }

    pub(super) fn put_u64(&mut self, at: u32, value: u64) -> Done {
        self.put(at, &value.to_le_bytes())
    }

    /// A path: some bytes, no NUL.
    pub(super) fn path(&self, at: u32, len: u32) -> Done<Vec<u8>> {
        if len as usize >= PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        match self.get(at, len)? {
            [] => Err(Errno::NOENT),
            path if path.contains(&0) => Err(Errno::INVAL),
            path => Ok(path.to_vec()),
        }
    }

    /// A list of buffers to read into or write from.
    pub(super) fn buffers(&self, at: u32, count: u32) -> Done<Vec<Buffer>> {
        if count > BUFFERS_MAX {
            return Err(Errno::INVAL);
        }
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let pairs = self.get(at, count * 8)?.chunks_exact(8);
        Ok(pairs.map(|pair| Buffer { at: word(pair), len: word(&pair[4..]) }).collect())
    }

    /// What stands in some buffers, up to a number of bytes.
    pub(super) fn gather(&self, buffers: &[Buffer], most: usize) -> Done<Vec<u8>> {
        let mut out = Vec::new();
        for buffer in buffers {
            let bytes = self.get(buffer.at, buffer.len)?;
            let room = most - out.len();
            out.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        Ok(out)
    }

    /// Fills some buffers one after the other.
    pub(super) fn scatter(&mut self, buffers: &[Buffer], mut bytes: &[u8]) -> Done {
        for buffer in buffers {
            let space = self.get_mut(buffer.at, buffer.len)?;
            let (now, later) = bytes.split_at(bytes.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Texts that end with NUL, and a table of where each begins.
    pub(super) fn put_texts(&mut self, texts: &[Vec<u8>], table: u32, place: u32) -> Done {
        let mut at = place;
        for (index, text) in (0u32..).zip(texts) {
            self.put_u32(table.wrapping_add(index * 4), at as usize)?;
            self.put(at, text)?;
            at = at.wrapping_add(text.len() as u32);
            self.put(at, &[0])?;
            at = at.wrapping_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_leads_outside() {
        let mut bytes = [7; 16];
        let mut memory = Memory(&mut bytes);
        assert_eq!(memory.get(8, 8), Ok(&[7; 8][..]));
        for (at, len) in [(8, 9), (17, 0), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            assert_eq!(memory.get(at, len), Err(Errno::FAULT), "{at} {len}");
        }
        assert_eq!(memory.put(15, b"ab"), Err(Errno::FAULT));
        assert!(memory.buffers(0, 3).is_err());
        assert!(memory.buffers(0, u32::MAX).is_err());
        assert!(memory.put_texts(&[vec![1; 20]], 0, 4).is_err());
        // Buffers that lie over each other are the guest's own business.
        let both = [Buffer { at: 0, len: 4 }, Buffer { at: 2, len: 4 }];
        memory.scatter(&both, b"abcdef").unwrap_or_else(|errno| panic!("{errno:?}"));
        assert_eq!(&bytes[..4], b"abef");
    }
}
