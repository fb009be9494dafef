//! A file of tensors: a head in JSON that says where each lies, then numbers.
//!
//! Tensors are read by position and one at a time, so that a file is never in
//! memory as a whole. The head is not trusted: every range is checked against
//! the length of the file before anything of its size is asked for, and
//! tensors may not lie over each other, so that no more numbers are read than
//! the file has.

use super::EmbedError;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A head is some kilobytes; the largest models have some hundred.
const HEAD_BYTES_MAX: u64 = 8 << 20;

/// What is converted at a time; it stays in the cache of a core.
const PIECE_BYTES: usize = 128 << 10;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32,
    F16,
    Bf16,
    Other,
}

impl Kind {
    fn of(name: &str) -> Kind {
        match name {
            "F32" => Kind::F32,
            "F16" => Kind::F16,
            "BF16" => Kind::Bf16,
            _ => Kind::Other,
        }
    }

    fn bytes(self) -> u64 {
        if self == Kind::F32 { 4 } else { 2 }
    }
}

/// Where a tensor lies and what it is.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    name: String,
    kind: Kind,
    kind_name: String,
    shape: Vec<u64>,
    start: u64,
    end: u64,
}

impl Tensor {
    /// How long it is in each of its directions.
    pub(super) fn shape(&self) -> &[u64] {
        &self.shape
    }
}

/// An open file of tensors.
#[derive(Debug)]
pub(super) struct Tensors {
    file: File,
    place: String,
    by_name: HashMap<String, Tensor>,
}

impl Tensors {
    pub(super) fn open(path: &Path) -> Result<Tensors, EmbedError> {
        let place = path.display().to_string();
        let file = File::open(path).map_err(|error| EmbedError::model(&place, error))?;
        let by_name = head(&file).map_err(|why| EmbedError::model(&place, why))?;
        Ok(Tensors { file, place, by_name })
    }

    /// A tensor by name, if it has numbers that can be read.
    pub(super) fn get(&self, name: &str) -> Result<&Tensor, EmbedError> {
        let found = self.by_name.get(name);
        let tensor = found.ok_or_else(|| self.wrong(format!("it has no tensor {name}")))?;
        match tensor.kind {
            Kind::Other => Err(self.wrong(format!(
                "{name} is made of {}; only F32, F16 and BF16 can be read",
                tensor.kind_name
            ))),
            _ => Ok(tensor),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// All numbers of a tensor of exactly this shape.
    pub(super) fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EmbedError> {
        let mut out = Vec::new();
        self.read_into(name, shape, &mut out)?;
        Ok(out)
    }

    /// The same, behind what was read before.
    pub(super) fn read_into(
        &self,
        name: &str,
        shape: &[usize],
        out: &mut Vec<f32>,
    ) -> Result<(), EmbedError> {
        let tensor = self.get(name)?;
        if !tensor.shape.iter().copied().eq(shape.iter().map(|&side| side as u64)) {
            let found = &tensor.shape;
            return Err(self.wrong(format!("{name} has the shape {found:?}, not {shape:?}")));
        }
        let count = (tensor.end - tensor.start) / tensor.kind.bytes();
        out.reserve_exact(count as usize);
        let mut piece = vec![0; PIECE_BYTES.min((tensor.end - tensor.start) as usize)];
        let mut at = tensor.start;
        while at < tensor.end {
            let length = PIECE_BYTES.min((tensor.end - at) as usize);
            self.fill(&mut piece[..length], at)?;
            convert(tensor.kind, &piece[..length], out);
            at += length as u64;
        }
        Ok(())
    }

    /// One row of a table; the row is within the table.
    pub(super) fn row(
        &self,
        tensor: &Tensor,
        row: u64,
        out: &mut Vec<f32>,
    ) -> Result<(), EmbedError> {
        let width = tensor.shape.last().copied().unwrap_or(0) * tensor.kind.bytes();
        let start = tensor.start + row * width;
        if start + width > tensor.end {
            return Err(self.wrong(format!("{} has no row {row}", tensor.name)));
        }
        let mut bytes = vec![0; width as usize];
        self.fill(&mut bytes, start)?;
        convert(tensor.kind, &bytes, out);
        Ok(())
    }

    fn fill(&self, out: &mut [u8], at: u64) -> Result<(), EmbedError> {
        let read = self.file.read_exact_at(out, at);
        read.map_err(|error| self.wrong(error))
    }

    fn wrong(&self, why: impl ToString) -> EmbedError {
        EmbedError::model(&self.place, why)
    }
}

fn head(file: &File) -> Result<HashMap<String, Tensor>, String> {
    let short = "it is too short to be a file of tensors";
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut prefix = [0; 8];
    file.read_exact_at(&mut prefix, 0).map_err(|_| short)?;
    let size = u64::from_le_bytes(prefix);
    if size > HEAD_BYTES_MAX {
        return Err(format!("its head is {size} bytes long, more than {HEAD_BYTES_MAX}"));
    }
    let data = length.checked_sub(8 + size).ok_or(short)?;
    let mut json = vec![0; size as usize];
    file.read_exact_at(&mut json, 8).map_err(|error| error.to_string())?;
    let json: serde_json::Map<String, Value> =
        serde_json::from_slice(&json).map_err(|error| format!("its head is not JSON: {error}"))?;
    let mut by_name = HashMap::new();
    for (name, about) in &json {
        if name != "__metadata__" {
            let tensor = tensor(name, about, 8 + size, data)?;
            by_name.insert(name.clone(), tensor);
        }
    }
    check_apart(by_name.values())?;
    Ok(by_name)
}

fn tensor(name: &str, about: &Value, offset: u64, data: u64) -> Result<Tensor, String> {
    let numbers = |key: &str| -> Option<Vec<u64>> {
        about.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let strange = || format!("its head does not say what {name} is");
    let kind_name = about.get("dtype").and_then(Value::as_str).ok_or_else(strange)?;
    let shape = numbers("shape").ok_or_else(strange)?;
    let range = numbers("data_offsets").ok_or_else(strange)?;
    let &[start, end] = range.as_slice() else { return Err(strange()) };
    if start > end || end > data {
        return Err(format!("{name} lies outside of the file"));
    }
    let kind = Kind::of(kind_name);
    let size = shape.iter().try_fold(kind.bytes(), |all, &side| all.checked_mul(side));
    if kind != Kind::Other && size != Some(end - start) {
        return Err(format!("{name} is not as long as its shape says"));
    }
    let (start, end) = (offset + start, offset + end);
    Ok(Tensor { name: name.to_owned(), kind, kind_name: kind_name.to_owned(), shape, start, end })
}

fn check_apart<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<(), String> {
    let mut ranges: Vec<_> = tensors.map(|tensor| (tensor.start, tensor.end)).collect();
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    match ranges.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        true => Err("its tensors lie over each other".to_owned()),
        false => Ok(()),
    }
}

fn convert(kind: Kind, bytes: &[u8], out: &mut Vec<f32>) {
    let halves = || bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    match kind {
        Kind::F32 => {
            out.extend(bytes.as_chunks::<4>().0.iter().map(|one| f32::from_le_bytes(*one)))
        }
        Kind::Bf16 => out.extend(halves().map(|half| f32::from_bits(u32::from(half) << 16))),
        Kind::F16 | Kind::Other => out.extend(halves().map(from_f16)),
    }
}

fn from_f16(half: u16) -> f32 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (u32::from(half >> 10) & 31, u32::from(half) & 0x3ff);
    match exponent {
        // Without an exponent: a fraction of 2^-14.
        0 => sign * fraction as f32 * 2f32.powi(-24),
        31 if fraction == 0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * f32::from_bits((exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_as_the_standard_says() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -6.097_555e-5),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
        ];
        for (half, expect) in cases {
            assert_eq!(from_f16(half), expect, "{half:#06x}");
        }
        assert!(from_f16(0x7e00).is_nan());
    }
}
