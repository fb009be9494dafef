//! The entries of a zip, as its directory tells them.

use super::store::{Store, check_ratio};
use super::{ArchiveBounds, Count, Member, MemberKind, Place, broken, corrupt, path_of, target_of};
use crate::error::{Fault, Kind};
use bytes::Bytes;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ReaderAt, ZipArchive, ZipLocator};
use rawzip::{ZipArchiveEntryWayfinder, ZipFileHeaderRecord};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

/// Where a file is packed, and how.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    way: ZipArchiveEntryWayfinder,
    deflated: bool,
    pub(super) size: u64,
}

struct Bytewise(Arc<Store>);

impl ReaderAt for Bytewise {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_some(out, at)
    }
}

type Zip = ZipArchive<Bytewise>;

fn open(store: &Arc<Store>) -> Result<Zip, Fault> {
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let opened =
        ZipLocator::new().locate_in_reader(Bytewise(store.clone()), &mut buffer, store.len());
    opened.map_err(|(_, error)| corrupt(error.to_string()))
}

pub(super) fn scan(store: &Arc<Store>, bounds: &ArchiveBounds) -> Result<Vec<Member>, Fault> {
    let zip = open(store)?;
    let mut buffer =
        vec![0; RECOMMENDED_BUFFER_SIZE.max(rawzip::MAX_CENTRAL_DIRECTORY_RECORD_SIZE)];
    let mut entries = zip.entries(&mut buffer);
    let mut count = Count::new(bounds);
    let (mut members, mut ranges) = (Vec::new(), Vec::new());
    while let Some(record) = entries.next_entry().map_err(|error| corrupt(error.to_string()))? {
        let way = record.wayfinder();
        let size = way.uncompressed_size_hint();
        count.add(size)?;
        count.add_names(record.file_path().len() as u64)?;
        check_ratio(way.compressed_size_hint(), size, bounds.ratio_max)?;
        let entry = zip.get_entry(way).map_err(|error| corrupt(error.to_string()))?;
        ranges.push(entry.compressed_data_range());
        members.push(member(store, &record)?);
    }
    if (members.len() as u64) != zip.entries_hint() {
        return Err(corrupt("its directory names another number of entries"));
    }
    check_apart(ranges)?;
    Ok(members)
}

/// Entries that share their bytes unpack to far more than is there.
fn check_apart(mut ranges: Vec<(u64, u64)>) -> Result<(), Fault> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    match ranges.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        true => Err(corrupt("entries lie over each other")),
        false => Ok(()),
    }
}

fn member(store: &Arc<Store>, record: &ZipFileHeaderRecord) -> Result<Member, Fault> {
    let path = path_of(record.file_path().as_bytes())?;
    let way = record.wayfinder();
    if record.flags().is_encrypted() {
        return Err(Fault::because(Kind::Unsupported, format!("{path} is encrypted")));
    }
    let deflated = match record.compression_method() {
        CompressionMethod::STORE => false,
        CompressionMethod::DEFLATE => true,
        other => {
            let reason = format!("{path} is packed with {other:?}, not with deflate");
            return Err(Fault::because(Kind::Unsupported, reason));
        }
    };
    let packed = Packed { way, deflated, size: way.uncompressed_size_hint() };
    let mode = record.mode();
    let kind = match mode.value() & 0o170000 {
        _ if record.is_dir() => MemberKind::Dir,
        0o040000 => MemberKind::Dir,
        0o120000 if packed.size < crate::PATH_BYTES_MAX as u64 => {
            let target = read(store, &packed, 0..packed.size)?;
            MemberKind::Link(target_of(&path, &target)?)
        }
        0o120000 => return Err(corrupt(format!("the link {path} leads nowhere"))),
        0o100000 | 0 => MemberKind::File(Place::Zip(packed)),
        _ => {
            let reason = format!("the archive holds a device or fifo at {path}");
            return Err(Fault::because(Kind::Unsupported, reason));
        }
    };
    let modified_ns = modified_ns(record);
    let mode = mode.value() & 0o7777;
    Ok(Member { path, kind, mode, owner: None, modified_ns, xattrs: BTreeMap::new() })
}

fn modified_ns(record: &ZipFileHeaderRecord) -> i64 {
    use rawzip::time::ZipDateTimeKind;
    let (date, time, rest) = match record.last_modified() {
        ZipDateTimeKind::Utc(at) => (
            (at.year(), at.month(), at.day()),
            (at.hour(), at.minute(), at.second()),
            at.nanosecond(),
        ),
        ZipDateTimeKind::Local(at) => (
            (at.year(), at.month(), at.day()),
            (at.hour(), at.minute(), at.second()),
            at.nanosecond(),
        ),
    };
    let seconds = days(date.0.into(), date.1.into(), date.2.into()) * 86400
        + i64::from(time.0) * 3600
        + i64::from(time.1) * 60
        + i64::from(time.2);
    seconds * 1_000_000_000 + i64::from(rest)
}

/// Days since 1970 of a date, in a calendar that begins in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A part of a file, after all of it was checked.
pub(super) fn read(store: &Arc<Store>, packed: &Packed, range: Range<u64>) -> Result<Bytes, Fault> {
    let zip = open(store)?;
    let entry = zip.get_entry(packed.way).map_err(|error| corrupt(error.to_string()))?;
    let mut out = Vec::new();
    // What claims to be smaller than it is ends in an error, not in memory.
    let limit = packed.size + 1;
    let unpacked = match packed.deflated {
        true => {
            let reader = flate2::read::DeflateDecoder::new(entry.reader());
            entry.verifying_reader(reader.take(limit)).read_to_end(&mut out)
        }
        false => entry.verifying_reader(entry.reader().take(limit)).read_to_end(&mut out),
    };
    unpacked.map_err(broken)?;
    if out.len() as u64 != packed.size {
        return Err(corrupt("a file has another size than it says"));
    }
    Ok(Bytes::from(out).slice(range.start as usize..range.end as usize))
}
