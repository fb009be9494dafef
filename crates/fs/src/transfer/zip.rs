//! A view as a zip.

use super::{Leaving, OutKind};
use crate::error::{Fault, FsError, Kind};
use crate::view::Vfs;
use fractal_model::SandboxPath;
use rawzip::path::EntryPath;
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter};
use std::io::Write;

/// The largest file whose holes are written as zeros.
const SPARSE_BYTES_MAX: u64 = 1 << 30;

impl Vfs {
    /// Writes all below a path as a zip: modes, links, times to the second.
    /// It has no hard links, owners, extended attributes or holes: each name
    /// is a file of its own.
    pub fn export_zip(&self, at: &SandboxPath, into: impl Write) -> Result<(), FsError> {
        let leaving = Leaving::new(self, at);
        let mut zip = ZipArchiveWriter::new(into);
        for out in leaving.entries()? {
            let name = out.path.relative();
            if name.is_empty() {
                continue;
            }
            let place = leaving.path(&out.path);
            let failed = |error: &dyn std::fmt::Display| {
                Fault::because(Kind::Source, format!("writing the zip: {error}")).at(&place)
            };
            let time = UtcDateTime::from_unix(out.stat.meta.modified_ns.div_euclid(1_000_000_000));
            let mode = out.stat.meta.mode;
            let (sort, target) = match &out.kind {
                OutKind::Dir => {
                    let dir = zip.new_dir(entry_path(&[name, b"/"].concat()));
                    let dir = dir.unix_permissions(0o040000 | mode).last_modified(time);
                    dir.create().map_err(|error| failed(&error))?;
                    continue;
                }
                OutKind::Link(target) => (0o120000, Some(target)),
                OutKind::File | OutKind::Same(_) => (0o100000, None),
            };
            if target.is_none() && out.stat.size > SPARSE_BYTES_MAX {
                let held =
                    leaving.extents(&out)?.into_iter().map(|extent| extent.end - extent.start);
                if held.sum::<u64>() < out.stat.size {
                    let reason =
                        "a zip has no holes, and this file is too large without; a tar has";
                    return Err(Fault::because(Kind::TooLarge, reason).at(&place));
                }
            }
            let file = zip.new_file(entry_path(name)).unix_permissions(sort | mode);
            let file = file.last_modified(time).compression_method(CompressionMethod::DEFLATE);
            let (mut entry, config) = file.start().map_err(|error| failed(&error))?;
            let level = flate2::Compression::default();
            let mut packed = config.wrap(flate2::write::DeflateEncoder::new(&mut entry, level));
            let mut write = |bytes: &[u8]| {
                let written = packed.write_all(bytes);
                written.map_err(|error| Fault::because(Kind::Source, error.to_string()))
            };
            match target {
                Some(target) => write(target).map_err(|fault| fault.at(&place))?,
                None => leaving.pieces(&out, 0..out.stat.size, |_, bytes| write(bytes))?,
            }
            let (encoder, told) = packed.finish().map_err(|error| failed(&error))?;
            encoder.finish().map_err(|error| failed(&error))?;
            entry.finish(told).map_err(|error| failed(&error))?;
        }
        let done = zip.finish().and_then(|mut into| Ok(into.flush()?));
        done.map_err(|error| Fault::because(Kind::Source, error.to_string()).at(b"/"))
    }
}

/// Names that are text are marked as such; others stay the bytes they are.
fn entry_path(name: &[u8]) -> EntryPath<'static> {
    match std::str::from_utf8(name) {
        // Such a name would be taken for a path of Windows.
        Ok(text) if !text.contains('\\') => EntryPath::conformant(text.to_owned()),
        _ => EntryPath::verbatim(name.to_vec()),
    }
}
