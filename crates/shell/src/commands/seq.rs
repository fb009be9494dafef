//! `seq` of whole numbers, however many; bashkit's stops at 100,000.

use super::Instead;
use crate::command::{Call, Output};

/// First, step and last.
fn numbers(call: &Call) -> Option<(i64, i64, i64)> {
    let whole = |text: &String| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let padded = digits.len() > 1 && digits.starts_with('0');
        (plain && !padded && digits.len() < 18).then(|| text.parse().ok()).flatten()
    };
    let numbers: Vec<i64> = call.args.iter().map(whole).collect::<Option<_>>()?;
    match numbers[..] {
        [last] => Some((1, 1, last)),
        [first, last] => Some((first, 1, last)),
        [first, step, last] if step != 0 => Some((first, step, last)),
        _ => None,
    }
}

pub(super) fn instead(call: &Call) -> Option<Instead> {
    numbers(call).is_none().then_some(Instead::Bashkits)
}

pub(super) fn call(call: &Call) -> Output {
    const BYTES_MAX: usize = 256 << 20;
    let Some((first, step, last)) = numbers(call) else {
        return Output::fail(1, "seq: invalid number\n");
    };
    let (mut out, mut next) = (Output::default(), first);
    let mut count = 0u64;
    while if step > 0 { next <= last } else { next >= last } {
        out.stdout.extend_from_slice(next.to_string().as_bytes());
        out.stdout.push(b'\n');
        next += step;
        count += 1;
        if count.is_multiple_of(1 << 16) && (call.stopped() || out.stdout.len() > BYTES_MAX) {
            out.complain(1, "seq: write error: stopped");
            break;
        }
    }
    out
}
