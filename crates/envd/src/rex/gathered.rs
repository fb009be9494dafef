//! Bytes that programs write, as far as they are kept: what does not fit is cut
//! out of the middle, and where it was is said.

/// What is kept of one stream.
pub const KEPT_BYTES_MAX: usize = 16 << 20;
/// So much more is taken before anything is cut, so that cutting is rare.
const SLACK: usize = 4 << 20;

/// What came so far and nobody has taken.
#[derive(Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    /// Where something is missing, and how much.
    cut: Option<(usize, u64)>,
}

impl Gathered {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
        if self.bytes.len() <= KEPT_BYTES_MAX + SLACK {
            return;
        }
        let half = KEPT_BYTES_MAX / 2;
        let missing = self.bytes.len() - KEPT_BYTES_MAX;
        self.bytes.drain(half..half + missing);
        let before = self.cut.map_or(0, |(_, count)| count);
        self.cut = Some((half, before + missing as u64));
    }

    /// What stands before `end`; what stands between there and `next` goes.
    pub fn take(&mut self, end: usize, next: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(next);
        let mut taken = std::mem::replace(&mut self.bytes, rest);
        taken.truncate(end);
        if let Some((at, count)) = self.cut.take() {
            let mark = format!("\n[{count} bytes are left out here]\n");
            let at = at.min(taken.len());
            taken.splice(at..at, mark.into_bytes());
        }
        taken
    }

    pub fn take_all(&mut self) -> Vec<u8> {
        self.take(self.bytes.len(), self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_cut_out_of_the_middle_and_said() {
        let mut gathered = Gathered::default();
        gathered.push(b"first ");
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            gathered.push(&chunk);
        }
        gathered.push(b" last");
        let all = String::from_utf8(gathered.take_all()).expect("it is text");
        assert!(all.starts_with("first x") && all.ends_with("x last"));
        assert!(all.len() < KEPT_BYTES_MAX + SLACK + 100);
        let mark = all.find(" bytes are left out here]").expect("it is said");
        let count: usize = all[..mark].rsplit('[').next().expect("a number").parse().expect("one");
        let said = format!("\n[{count} bytes are left out here]\n");
        assert_eq!(all.len() - said.len() + count, (40 << 20) + 11);
        assert!(gathered.take_all().is_empty());
    }

    #[test]
    fn a_part_is_taken_and_the_rest_stays() {
        let mut gathered = Gathered::default();
        gathered.push(b"before|after");
        assert_eq!(gathered.take(6, 7), b"before");
        assert_eq!(gathered.bytes(), b"after");
    }
}
