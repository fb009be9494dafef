//! Two entries that change places in one step.

use crate::entry::Entry;
use crate::error::{Fault, FsError, Kind};
use crate::view::{Vfs, now_ns};
use crate::walk::Last;
use crate::write::{check_gone, is_below};

impl Vfs {
    /// Lets two entries change places, whatever they are, as renameat2(2)
    /// does with `RENAME_EXCHANGE`.
    pub fn exchange(&self, one: impl AsRef<[u8]>, two: impl AsRef<[u8]>) -> Result<(), FsError> {
        self.exchange_names(one.as_ref(), two.as_ref()).map(drop)
    }

    /// Their inodes, as the names lead to them from now on.
    pub(crate) fn exchange_names(&self, one: &[u8], two: &[u8]) -> Result<[u64; 2], FsError> {
        let now = now_ns();
        self.writing(one, |state, answers| {
            let first = state.find(one, Last::Name, answers)?;
            let second = state.find(two, Last::Name, answers)?;
            first.reached()?;
            second.reached()?;
            check_gone(&first)?;
            check_gone(&second)?;
            let (one, two) = (first.into_place(), second.into_place());
            if is_below(&one, &two) || is_below(&two, &one) {
                return Err(Fault::because(Kind::Invalid, "one holds the other").into());
            }
            let there = |place: &[u8]| -> Result<Entry, crate::source::Stop> {
                Ok(state.top.peek(place, answers)?.ok_or(Kind::NotFound)?)
            };
            let (a, b) = (there(&one)?, there(&two)?);
            let inodes = [b.inode(), a.inode()];
            if one == two {
                return Ok(inodes);
            }
            let (weight_a, weight_b) = (Some(a.weight()), Some(b.weight()));
            state.top.put(&two, a, weight_b, answers, now)?;
            if let Err(stop) = state.top.put(&one, b.clone(), weight_a, answers, now) {
                // Too deep where it would go: back to where it was.
                state.top.put(&two, b, weight_a, answers, now)?;
                return Err(stop);
            }
            Ok(inodes)
        })
    }
}
