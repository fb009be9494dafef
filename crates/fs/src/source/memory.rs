//! Bytes that the embedding program holds.

use super::index::Index;
use super::{Ask, Item, ItemKind, Source};
use crate::error::Fault;
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::ops::Range;

/// A map of paths to bytes as a source.
#[derive(Default)]
pub struct Memory {
    index: Index<Bytes>,
}

impl Memory {
    /// A source with these files, and the directories above them.
    pub fn new<P: AsRef<[u8]>, C: Into<Bytes>>(
        files: impl IntoIterator<Item = (P, C)>,
    ) -> Result<Memory, Fault> {
        let mut memory = Memory::default();
        for (path, content) in files {
            let content = content.into();
            let item = Item::new("", ItemKind::File(Some(content.len() as u64)));
            memory.index.put(&super::parse(path.as_ref())?, item, Some(content))?;
        }
        Ok(memory)
    }
}

impl Source for Memory {
    fn kind(&self) -> &str {
        "memory"
    }

    fn list(&self, at: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        self.index.list(at)
    }

    fn read(&self, at: &SandboxPath, _: &Ask) -> Result<Bytes, Fault> {
        self.index.file(at).cloned()
    }

    fn read_range(
        &self,
        at: &SandboxPath,
        range: Range<u64>,
        _: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        let bytes = self.index.file(at)?;
        let end = range.end.min(bytes.len() as u64);
        Ok(Some(bytes.slice(range.start.min(end) as usize..end as usize)))
    }

    fn rereads(&self) -> bool {
        true
    }
}
