//! What doors for other programs need besides the verbs: the engine's own
//! numbers, and answers that are safe to ask for again.

use crate::{Caller, Engine, Result, verbs};
use fractal_model::{Given, Id, SandboxInfo, Verb};
use fractal_store::{Census, now_ms};
use sha2::{Digest, Sha256};

/// A mark of some bytes, piece by piece: pieces cannot be mistaken for others
/// that make the same text together.
pub fn fingerprint(pieces: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for piece in pieces {
        hasher.update((piece.len() as u64).to_be_bytes());
        hasher.update(piece);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name for a sandbox that nobody named.
pub fn new_name() -> String {
    crate::names::for_id(fractal_store::new_id())
}

impl Engine {
    /// How much there is.
    pub fn census(&self) -> Result<Census> {
        self.ready()?;
        Ok(self.store.census()?)
    }

    /// How many sandboxes there are, if they are `most` or more.
    pub fn sandboxes_beyond(&self, most: u64) -> Result<Option<u64>> {
        self.ready()?;
        Ok(self.store.sandboxes_beyond(most)?)
    }

    /// A page of `list`: sandboxes that follow the one with the id `after`,
    /// and the id to go on from, where there are more.
    pub fn list_page(
        &self,
        caller: &Caller,
        after: Option<Id>,
        limit: usize,
    ) -> Result<(Vec<SandboxInfo>, Option<Id>)> {
        self.ready()?;
        self.authorize(caller, Verb::List)?;
        let done = verbs::list::page(self, caller, after, limit);
        self.noted(caller, Verb::List, done)
    }

    /// Bytes in all layers, measured now. Takes as long as there is much.
    pub fn measure_layers(&self) -> Result<u64> {
        self.ready()?;
        Ok(self.store.measure_layers()?)
    }

    /// The answer that an asker was given before under this key.
    pub fn given(&self, asker: &str, key: &str) -> Result<Option<Given>> {
        self.ready()?;
        Ok(self.store.given(asker, key, now_ms())?)
    }

    /// Keeps an answer for a day.
    pub fn give(&self, asker: &str, key: &str, given: &Given) -> Result<()> {
        self.ready()?;
        Ok(self.store.give(asker, key, given, now_ms())?)
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn pieces_keep_their_borders() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        assert_eq!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"ab", b"c"]));
    }
}
