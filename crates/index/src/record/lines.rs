//! Which line a byte lies on.

/// Where the lines of a text begin.
pub(super) struct Lines {
    starts: Vec<usize>,
    first: u32,
}

impl Lines {
    /// The lines of `text`, of which the first has the number `first`.
    pub(super) fn of(text: &str, first: u32) -> Lines {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Lines { starts, first }
    }

    /// The number of the line on which a byte lies.
    pub(super) fn at(&self, byte: usize) -> u32 {
        let before = self.starts.partition_point(|start| *start <= byte).saturating_sub(1);
        self.first.saturating_add(u32::try_from(before).unwrap_or(u32::MAX))
    }
}

/// How many lines end before a byte.
pub(super) fn ended_before(bytes: &[u8], at: usize) -> u32 {
    let breaks = bytes[..at].iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(breaks).unwrap_or(u32::MAX)
}
