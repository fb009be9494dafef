//! The entries of a tar, read from its stream.
//!
//! The crate `tar` knows the fields of a header; how headers follow each
//! other is read here, because extended attributes may hold any byte and
//! nothing may take more memory than agreed.

use super::store::Stream;
use super::{ArchiveBounds, Count, Member, MemberKind, Place, broken, corrupt, path_of, target_of};
use crate::content::FILE_BYTES_MAX;
use crate::error::{Fault, Kind};
use ::tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;

const BLOCK: u64 = 512;

/// The most bytes that one entry may bring beside its content: long names and
/// extended attributes.
const EXTRA_BYTES_MAX: u64 = 4 << 20;

/// The most places with data that a file with holes may have.
const PIECES_MAX: usize = 100_000;

pub(super) fn scan(stream: &mut Stream, bounds: &ArchiveBounds) -> Result<Vec<Member>, Fault> {
    let mut scan = Scan { stream, at: 0 };
    let mut count = Count::new(bounds);
    let mut members = Vec::new();
    while let Some((header, extra)) = scan.next_header(&mut count)? {
        let member = scan.member(&header, extra)?;
        let size = match &member {
            Some(Member { kind: MemberKind::File(place), .. }) => place.held(),
            _ => 0,
        };
        count.add(size)?;
        members.extend(member);
    }
    Ok(members)
}

/// What headers before an entry's own tell about it.
#[derive(Default)]
struct Extra {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Scan<'a> {
    stream: &'a mut Stream,
    at: u64,
}

impl Scan<'_> {
    fn block(&mut self) -> Result<[u8; BLOCK as usize], Fault> {
        let mut block = [0; BLOCK as usize];
        self.stream.read_exact(&mut block).map_err(broken)?;
        self.at += BLOCK;
        Ok(block)
    }

    fn skip(&mut self, len: u64) -> Result<(), Fault> {
        self.stream.skip(len)?;
        self.at += len;
        Ok(())
    }

    /// The content of a header that tells about the next entry.
    fn extra(&mut self, header: &Header) -> Result<Vec<u8>, Fault> {
        let size = header.entry_size().map_err(broken)?;
        if size > EXTRA_BYTES_MAX {
            let reason = format!("a header of {size} bytes");
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        let mut out = vec![0; size as usize];
        self.stream.read_exact(&mut out).map_err(broken)?;
        self.at += size;
        self.skip(padding(size))?;
        Ok(out)
    }

    /// The next entry's own header; `None` at the end mark.
    fn next_header(&mut self, count: &mut Count) -> Result<Option<(Header, Extra)>, Fault> {
        let mut extra = Extra::default();
        loop {
            let block = self.block()?;
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block).clone();
            check_sum(&header)?;
            match header.entry_type() {
                EntryType::GNULongName => extra.path = Some(until_zero(self.extra(&header)?)),
                EntryType::GNULongLink => extra.link = Some(until_zero(self.extra(&header)?)),
                EntryType::XHeader => extra.records.extend(records(&self.extra(&header)?)?),
                // Of the whole archive; nothing that anybody writes there
                // is about an entry.
                EntryType::XGlobalHeader => drop(self.extra(&header)?),
                _ => return Ok(Some((header, extra))),
            }
            count.add(0)?;
            count.add_names(header.entry_size().map_err(broken)?)?;
        }
    }

    fn member(&mut self, header: &Header, extra: Extra) -> Result<Option<Member>, Fault> {
        let Extra { path, link, mut records } = extra;
        let text = |name: &str| records.get(name.as_bytes()).cloned();
        let path = text("GNU.sparse.name").or_else(|| text("path")).or(path);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = text("linkpath").or(link);
        let link = link.or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        let link = link.unwrap_or_default();
        let size = number(&records, "size")?;
        let size = size.map_or_else(|| header.entry_size().map_err(broken), Ok)?;
        let is_dir = path.ends_with(b"/");
        let path = path_of(&path)?;
        let kind = match header.entry_type() {
            EntryType::Directory => MemberKind::Dir,
            EntryType::Symlink => MemberKind::Link(target_of(&path, &link)?),
            EntryType::Link => MemberKind::Same(path_of(&link)?),
            EntryType::GNUSparse => MemberKind::File(self.old_sparse(header, size)?),
            // Old archives mark directories by a slash only.
            EntryType::Regular if is_dir => MemberKind::Dir,
            EntryType::Regular | EntryType::Continuous => {
                MemberKind::File(self.file(&records, size)?)
            }
            EntryType::Block | EntryType::Char | EntryType::Fifo => {
                let reason = format!("the archive holds a device or fifo at {path}");
                return Err(Fault::because(Kind::Unsupported, reason));
            }
            other => {
                let reason = format!("{path} is of the sort {:?}", other.as_byte() as char);
                return Err(Fault::because(Kind::Unsupported, reason));
            }
        };
        if !matches!(kind, MemberKind::File(_)) {
            self.skip(size.saturating_add(padding(size)))?;
        }
        let mtime = records.get(b"mtime".as_slice()).map(|text| nanoseconds(text)).transpose()?;
        let modified_ns = match mtime {
            Some(mtime) => mtime,
            None => (header.mtime().map_err(broken)? as i64).saturating_mul(1_000_000_000),
        };
        let uid = number(&records, "uid")?.map_or_else(|| header.uid().map_err(broken), Ok)?;
        let gid = number(&records, "gid")?.map_or_else(|| header.gid().map_err(broken), Ok)?;
        let xattrs = records.split_off(b"SCHILY.xattr.".as_slice());
        let xattrs = xattrs.into_iter().filter_map(|(name, value)| {
            name.strip_prefix(b"SCHILY.xattr.").map(|name| (name.to_vec(), value))
        });
        let xattrs = xattrs.collect();
        let mode = header.mode().map_err(broken)? & 0o7777;
        let owner = Some((uid as u32, gid as u32));
        Ok(Some(Member { path, kind, mode, owner, modified_ns, xattrs }))
    }

    /// A file's content, which the stream is behind afterwards.
    fn file(&mut self, records: &Records, stored: u64) -> Result<Place, Fault> {
        let get = |name: &str| records.get(name.as_bytes());
        let start = self.at;
        if get("GNU.sparse.major").is_some_and(|major| major == b"1") {
            let size = number(records, "GNU.sparse.realsize")?.unwrap_or(0);
            let pieces = self.sparse_map(stored)?;
            let data = stored.checked_sub(self.at - start).ok_or_else(|| corrupt("its holes"))?;
            return self.pieces(size, pieces, data);
        }
        if let Some(map) = get("GNU.sparse.map") {
            let size = number(records, "GNU.sparse.size")?.unwrap_or(0);
            let numbers: Option<Vec<u64>> = map.split(|byte| *byte == b',').map(decimal).collect();
            let numbers = numbers.ok_or_else(|| corrupt("its holes"))?;
            let pieces = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            return self.pieces(size, pieces, stored);
        }
        self.pieces(stored, vec![(0, stored)], stored)
    }

    /// The places with data, in decimal lines before the data.
    fn sparse_map(&mut self, stored: u64) -> Result<Vec<(u64, u64)>, Fault> {
        let mut numbers: Vec<u64> = Vec::new();
        let (mut digits, mut read) = (Vec::new(), 0);
        loop {
            if read >= stored {
                return Err(corrupt("its holes"));
            }
            let block = self.block()?;
            read += BLOCK;
            for byte in block {
                if byte != b'\n' {
                    digits.push(byte);
                    continue;
                }
                numbers.push(decimal(&digits).ok_or_else(|| corrupt("its holes"))?);
                digits.clear();
                let expect = numbers[0].saturating_mul(2).saturating_add(1);
                if expect > 2 * PIECES_MAX as u64 {
                    return Err(Fault::because(Kind::TooLarge, "a file with too many holes"));
                }
                if numbers.len() as u64 == expect {
                    return Ok(numbers[1..].chunks_exact(2).map(|p| (p[0], p[1])).collect());
                }
            }
        }
    }

    /// The sort of holes that GNU tar wrote before PAX.
    fn old_sparse(&mut self, header: &Header, stored: u64) -> Result<Place, Fault> {
        let gnu = header.as_gnu().ok_or_else(|| corrupt("its holes"))?;
        let size = gnu.real_size().map_err(broken)?;
        let mut pieces = Vec::new();
        let add = |pieces: &mut Vec<(u64, u64)>, some: &[GnuSparseHeader]| {
            for piece in some.iter().filter(|piece| !piece.is_empty()) {
                pieces.push((piece.offset().map_err(broken)?, piece.length().map_err(broken)?));
            }
            match pieces.len() > PIECES_MAX {
                true => Err(Fault::because(Kind::TooLarge, "a file with too many holes")),
                false => Ok(()),
            }
        };
        add(&mut pieces, &gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            *block.as_mut_bytes() = self.block()?;
            add(&mut pieces, block.sparse())?;
            more = block.is_extended();
        }
        self.pieces(size, pieces, stored)
    }

    /// Checks that the pieces of a file are in order and within it, and that
    /// the data for them is there.
    fn pieces(&mut self, size: u64, pieces: Vec<(u64, u64)>, data: u64) -> Result<Place, Fault> {
        let (mut last, mut used) = (0, 0);
        let mut out: Vec<(Range<u64>, u64)> = Vec::new();
        for (start, len) in pieces {
            let end = start.checked_add(len).filter(|end| *end <= size && start >= last);
            let end = end.ok_or_else(|| corrupt("its holes"))?;
            if len > 0 {
                out.push((start..end, self.at + used));
            }
            (last, used) = (end, used + len);
        }
        if used > data || size > FILE_BYTES_MAX {
            return Err(corrupt("its holes"));
        }
        self.skip(data.saturating_add(padding(data)))?;
        Ok(Place::Pieces(size, out.into()))
    }
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn padding(size: u64) -> u64 {
    (BLOCK - size % BLOCK) % BLOCK
}

fn until_zero(mut name: Vec<u8>) -> Vec<u8> {
    name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
    name
}

fn check_sum(header: &Header) -> Result<(), Fault> {
    let bytes = header.as_bytes();
    let sum = bytes.iter().enumerate().map(|(at, byte)| match at {
        148..156 => u32::from(b' '),
        _ => u32::from(*byte),
    });
    match header.cksum().map_err(broken)? == sum.sum::<u32>() {
        true => Ok(()),
        false => Err(corrupt("a header's sum is wrong")),
    }
}

/// `LEN KEY=VALUE\n`, one after the other; a value may hold any byte.
fn records(mut bytes: &[u8]) -> Result<Records, Fault> {
    let mut out = Records::new();
    while !bytes.is_empty() {
        let record = || {
            let space = bytes.iter().position(|byte| *byte == b' ')?;
            let len = usize::try_from(decimal(&bytes[..space])?).ok()?;
            let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            Some((len, record[..equals].to_vec(), record[equals + 1..].to_vec()))
        };
        let (len, key, value) = record().ok_or_else(|| corrupt("a PAX header"))?;
        out.insert(key, value);
        bytes = &bytes[len..];
    }
    Ok(out)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn number(records: &Records, name: &str) -> Result<Option<u64>, Fault> {
    let value = records.get(name.as_bytes());
    value.map(|value| decimal(value).ok_or_else(|| corrupt(format!("its {name}")))).transpose()
}

/// Seconds with a fraction, possibly before 1970.
fn nanoseconds(text: &[u8]) -> Result<i64, Fault> {
    let parse = || {
        let text = std::str::from_utf8(text).ok()?;
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let fraction = &fraction[..fraction.len().min(9)];
        let rest = decimal(format!("{fraction:0<9}").as_bytes())?;
        let whole = i64::try_from(decimal(whole.as_bytes())?).ok()?;
        let all = whole.checked_mul(1_000_000_000)?.checked_add(rest as i64)?;
        Some(if negative { -all } else { all })
    };
    parse().ok_or_else(|| corrupt("a time"))
}
