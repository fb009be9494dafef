//! Names for sandboxes: those that somebody chose, and those for the others.

use fractal_model::{Error, Id, Name, Result};

const FIRST: [&str; 32] = [
    "amber", "brave", "calm", "clear", "cool", "crisp", "dawn", "deep", "early", "fair", "fine",
    "fresh", "glad", "gold", "green", "keen", "kind", "late", "light", "lively", "mild", "neat",
    "noble", "proud", "quick", "quiet", "rapid", "sharp", "sunny", "swift", "vivid", "warm",
];
const SECOND: [&str; 32] = [
    "acorn", "aspen", "birch", "brook", "cedar", "clover", "coral", "delta", "ember", "fern",
    "finch", "fjord", "grove", "harbor", "heron", "iris", "lark", "lotus", "maple", "meadow",
    "otter", "pine", "quartz", "reef", "ridge", "robin", "sage", "spruce", "stone", "tide",
    "willow", "wren",
];

/// What promotions call the machine itself.
const REALITY: &str = "reality";

/// A name that a sandbox may have.
pub fn read(text: &str) -> Result<String> {
    if text == REALITY {
        return Err(Error::invalid(format!("`{REALITY}` is what is outside of all sandboxes"))
            .hint("choose another name"));
    }
    Name::parse(text).map(|name| name.to_string())
}

/// `calm-otter-7k2`, from the random part of an id.
pub fn for_id(id: Id) -> String {
    let text = id.as_str().as_bytes();
    let number = |from: usize| {
        text[from..from + 4].iter().fold(0usize, |sum, byte| sum * 31 + usize::from(*byte))
    };
    let tail = id.as_str()[23..].to_lowercase();
    format!("{}-{}-{tail}", FIRST[number(12) % 32], SECOND[number(17) % 32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_differ() {
        let name = |random: [u8; 10]| for_id(Id::from_parts(1, random));
        assert!(read(&name([7; 10])).is_ok());
        assert!(read("reality").is_err() && read("../x").is_err());
        assert_ne!(name([1; 10]), name([2; 10]));
    }
}
