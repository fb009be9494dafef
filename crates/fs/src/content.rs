//! The bytes of a file.
//!
//! A file that was written as a whole is one piece of memory and is handed out
//! without copying. The first write into the middle of a larger one cuts it
//! into blocks that still lie in the old memory; only touched blocks are
//! copied, and blocks that were never written do not exist.

use crate::error::{Fault, Kind};
use crate::source::LazyFile;
use bytes::Bytes;
use imbl::OrdMap;
use std::ops::Range;
use std::sync::Arc;

/// How much one touched place of a large file costs.
pub(crate) const BLOCK_BYTES: u64 = 64 * 1024;

/// Files up to this size are rewritten as a whole: two blocks cost more.
const WHOLE_BYTES: u64 = 16 * 1024;

/// The largest file in bytes that can be made, by writing or by stretching.
pub const FILE_BYTES_MAX: u64 = 1 << 43;

/// The largest file that is read as one piece. Larger ones have holes, or
/// are read in ranges.
pub const READ_BYTES_MAX: u64 = 1 << 31;

#[derive(Clone)]
pub(crate) enum Content {
    Whole(Bytes),
    Blocks(Blocks),
    /// Still at its source.
    Lazy(Arc<LazyFile>),
}

/// Missing blocks are zeros, and so is what a short block lacks.
#[derive(Clone)]
pub(crate) struct Blocks {
    len: u64,
    held: u64,
    map: OrdMap<u64, Block>,
}

#[derive(Clone)]
enum Block {
    /// A piece of memory that others see too.
    Shared(Bytes),
    Own(Arc<Vec<u8>>),
}

/// A block as bytes that others may hold, without copying it.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match self {
            Block::Shared(bytes) => bytes,
            Block::Own(bytes) => bytes,
        }
    }

    /// The block for writing; copies it if anyone else has it.
    fn edit(&mut self) -> &mut Vec<u8> {
        if let Block::Shared(bytes) = self {
            *self = Block::Own(Arc::new(bytes.to_vec()));
        }
        match self {
            Block::Own(bytes) => Arc::make_mut(bytes),
            Block::Shared(_) => unreachable!("made our own above"),
        }
    }
}

impl Content {
    pub(crate) fn empty() -> Content {
        Content::Whole(Bytes::new())
    }

    /// The size, if it is known without asking the source.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Content::Whole(bytes) => Some(bytes.len() as u64),
            Content::Blocks(blocks) => Some(blocks.len),
            Content::Lazy(lazy) => lazy.size(),
        }
    }

    /// Bytes of memory it takes from the sandbox's limit; holes and what is
    /// still at its source take none.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Blocks(blocks) => blocks.held,
            Content::Lazy(_) => 0,
        }
    }

    /// All of it, in one piece. Not for lazy content.
    pub(crate) fn whole(&self) -> Result<Bytes, Fault> {
        match self {
            Content::Whole(bytes) => Ok(bytes.clone()),
            Content::Blocks(blocks) if blocks.len > READ_BYTES_MAX => {
                let reason = format!("{} bytes; read it in ranges", blocks.len);
                Err(Fault::because(Kind::TooLarge, reason))
            }
            Content::Blocks(blocks) => Ok(blocks.read(0..blocks.len)),
            Content::Lazy(_) => unreachable!("lazy content is read at its source"),
        }
    }

    /// The part of `range` that lies within the file. Not for lazy content.
    pub(crate) fn range(&self, range: Range<u64>) -> Bytes {
        let len = self.len().unwrap_or(0);
        let (from, to) = (range.start.min(len), range.end.min(len));
        match self {
            _ if from >= to => Bytes::new(),
            Content::Whole(bytes) => bytes.slice(from as usize..to as usize),
            Content::Blocks(blocks) => blocks.read(from..to),
            Content::Lazy(_) => unreachable!("lazy content is read at its source"),
        }
    }

    /// Writes at a place, stretching the file if need be.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Fault> {
        let end = at.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Fault::new(Kind::TooLarge))?;
        if data.is_empty() {
            return Ok(());
        }
        match self {
            Content::Whole(bytes) if end.max(bytes.len() as u64) <= WHOLE_BYTES => {
                let mut new = bytes.to_vec();
                new.resize(new.len().max(end as usize), 0);
                new[at as usize..end as usize].copy_from_slice(data);
                *bytes = new.into();
            }
            _ => self.blocks().write(at, data),
        }
        Ok(())
    }

    /// Cuts or stretches with zeros that take no memory.
    pub(crate) fn resize(&mut self, len: u64) -> Result<(), Fault> {
        if len > FILE_BYTES_MAX {
            return Err(Fault::new(Kind::TooLarge));
        }
        match self {
            Content::Whole(bytes) if len <= bytes.len() as u64 => bytes.truncate(len as usize),
            Content::Whole(bytes) if len <= WHOLE_BYTES => {
                let mut new = bytes.to_vec();
                new.resize(len as usize, 0);
                *bytes = new.into();
            }
            _ => self.blocks().resize(len),
        }
        Ok(())
    }

    /// Makes a hole of the part of `range` that lies within the file.
    pub(crate) fn punch(&mut self, range: Range<u64>) {
        let len = self.len().unwrap_or(0);
        let (from, to) = (range.start.min(len), range.end.min(len));
        match self {
            _ if from >= to => {}
            Content::Whole(bytes) if len <= WHOLE_BYTES => {
                let mut new = bytes.to_vec();
                new[from as usize..to as usize].fill(0);
                *bytes = new.into();
            }
            _ => self.blocks().punch(from..to),
        }
    }

    fn blocks(&mut self) -> &mut Blocks {
        if let Content::Whole(bytes) = self {
            *self = Content::Blocks(Blocks::cut(bytes.clone()));
        }
        match self {
            Content::Blocks(blocks) => blocks,
            Content::Whole(_) => unreachable!("cut above"),
            Content::Lazy(_) => unreachable!("lazy content is loaded before it is written"),
        }
    }

    /// Where data is, as ranges without the holes between them.
    pub(crate) fn extents(&self) -> Vec<Range<u64>> {
        match self {
            Content::Blocks(blocks) => blocks.extents(),
            _ => match self.len() {
                Some(0) | None => Vec::new(),
                Some(len) => std::iter::once(0..len).collect(),
            },
        }
    }

    /// Whether both hold the same bytes; pieces in the same memory are not
    /// looked at. `None` if one of them is still at its source.
    pub(crate) fn same(&self, other: &Content) -> Option<bool> {
        let same = match (self, other) {
            (Content::Lazy(a), Content::Lazy(b)) if Arc::ptr_eq(a, b) => true,
            (Content::Lazy(_), _) | (_, Content::Lazy(_)) => return None,
            (Content::Whole(a), Content::Whole(b)) => a == b,
            (Content::Blocks(a), Content::Blocks(b)) => a.same(b),
            (Content::Whole(whole), Content::Blocks(blocks))
            | (Content::Blocks(blocks), Content::Whole(whole)) => {
                blocks.len == whole.len() as u64 && blocks.same(&Blocks::cut(whole.clone()))
            }
        };
        Some(same)
    }
}

impl Blocks {
    fn cut(bytes: Bytes) -> Blocks {
        let len = bytes.len() as u64;
        let starts = (0..len).step_by(BLOCK_BYTES as usize);
        let block = |start: u64| {
            let end = (start + BLOCK_BYTES).min(len);
            (start / BLOCK_BYTES, Block::Shared(bytes.slice(start as usize..end as usize)))
        };
        Blocks { len, held: len, map: starts.map(block).collect() }
    }

    /// The pieces of `range`, one for each block it touches: block number and
    /// the place within it.
    fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        blocks.map(move |number| {
            let start = number * BLOCK_BYTES;
            let from = range.start.max(start) - start;
            let to = range.end.min(start + BLOCK_BYTES) - start;
            (number, from as usize..to as usize)
        })
    }

    fn read(&self, range: Range<u64>) -> Bytes {
        if range.is_empty() {
            return Bytes::new();
        }
        let one_block = range.start / BLOCK_BYTES == (range.end - 1) / BLOCK_BYTES;
        if one_block && let Some(Block::Shared(bytes)) = self.map.get(&(range.start / BLOCK_BYTES))
        {
            let from = (range.start % BLOCK_BYTES) as usize;
            let to = from + (range.end - range.start) as usize;
            if to <= bytes.len() {
                return bytes.slice(from..to);
            }
        }
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        for (number, part) in Blocks::pieces(range) {
            let block = self.map.get(&number).map_or(&[][..], Block::bytes);
            let there = block.get(part.start.min(block.len())..part.end.min(block.len()));
            let there = there.unwrap_or_default();
            out.extend_from_slice(there);
            out.resize(out.len() + part.len() - there.len(), 0);
        }
        out.into()
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        let mut rest = data;
        for (number, part) in Blocks::pieces(at..end) {
            let (piece, after) = rest.split_at(part.len());
            rest = after;
            if !self.map.contains_key(&number) {
                self.map.insert(number, Block::Own(Arc::default()));
            }
            let block = self.map.get_mut(&number).expect("put there above").edit();
            let before = block.len();
            if block.len() < part.start {
                block.resize(part.start, 0);
            }
            // What lies behind its end is not cleared before it is written.
            let (over, behind) = piece.split_at(piece.len().min(block.len() - part.start));
            block[part.start..part.start + over.len()].copy_from_slice(over);
            block.extend_from_slice(behind);
            self.held += (block.len() - before) as u64;
        }
        self.len = self.len.max(end);
    }

    fn punch(&mut self, range: Range<u64>) {
        // A large hole may span more blocks than there are.
        let touched = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let there: Vec<u64> = self.map.range(touched).map(|(number, _)| *number).collect();
        for number in there {
            let start = number * BLOCK_BYTES;
            let from = range.start.saturating_sub(start).min(BLOCK_BYTES) as usize;
            let to = (range.end - start).min(BLOCK_BYTES) as usize;
            let held = self.map.get(&number).map_or(0, |block| block.bytes().len());
            if from == 0 && to >= held {
                self.map.remove(&number);
                self.held -= held as u64;
            } else if from < held {
                let block = self.map.get_mut(&number).expect("it was there above").edit();
                block[from..to.min(held)].fill(0);
            }
        }
    }

    fn resize(&mut self, len: u64) {
        if len < self.len {
            let keep = len.div_ceil(BLOCK_BYTES);
            let (mut kept, _) = self.map.split(&keep);
            let (last, within) = (len / BLOCK_BYTES, (len % BLOCK_BYTES) as usize);
            if let Some(block) = kept.get_mut(&last)
                && block.bytes().len() > within
            {
                match block {
                    Block::Shared(bytes) => bytes.truncate(within),
                    Block::Own(bytes) => Arc::make_mut(bytes).truncate(within),
                }
            }
            self.held = kept.values().map(|block| block.bytes().len() as u64).sum();
            self.map = kept;
        }
        self.len = len;
    }

    /// A file of such pieces; `None` if they are not blocks of one.
    pub(crate) fn of_pieces(len: u64, pieces: Vec<(u64, Bytes)>) -> Option<Blocks> {
        let mut blocks = Blocks { len, held: 0, map: OrdMap::new() };
        for (at, bytes) in pieces {
            let size = bytes.len() as u64;
            if at % BLOCK_BYTES != 0 || size > BLOCK_BYTES || at + size > len {
                return None;
            }
            blocks.held += size;
            blocks.map.insert(at / BLOCK_BYTES, Block::Shared(bytes));
        }
        (blocks.map.values().map(|block| block.bytes().len() as u64).sum::<u64>() == blocks.held)
            .then_some(blocks)
    }

    /// The blocks there are, and where they begin.
    pub(crate) fn pieces_held(&self) -> Vec<(u64, Bytes)> {
        let blocks = self.map.iter().map(|(number, block)| {
            let bytes = match block {
                Block::Shared(bytes) => bytes.clone(),
                Block::Own(bytes) => Bytes::from_owner(Shared(bytes.clone())),
            };
            (number * BLOCK_BYTES, bytes)
        });
        blocks.collect()
    }

    fn extents(&self) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        for (number, block) in &self.map {
            let start = number * BLOCK_BYTES;
            let end = (start + block.bytes().len() as u64).min(self.len);
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
        }
        out
    }

    fn same(&self, other: &Blocks) -> bool {
        let blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let equal = |a: &[u8], b: &[u8]| {
            let common = a.len().min(b.len());
            a[..common] == b[..common] && blank(&a[common..]) && blank(&b[common..])
        };
        let side = |blocks: &Blocks, number: &u64| blocks.map.get(number).cloned();
        let bytes = |block: &Option<Block>| block.as_ref().map_or(Vec::new(), |b| b.bytes().into());
        self.len == other.len
            && self.map.keys().chain(other.map.keys()).all(|number| {
                let (a, b) = (side(self, number), side(other, number));
                match (&a, &b) {
                    (Some(Block::Own(a)), Some(Block::Own(b))) if Arc::ptr_eq(a, b) => true,
                    (Some(Block::Shared(a)), Some(Block::Shared(b)))
                        if a.as_ptr() == b.as_ptr() && a.len() == b.len() =>
                    {
                        true
                    }
                    (Some(a), Some(b)) => equal(a.bytes(), b.bytes()),
                    _ => equal(&bytes(&a), &bytes(&b)),
                }
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A plain vector, as the reference.
    fn agree(content: &Content, plain: &[u8], what: &str) {
        assert_eq!(content.len(), Some(plain.len() as u64), "{what}");
        assert!(content.whole().unwrap() == plain, "{what}: other bytes");
    }

    fn write(plain: &mut Vec<u8>, at: usize, data: &[u8]) {
        if plain.len() < at + data.len() {
            plain.resize(at + data.len(), 0);
        }
        plain[at..at + data.len()].copy_from_slice(data);
    }

    #[test]
    fn random_writes_and_cuts_agree_with_a_plain_vector() {
        let mut seed = 7u64;
        let mut dice = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..40 {
            let start = vec![round as u8; dice(200_000) as usize];
            let (mut content, mut plain) = (Content::Whole(start.clone().into()), start);
            for step in 0..60 {
                let at = dice(300_000);
                match dice(4) {
                    0 => {
                        content.resize(at).unwrap();
                        plain.resize(at as usize, 0);
                    }
                    1 => {
                        let end = at + dice(200_000);
                        content.punch(at..end);
                        let end = plain.len().min(end as usize);
                        plain.get_mut(at as usize..end).unwrap_or_default().fill(0);
                    }
                    _ => {
                        let data = vec![step as u8 + 1; dice(90_000) as usize];
                        content.write(at, &data).unwrap();
                        if !data.is_empty() {
                            write(&mut plain, at as usize, &data);
                        }
                    }
                }
                let fork = content.clone();
                agree(&content, &plain, &format!("round {round} step {step}"));
                let (from, to) = (dice(300_000), dice(300_000));
                let part = content.range(from..to);
                let end = (to as usize).min(plain.len());
                let expect = plain.get(from as usize..end).unwrap_or_default();
                assert!(part == expect, "round {round} step {step}: {from}..{to}");
                assert_eq!(fork.same(&content), Some(true));
                assert_eq!(Content::Whole(plain.clone().into()).same(&content), Some(true));
            }
        }
    }

    #[test]
    fn a_write_into_a_fork_leaves_the_other_alone_and_copies_one_block() {
        let mut content = Content::Whole(vec![1; 1 << 20].into());
        content.write(5, b"x").unwrap();
        let fork = content.clone();
        content.write(700_000, b"yy").unwrap();
        assert_eq!(&fork.range(700_000..700_002)[..], [1, 1]);
        assert_eq!(&content.range(700_000..700_002)[..], b"yy");
        assert_eq!(fork.same(&content), Some(false));
    }

    #[test]
    fn a_large_file_that_was_cut_to_nothing_is_empty() {
        let mut content = Content::Whole(vec![1; 1 << 20].into());
        content.write(5, b"x").unwrap();
        content.resize(0).unwrap();
        assert_eq!(content.whole().unwrap(), "");
    }

    #[test]
    fn a_hole_takes_no_memory_and_reads_as_zeros() {
        let mut content = Content::empty();
        content.write(1 << 40, b"end").unwrap();
        assert_eq!(content.len(), Some((1 << 40) + 3));
        assert!(content.held() < 2 * BLOCK_BYTES);
        assert_eq!(&content.range(100..103)[..], [0, 0, 0]);
        assert_eq!(content.extents().len(), 1);
        assert_eq!(content.whole().unwrap_err().kind, Kind::TooLarge);
        assert_eq!(content.write(u64::MAX, b"x").unwrap_err().kind, Kind::TooLarge);
        assert_eq!(content.resize(FILE_BYTES_MAX + 1).unwrap_err().kind, Kind::TooLarge);
    }
}
