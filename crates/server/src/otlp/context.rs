//! Which trace something belongs to: ids, and how a client says that its own
//! trace goes on here (W3C Trace Context, `traceparent`).

use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;

/// The header in which a client says it.
pub const TRACEPARENT: &str = "traceparent";

/// An id of so many bytes; never all zero, which means none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>([u8; N]);

impl<const N: usize> Hex<N> {
    /// A new one. Without dice there is none, and nothing is traced.
    pub fn random() -> Option<Hex<N>> {
        let mut bytes = [0; N];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Hex::some(bytes)
    }

    fn some(bytes: [u8; N]) -> Option<Hex<N>> {
        bytes.iter().any(|byte| *byte != 0).then_some(Hex(bytes))
    }

    /// From lower-case digits, as the standard wants them.
    fn parse(text: &str) -> Option<Hex<N>> {
        bytes(text).and_then(Hex::some)
    }
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A span and the trace that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: Hex<16>,
    pub span: Hex<8>,
}

/// What a client says of its trace.
#[derive(Debug, PartialEq, Eq)]
pub enum Parent {
    /// It goes on here.
    Traced(Context),
    /// Nobody looks at it, and nobody wants to see our part.
    Unwanted,
    /// It says nothing, or nothing that reads: a trace starts here.
    None,
}

impl Parent {
    /// Reads `traceparent`. Later versions may have more parts, so those of
    /// theirs that we know are read, and the version `ff` is none.
    pub fn read(header: Option<&str>) -> Parent {
        let parts: Vec<&str> = header.unwrap_or_default().split('-').collect();
        let [version, trace, span, flags, rest @ ..] = &parts[..] else { return Parent::None };
        match bytes(version) {
            None | Some([0xff]) => return Parent::None,
            Some([0]) if !rest.is_empty() => return Parent::None,
            Some([_]) => {}
        }
        let (Some(trace), Some(span)) = (Hex::parse(trace), Hex::parse(span)) else {
            return Parent::None;
        };
        match bytes(flags) {
            Some([flags]) if flags & 1 == 1 => Parent::Traced(Context { trace, span }),
            Some(_) => Parent::Unwanted,
            None => Parent::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_trace_goes_on_where_its_header_reads() {
        let traced = Parent::Traced(Context {
            trace: Hex::parse(TRACE).expect("an id"),
            span: Hex::parse(SPAN).expect("an id"),
        });
        let check = |text: &str, expect: &Parent| {
            assert_eq!(Parent::read(Some(text)), *expect, "{text}");
        };
        check(&format!("00-{TRACE}-{SPAN}-01"), &traced);
        check(&format!("00-{TRACE}-{SPAN}-03"), &traced);
        check(&format!("01-{TRACE}-{SPAN}-01-more"), &traced);
        check(&format!("00-{TRACE}-{SPAN}-00"), &Parent::Unwanted);
        for broken in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}é-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}-{SPAN}-1"),
        ] {
            check(&broken, &Parent::None);
        }
        assert_eq!(Parent::read(None), Parent::None);
    }

    #[test]
    fn ids_are_written_as_they_are_read() {
        assert_eq!(Hex::<16>::parse(TRACE).expect("an id").to_string(), TRACE);
        let random = Hex::<8>::random().expect("there are dice");
        assert_eq!(Hex::parse(&random.to_string()), Some(random));
    }
}
