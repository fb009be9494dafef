//! Names as git prints them: in C quotes when they hold odd bytes.

use fractal_model::SandboxPath;

/// The name with its prefix, quoted if it has to be.
pub(super) fn name(prefix: &str, path: &SandboxPath) -> Vec<u8> {
    let bytes = path.relative();
    let mut out = prefix.as_bytes().to_vec();
    if !bytes.iter().any(|byte| is_odd(*byte)) {
        out.extend_from_slice(bytes);
        return out;
    }
    out.insert(0, b'"');
    bytes.iter().for_each(|byte| push(&mut out, *byte));
    out.push(b'"');
    out
}

/// The name on a `---` or `+++` line, where a tab ends a name with spaces.
pub(super) fn label(name: &[u8]) -> Vec<u8> {
    let mut out = name.to_vec();
    if name.contains(&b' ') {
        out.push(b'\t');
    }
    out
}

fn is_odd(byte: u8) -> bool {
    !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\'
}

fn push(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        _ if is_odd(byte) => return out.extend(format!("\\{byte:03o}").bytes()),
        _ => return out.push(byte),
    };
    out.extend([b'\\', letter]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bytes_are_quoted() {
        let check = |path: &[u8], expect: &str| {
            let path = SandboxPath::parse(path).expect("a valid path");
            assert_eq!(String::from_utf8_lossy(&name("a/", &path)), expect);
        };
        check(b"x/y z", "a/x/y z");
        check(b"t\tn\nq\"b\\", r#""a/t\tn\nq\"b\\""#);
        check("ü".as_bytes(), r#""a/\303\274""#);
        check(b"\x01\x7f\xff", r#""a/\001\177\377""#);
    }
}
