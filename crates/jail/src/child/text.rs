//! Paths and numbers on the stack, for where nothing may allocate.

use std::ffi::CStr;

/// `/proc/<pid>/<file>` without allocation.
pub(crate) struct PathBuffer(TextBuffer<48>);

impl PathBuffer {
    pub fn new() -> PathBuffer {
        PathBuffer(TextBuffer::new())
    }

    /// `/proc/<pid>/fd/<fd>`.
    pub fn proc_descriptor(&mut self, pid: i32, fd: i32) -> &CStr {
        self.0.clear();
        self.0.push(b"/proc/");
        self.0.push_number(pid as u64);
        self.0.push(b"/fd/");
        self.0.push_number(fd as u64);
        self.0.push(b"\0");
        CStr::from_bytes_until_nul(self.0.bytes()).unwrap_or(c"/proc/self/none")
    }

    /// The name of a descriptor of ours that leads to just what it holds.
    pub fn own_descriptor(&mut self, fd: i32) -> &CStr {
        self.0.clear();
        self.0.push(b"/proc/self/fd/");
        self.0.push_number(fd as u64);
        self.0.push(b"\0");
        CStr::from_bytes_until_nul(self.0.bytes()).unwrap_or(c"/proc/self/none")
    }

    /// The same for a directory; for anything else the name of nothing.
    pub fn own_directory(&mut self, fd: i32) -> &CStr {
        self.0.clear();
        self.0.push(b"/proc/self/fd/");
        self.0.push_number(fd as u64);
        self.0.push(b"/.\0");
        CStr::from_bytes_until_nul(self.0.bytes()).unwrap_or(c"/proc/self/none")
    }

    pub fn proc(&mut self, pid: i32, file: &[u8]) -> &CStr {
        self.0.clear();
        self.0.push(b"/proc/");
        self.0.push_number(pid as u64);
        self.0.push(b"/");
        self.0.push(file);
        self.0.push(b"\0");
        CStr::from_bytes_until_nul(self.0.bytes()).unwrap_or(c"/proc/self/none")
    }
}

/// Text on the stack; what does not fit is cut.
pub(super) struct TextBuffer<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> TextBuffer<N> {
    pub fn new() -> Self {
        TextBuffer { bytes: [0; N], used: 0 }
    }

    pub fn clear(&mut self) {
        self.used = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    pub fn push(&mut self, text: &[u8]) {
        let count = text.len().min(N - self.used);
        self.bytes[self.used..self.used + count].copy_from_slice(&text[..count]);
        self.used += count;
    }

    pub fn push_number(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }

    pub fn map_line(&mut self, (inside, outside, count): (u32, u32, u32)) -> &[u8] {
        self.clear();
        for value in [inside, outside, count] {
            self.push_number(u64::from(value));
            self.push(b" ");
        }
        self.push(b"\n");
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_built_on_the_stack() {
        let mut path = PathBuffer::new();
        assert_eq!(path.proc(1234, b"uid_map"), c"/proc/1234/uid_map");
        assert_eq!(path.proc(7, b"ns/mnt"), c"/proc/7/ns/mnt");
        let mut line = TextBuffer::<64>::new();
        assert_eq!(line.map_line((0, 100_000, 65_536)), b"0 100000 65536 \n");
        line.clear();
        line.push_number(0);
        line.push_number(u64::MAX);
        assert_eq!(line.bytes(), b"018446744073709551615");
    }
}
