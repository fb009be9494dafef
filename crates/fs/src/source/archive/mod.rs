//! Tar (plain, gzip, zstd) and zip archives.
//!
//! An archive is indexed when it is opened and its content is read when
//! somebody looks. It is hostile until proven otherwise: names that climb,
//! names that come twice, devices, more entries or bytes than agreed, and
//! whatever is cut off or corrupt are errors that say which. The only thing
//! that is touched is the one file, or the bytes, that were given.

mod store;
mod tar;
mod zip;

use self::store::{Form, Store, Stream};
use super::index::Index;
use super::{Ask, Item, ItemKind, Source};
use crate::content::READ_BYTES_MAX;
use crate::error::{Fault, Kind};
use crate::name::NAME_BYTES_MAX;
use crate::tree::DEPTH_MAX;
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How much an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveBounds {
    /// Files, directories and links.
    pub entries_max: u64,
    /// Bytes of all files together, unpacked.
    pub bytes_max: u64,
    /// How many bytes one packed byte may become, beyond the first mebibyte.
    /// Deflate makes at most 1032 of one; the usual bound lets that through.
    pub ratio_max: u64,
}

impl Default for ArchiveBounds {
    fn default() -> ArchiveBounds {
        ArchiveBounds { entries_max: 1_000_000, bytes_max: 4 << 30, ratio_max: 1100 }
    }
}

/// What is unpacked before anybody asks about the ratio.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// The most memory that names, links and attributes of an archive may take.
const NAMES_BYTES_MAX: u64 = 512 << 20;

/// An archive as a source.
pub struct Archive {
    store: Arc<Store>,
    form: Form,
    members: Vec<Member>,
    index: Index<Place>,
    /// Where the unpacking of a packed tar stands, to go on from there.
    cursor: Mutex<Option<Cursor>>,
    bounds: ArchiveBounds,
    shown: String,
}

/// One entry of an archive, in its order.
pub(crate) struct Member {
    pub(crate) path: SandboxPath,
    pub(crate) kind: MemberKind,
    pub(crate) mode: u32,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) modified_ns: i64,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(crate) enum MemberKind {
    Dir,
    File(Place),
    Link(Vec<u8>),
    /// Another name of a file that came before.
    Same(SandboxPath),
}

/// Where the content of a file lies.
#[derive(Clone)]
pub(crate) enum Place {
    /// In the unpacked tar: places of the file and where each one begins in
    /// the tar. What lies between is zeros.
    Pieces(u64, Arc<[(Range<u64>, u64)]>),
    Zip(zip::Packed),
}

impl Place {
    /// Bytes of data; holes take none.
    pub(crate) fn held(&self) -> u64 {
        self.extents().iter().map(|extent| extent.end - extent.start).sum()
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Place::Pieces(size, _) => *size,
            Place::Zip(packed) => packed.size,
        }
    }

    /// Where there is data.
    pub(crate) fn extents(&self) -> Vec<Range<u64>> {
        match self {
            Place::Pieces(_, pieces) => pieces.iter().map(|(range, _)| range.clone()).collect(),
            Place::Zip(packed) => std::iter::once(0..packed.size).collect(),
        }
    }
}

struct Cursor {
    stream: Stream,
    at: u64,
}

impl Archive {
    /// Opens an archive of the host.
    pub fn open(file: impl AsRef<Path>, bounds: ArchiveBounds) -> Result<Archive, Fault> {
        let file = file.as_ref();
        Archive::of(Store::open(file)?, bounds, file.display().to_string())
    }

    /// Opens an archive in memory.
    pub fn of_bytes(bytes: impl Into<Bytes>, bounds: ArchiveBounds) -> Result<Archive, Fault> {
        let bytes = bytes.into();
        let shown = format!("{} bytes", bytes.len());
        Archive::of(Store::Memory(bytes), bounds, shown)
    }

    fn of(store: Store, bounds: ArchiveBounds, shown: String) -> Result<Archive, Fault> {
        let store = Arc::new(store);
        let form = Form::of(&store)?;
        let members = match form {
            Form::Zip => zip::scan(&store, &bounds)?,
            _ => tar::scan(&mut Stream::new(&store, form, &bounds)?, &bounds)?,
        };
        let mut index = Index::default();
        for member in &members {
            let (item, place) = member.item(&index)?;
            index.put(&member.path, item, place)?;
            if index.held() > NAMES_BYTES_MAX {
                return Err(too_many_names());
            }
        }
        Ok(Archive { store, form, members, index, cursor: Mutex::new(None), bounds, shown })
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// A part of a file, at most [`READ_BYTES_MAX`] of it.
    pub(crate) fn part(&self, place: &Place, range: Range<u64>) -> Result<Bytes, Fault> {
        self.store.check_same()?;
        let end = range.end.min(place.size());
        let range = range.start.min(end)..end;
        if range.end - range.start > READ_BYTES_MAX {
            let reason = format!("{} bytes; read it in ranges", place.size());
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        match place {
            Place::Zip(packed) => zip::read(&self.store, packed, range),
            Place::Pieces(_, pieces) => {
                let mut out = vec![0; (range.end - range.start) as usize];
                for (piece, start) in pieces.iter() {
                    let (from, to) = (piece.start.max(range.start), piece.end.min(range.end));
                    if from < to {
                        let into = (from - range.start) as usize..(to - range.start) as usize;
                        self.fill(&mut out[into], start + (from - piece.start))?;
                    }
                }
                Ok(out.into())
            }
        }
    }

    /// Bytes of the unpacked tar.
    fn fill(&self, out: &mut [u8], at: u64) -> Result<(), Fault> {
        if self.form == Form::Tar {
            return self.store.fill(out, at);
        }
        let mut held = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cursor = match held.take() {
            Some(cursor) if cursor.at <= at => cursor,
            _ => Cursor { stream: Stream::new(&self.store, self.form, &self.bounds)?, at: 0 },
        };
        cursor.stream.skip(at - cursor.at)?;
        cursor.stream.read_exact(out).map_err(broken)?;
        cursor.at = at + out.len() as u64;
        *held = Some(cursor);
        Ok(())
    }
}

impl Member {
    fn item(&self, index: &Index<Place>) -> Result<(Item, Option<Place>), Fault> {
        let place = match &self.kind {
            MemberKind::Dir | MemberKind::Link(_) => None,
            MemberKind::File(place) => Some(place.clone()),
            MemberKind::Same(path) => Some(index.file(path).cloned().map_err(|_| {
                let reason = format!("{} is another name of {path}, which it lacks", self.path);
                Fault::because(Kind::Source, reason)
            })?),
        };
        let kind = match (&self.kind, &place) {
            (MemberKind::Link(target), _) => ItemKind::Link(target.clone()),
            (_, Some(place)) => ItemKind::File(Some(place.size())),
            (_, None) => ItemKind::Dir,
        };
        let item = Item {
            mode: Some(self.mode),
            owner: self.owner,
            modified_ns: Some(self.modified_ns),
            ..Item::new("", kind)
        };
        Ok((item, place))
    }
}

impl Source for Archive {
    fn kind(&self) -> &str {
        "archive"
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }

    fn list(&self, at: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        self.index.list(at)
    }

    fn read(&self, at: &SandboxPath, _: &Ask) -> Result<Bytes, Fault> {
        self.part(self.index.file(at)?, 0..u64::MAX)
    }

    fn read_range(
        &self,
        at: &SandboxPath,
        range: Range<u64>,
        _: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        // What is packed is unpacked once and kept, not once for each part.
        match self.form {
            Form::Tar => self.part(self.index.file(at)?, range).map(Some),
            _ => Ok(None),
        }
    }

    fn rereads(&self) -> bool {
        self.form == Form::Tar
    }
}

/// Counts what an archive holds against its bounds.
struct Count<'a> {
    bounds: &'a ArchiveBounds,
    entries: u64,
    bytes: u64,
    names: u64,
}

impl Count<'_> {
    fn new(bounds: &ArchiveBounds) -> Count<'_> {
        Count { bounds, entries: 0, bytes: 0, names: 0 }
    }

    /// Names, links and attributes, which stay in memory.
    fn add_names(&mut self, bytes: u64) -> Result<(), Fault> {
        self.names = self.names.saturating_add(bytes);
        match self.names > NAMES_BYTES_MAX {
            true => Err(too_many_names()),
            false => Ok(()),
        }
    }

    fn add(&mut self, bytes: u64) -> Result<(), Fault> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > self.bounds.entries_max {
            let reason = format!("the archive holds more than {} entries", self.bounds.entries_max);
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        if self.bytes > self.bounds.bytes_max {
            let reason = format!("the archive holds more than {} bytes", self.bounds.bytes_max);
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        Ok(())
    }
}

/// A name in an archive as a path that cannot lead out.
fn path_of(name: &[u8]) -> Result<SandboxPath, Fault> {
    let shown = || name.escape_ascii().to_string();
    if name.first() == Some(&b'/') {
        let reason = format!("the archive names {}, which is absolute", shown());
        return Err(Fault::because(Kind::Invalid, reason));
    }
    let path = SandboxPath::parse(name).map_err(|error| {
        Fault::because(Kind::Invalid, format!("the archive names {}: {error}", shown()))
    })?;
    let deep = path.components().count() as u32 > DEPTH_MAX;
    if deep || path.components().any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Fault::because(Kind::NameTooLong, format!("the archive names {}", shown())));
    }
    Ok(path)
}

/// A symlink's target that the tree would take.
fn target_of(path: &SandboxPath, target: &[u8]) -> Result<Vec<u8>, Fault> {
    let bad = target.is_empty() || target.contains(&0) || target.len() >= crate::PATH_BYTES_MAX;
    match bad {
        true => Err(corrupt(format!("the link {path} leads nowhere"))),
        false => Ok(target.to_vec()),
    }
}

fn too_many_names() -> Fault {
    let reason = format!("the archive's names take more than {NAMES_BYTES_MAX} bytes");
    Fault::because(Kind::TooLarge, reason)
}

fn corrupt(reason: impl Into<String>) -> Fault {
    Fault::because(Kind::Source, format!("the archive is corrupt: {}", reason.into()))
}

/// An error of unpacking in our words; our own come back as they were.
fn broken(error: std::io::Error) -> Fault {
    if let Some(store::Bomb(fault)) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return fault.clone();
    }
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => corrupt("it is cut off"),
        _ => corrupt(error.to_string()),
    }
}
