//! A view as a tar that every tar can read, with PAX headers for what the old
//! format cannot say.

use super::{Leaving, Out, OutKind};
use crate::error::{Fault, FsError, Kind};
use crate::view::Vfs;
use ::tar::{EntryType, Header};
use fractal_model::SandboxPath;
use std::io::Write;

const BLOCK: u64 = 512;

impl Vfs {
    /// Writes all below a path as a tar: modes, owners, times to the
    /// nanosecond, links, hard links, extended attributes and holes.
    pub fn export_tar(&self, at: &SandboxPath, into: impl Write) -> Result<(), FsError> {
        let leaving = Leaving::new(self, at);
        let mut writing = Writing { into, leaving: &leaving };
        for out in leaving.entries()? {
            writing.entry(&out)?;
        }
        writing.raw(&[0; 2 * BLOCK as usize]).map_err(|fault| fault.at(b"/"))
    }
}

struct Writing<'a, W> {
    into: W,
    leaving: &'a Leaving,
}

/// What an old header can hold of a number.
const OWNER_MAX: u32 = 0o7777777;
const SIZE_MAX: u64 = 0o77777777777;

impl<W: Write> Writing<'_, W> {
    fn raw(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let written = self.into.write_all(bytes);
        written.map_err(|error| Fault::because(Kind::Source, format!("writing the tar: {error}")))
    }

    fn pad(&mut self, size: u64) -> Result<(), Fault> {
        self.raw(&[0; BLOCK as usize][..((BLOCK - size % BLOCK) % BLOCK) as usize])
    }

    fn entry(&mut self, out: &Out) -> Result<(), FsError> {
        let place = self.leaving.path(&out.path);
        let mut records = Records::default();
        for (name, value) in &out.xattrs {
            records.add(&[b"SCHILY.xattr.", &name[..]].concat(), value);
        }
        let mut name = match out.path.relative() {
            b"" => b"./".to_vec(),
            name => name.to_vec(),
        };
        let mut header = Header::new_ustar();
        let (mut link, mut size) = (Vec::new(), 0);
        let (mut map, mut extents) = (Vec::new(), Vec::new());
        match &out.kind {
            OutKind::Dir => {
                header.set_entry_type(EntryType::Directory);
                if !name.ends_with(b"/") {
                    name.push(b'/');
                }
            }
            OutKind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                link = target.clone();
            }
            OutKind::Same(first) => {
                header.set_entry_type(EntryType::Link);
                link = first.relative().to_vec();
            }
            OutKind::File => {
                header.set_entry_type(EntryType::Regular);
                (size, extents) = (out.stat.size, self.leaving.extents(out)?);
                let held: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
                if held < size {
                    records.add(b"GNU.sparse.major", b"1");
                    records.add(b"GNU.sparse.minor", b"0");
                    records.add(b"GNU.sparse.name", &name);
                    records.add(b"GNU.sparse.realsize", size.to_string().as_bytes());
                    map = sparse_map(&extents, size);
                    size = held + map.len() as u64;
                }
            }
        }
        let told = self.header(&mut header, records, &name, &link, size, out);
        told.and_then(|()| self.raw(&map)).map_err(|fault| fault.at(&place))?;
        for extent in extents {
            let leaving = self.leaving;
            leaving.pieces(out, extent, |_, bytes| self.raw(bytes))?;
        }
        self.pad(size).map_err(|fault| fault.at(&place))
    }

    fn header(
        &mut self,
        header: &mut Header,
        mut records: Records,
        name: &[u8],
        link: &[u8],
        size: u64,
        out: &Out,
    ) -> Result<(), Fault> {
        let meta = out.stat.meta;
        let old = header.as_old_mut();
        if !fits(name, &mut old.name) {
            records.add(b"path", name);
        }
        if !fits(link, &mut old.linkname) {
            records.add(b"linkpath", link);
        }
        if size > SIZE_MAX {
            records.add(b"size", size.to_string().as_bytes());
        }
        for (key, id) in [(b"uid", meta.uid), (b"gid", meta.gid)] {
            if id > OWNER_MAX {
                records.add(key, id.to_string().as_bytes());
            }
        }
        let seconds = meta.modified_ns.div_euclid(1_000_000_000);
        let whole = seconds * 1_000_000_000 == meta.modified_ns;
        if !whole || !(0..=SIZE_MAX as i64).contains(&seconds) {
            records.add(b"mtime", decimal(meta.modified_ns).as_bytes());
        }
        header.set_mode(meta.mode);
        header.set_uid(meta.uid.min(OWNER_MAX).into());
        header.set_gid(meta.gid.min(OWNER_MAX).into());
        header.set_mtime(seconds.clamp(0, SIZE_MAX as i64) as u64);
        header.set_size(size.min(SIZE_MAX));
        header.set_cksum();
        if !records.0.is_empty() {
            let mut before = Header::new_ustar();
            before.set_entry_type(EntryType::XHeader);
            fits(b"PaxHeaders/entry", &mut before.as_old_mut().name);
            before.set_mode(0o644);
            before.set_size(records.0.len() as u64);
            before.set_cksum();
            self.raw(before.as_bytes())?;
            self.raw(&records.0)?;
            self.pad(records.0.len() as u64)?;
        }
        self.raw(header.as_bytes())
    }
}

/// Puts a name into its field; what is too long is cut, and told elsewhere.
fn fits(name: &[u8], field: &mut [u8; 100]) -> bool {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    // Readers take bytes beyond ASCII for what they like, unless PAX says it.
    len == name.len() && name.is_ascii()
}

/// `LEN KEY=VALUE\n`, where the length counts itself.
#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        self.0.extend_from_slice(format!("{len} ").as_bytes());
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

/// How many places with data there are, and where, filled up to a block.
fn sparse_map(extents: &[std::ops::Range<u64>], size: u64) -> Vec<u8> {
    // GNU tar ends a file with its last place, even if there is nothing.
    let end = std::iter::once(size..size);
    let mut map = format!("{}\n", extents.len() + 1);
    for extent in extents.iter().cloned().chain(end) {
        map.push_str(&format!("{}\n{}\n", extent.start, extent.end - extent.start));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK as usize), 0);
    map
}

/// Seconds with a fraction.
fn decimal(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
