//! Which point is whose.

use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::{Condition, Filter, PointId, RepeatedStrings};
use sha2::{Digest, Sha256};

/// The point of a piece of a record.
pub(super) fn piece_id(place: &str, key: &str, chunk: usize) -> PointId {
    id(&["piece", place, key, &chunk.to_string()])
}

/// The point that says how far a place was brought.
pub(super) fn mark_id(place: &str) -> PointId {
    id(&["mark", place])
}

/// A UUID of version 8: 122 bits of a digest.
fn id(parts: &[&str]) -> PointId {
    let mut hasher = Sha256::new();
    for part in parts {
        // With their lengths, so that no two lists are the same bytes.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let mut bytes: Vec<u8> = digest.iter().take(16).copied().collect();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    PointId::from(parts.join("-"))
}

/// Every piece of every record of a place. The mark has no place, and so is
/// never among them.
pub(super) fn in_place(place: &str) -> Filter {
    // Said outright: what has a space in it would be taken for a text to search.
    let place = MatchValue::Keyword(place.to_owned());
    Filter::must([Condition::matches("place", place)])
}

/// The first piece of every record of a place: one point for each.
pub(super) fn first_pieces(place: &str) -> Filter {
    let mut filter = in_place(place);
    filter.must.push(Condition::matches("chunk", 0i64));
    filter
}

/// Of some records.
pub(super) fn of(mut filter: Filter, keys: &[String]) -> Filter {
    let keys = MatchValue::Keywords(RepeatedStrings { strings: keys.to_vec() });
    filter.must.push(Condition::matches("key", keys));
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_that_follow_from_what_they_stand_for() {
        let text = |id: PointId| format!("{:?}", id.point_id_options);
        let all = [
            piece_id("a", "b", 0),
            piece_id("a", "b", 1),
            piece_id("ab", "", 0),
            piece_id("", "ab", 0),
            mark_id("a"),
        ];
        let all: Vec<String> = all.into_iter().map(text).collect();
        for one in &all {
            assert_eq!(all.iter().filter(|other| *other == one).count(), 1, "{one}");
        }
        assert_eq!(text(piece_id("a", "b", 1)), all[1]);
        assert!(all[0].contains("Uuid") && all[0].matches('-').count() == 4, "{}", all[0]);
    }
}
