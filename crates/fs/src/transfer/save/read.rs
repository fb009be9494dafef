//! Bytes into trees.

use super::{BLOB, DIR, END, FILE, LINK, MAGIC, TREE};
use crate::content::{Blocks, Content, FILE_BYTES_MAX};
use crate::entry::{Dir, Entries, Entry, File, Link, Meta, SharedFile, Weight, Xattrs, number};
use crate::error::{Fault, FsError, Kind};
use crate::map::Map;
use crate::name::Name;
use crate::tree::{DEPTH_MAX, Tree};
use bytes::Bytes;
use imbl::OrdMap;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;

/// How much a file of trees may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBounds {
    /// Bytes of the file, and so of memory for content.
    pub bytes_max: u64,
    /// Pieces of content, files, links, directories, names and trees.
    pub records_max: u64,
}

impl Default for LoadBounds {
    fn default() -> LoadBounds {
        LoadBounds { bytes_max: 4 << 30, records_max: 20_000_000 }
    }
}

/// Reads the trees that [`save`](super::save) wrote, with their names. Nothing
/// is returned before all of it was checked.
pub fn load(from: impl Read, bounds: LoadBounds) -> Result<Vec<(String, Tree)>, FsError> {
    let mut loading = Loading {
        from,
        sum: Sha256::new(),
        left: bounds.bytes_max,
        records_left: bounds.records_max,
        records: Vec::new(),
        trees: Vec::new(),
    };
    let done = loading.all();
    done.map_err(|fault| fault.at(b"/"))?;
    Ok(loading.trees)
}

enum Record {
    Blob(Bytes),
    File(Arc<File>),
    Link(Arc<Link>),
    Dir(LoadedDir),
    Tree,
}

/// A directory whose files with several names are not known yet: their
/// numbers mean something in a tree only.
struct LoadedDir {
    dir: Arc<Dir>,
    shared: bool,
}

struct Loading<R> {
    from: R,
    sum: Sha256,
    /// Bytes and records that may still come.
    left: u64,
    records_left: u64,
    records: Vec<Record>,
    trees: Vec<(String, Tree)>,
}

fn corrupt(reason: &str) -> Fault {
    Fault::because(Kind::Source, format!("the saved trees are corrupt: {reason}"))
}

impl<R: Read> Loading<R> {
    fn all(&mut self) -> Result<(), Fault> {
        let mut magic = [0; 8];
        self.exact(&mut magic)?;
        if magic[..7] != MAGIC[..7] {
            return Err(Fault::because(Kind::Invalid, "these are no saved trees"));
        }
        if magic[7] != MAGIC[7] {
            let reason = format!("trees of version {}; this program knows {}", magic[7], MAGIC[7]);
            return Err(Fault::because(Kind::Unsupported, reason));
        }
        // Inodes of the file and the new ones they stand for.
        let mut inodes = HashMap::new();
        loop {
            let mut sort = [0];
            self.exact(&mut sort)?;
            let len = self.int()?;
            if sort[0] == END {
                return self.end(len);
            }
            self.spend(1)?;
            let body = self.body(len)?;
            let record = self.record(sort[0], body, &mut inodes)?;
            self.records.push(record);
        }
    }

    /// Counts what takes memory beside the bytes themselves.
    fn spend(&mut self, records: u64) -> Result<(), Fault> {
        let left = self.records_left.checked_sub(records);
        self.records_left =
            left.ok_or_else(|| Fault::because(Kind::TooLarge, "more records than allowed"))?;
        Ok(())
    }

    fn end(&mut self, len: u64) -> Result<(), Fault> {
        let sum = self.sum.clone().finalize();
        let mut told = [0; 32];
        if len != 32 {
            return Err(corrupt("its end"));
        }
        self.exact(&mut told)?;
        match told[..] == sum[..] {
            true => Ok(()),
            false => Err(corrupt("its digest is wrong")),
        }
    }

    fn exact(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        if out.len() as u64 > self.left {
            return Err(Fault::because(Kind::TooLarge, "the saved trees are larger than allowed"));
        }
        self.left -= out.len() as u64;
        let read = self.from.read_exact(out);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => corrupt("they are cut off"),
            _ => Fault::because(Kind::Source, format!("reading the trees: {error}")),
        })?;
        self.sum.update(&*out);
        Ok(())
    }

    fn int(&mut self) -> Result<u64, Fault> {
        let mut bytes = Vec::new();
        loop {
            let mut byte = [0];
            self.exact(&mut byte)?;
            bytes.push(byte[0]);
            if byte[0] < 0x80 || bytes.len() >= 10 {
                return Fields(&bytes).int();
            }
        }
    }

    /// A body, for which memory is taken as its bytes come.
    fn body(&mut self, len: u64) -> Result<Bytes, Fault> {
        if len > self.left {
            return Err(match self.left {
                0 => corrupt("they are cut off"),
                _ => Fault::because(Kind::TooLarge, "a record is larger than allowed"),
            });
        }
        let mut out = Vec::new();
        while (out.len() as u64) < len {
            let start = out.len();
            let more = (len - start as u64).min(1 << 20) as usize;
            out.resize(start + more, 0);
            self.exact(&mut out[start..])?;
        }
        Ok(out.into())
    }

    fn record(
        &mut self,
        sort: u8,
        body: Bytes,
        inodes: &mut HashMap<u64, u64>,
    ) -> Result<Record, Fault> {
        if sort == BLOB {
            return Ok(Record::Blob(body));
        }
        let mut fields = Fields(&body);
        let record = match sort {
            FILE => Record::File(Arc::new(self.file(&mut fields)?)),
            LINK => {
                let (meta, _) = fields.meta()?;
                let target: Box<[u8]> = fields.blob()?.into();
                let bad = target.is_empty() || target.contains(&0);
                if bad || target.len() >= crate::PATH_BYTES_MAX {
                    return Err(corrupt("a link"));
                }
                Record::Link(Arc::new(Link { inode: number(), meta, target }))
            }
            DIR => Record::Dir(self.dir(&mut fields, inodes)?),
            TREE => {
                let tree = self.tree(&mut fields, inodes)?;
                self.trees.push(tree);
                Record::Tree
            }
            _ => return Err(corrupt("a record of no known sort")),
        };
        match fields.0.is_empty() {
            true => Ok(record),
            false => Err(corrupt("a record is too long")),
        }
    }

    fn at(&self, number: u64) -> Result<&Record, Fault> {
        let record = usize::try_from(number).ok().and_then(|number| self.records.get(number));
        record.ok_or_else(|| corrupt("a number leads nowhere"))
    }

    fn file(&mut self, fields: &mut Fields) -> Result<File, Fault> {
        let (meta, xattrs) = fields.meta()?;
        let names = u32::try_from(fields.int()?).map_err(|_| corrupt("a file"))?;
        let (size, count) = (fields.int()?, fields.int()?);
        self.spend(count)?;
        let mut pieces = Vec::new();
        let mut last = 0;
        for _ in 0..count {
            let (at, number) = (fields.int()?, fields.int()?);
            let Record::Blob(bytes) = self.at(number)? else { return Err(corrupt("a file")) };
            let end = at.checked_add(bytes.len() as u64).filter(|end| at >= last && *end <= size);
            last = end.ok_or_else(|| corrupt("a file"))?;
            pieces.push((at, bytes.clone()));
        }
        if size > FILE_BYTES_MAX || names == 0 {
            return Err(corrupt("a file"));
        }
        let content = Content::of_pieces(size, pieces)?;
        Ok(File { names, xattrs, ..File::new(meta, content) })
    }

    fn dir(
        &mut self,
        fields: &mut Fields,
        inodes: &mut HashMap<u64, u64>,
    ) -> Result<LoadedDir, Fault> {
        let (meta, xattrs) = fields.meta()?;
        let count = fields.int()?;
        self.spend(count)?;
        let mut map = Map::default();
        let (mut weight, mut depth, mut shared) = (Weight::default(), 0, false);
        for _ in 0..count {
            let name = Name::new(fields.blob()?).map_err(|_| corrupt("a name"))?;
            let sort = fields.byte()?;
            let to = fields.int()?;
            let entry = match (sort, self.at(to)) {
                (TREE, _) => {
                    shared = true;
                    Entry::Shared(*inodes.entry(to).or_insert_with(number))
                }
                (DIR, Ok(Record::Dir(loaded))) => {
                    shared |= loaded.shared;
                    depth = depth.max(loaded.dir.depth + 1);
                    Entry::Dir(loaded.dir.clone())
                }
                (FILE, Ok(Record::File(file))) => Entry::File(file.clone()),
                (LINK, Ok(Record::Link(link))) => Entry::Link(link.clone()),
                _ => return Err(corrupt("a directory")),
            };
            weight.add(entry.weight().minus(Weight::default()));
            if map.insert(name, entry) {
                return Err(corrupt("a name that comes twice"));
            }
        }
        if depth >= DEPTH_MAX {
            return Err(corrupt("directories too deep in each other"));
        }
        let dir = Dir::new(meta, Entries::Here(map));
        Ok(LoadedDir { dir: Arc::new(Dir { xattrs, weight, depth, ..dir }), shared })
    }

    fn tree(
        &self,
        fields: &mut Fields,
        inodes: &mut HashMap<u64, u64>,
    ) -> Result<(String, Tree), Fault> {
        let name = String::from_utf8(fields.blob()?.to_vec()).map_err(|_| corrupt("a name"))?;
        let Record::Dir(root) = self.at(fields.int()?)? else { return Err(corrupt("a tree")) };
        let (mut shared, mut shared_bytes) = (OrdMap::new(), 0);
        for _ in 0..fields.int()? {
            let inode = *inodes.entry(fields.int()?).or_insert_with(number);
            let Record::File(file) = self.at(fields.int()?)? else { return Err(corrupt("a tree")) };
            let file = File { inode, ..(**file).clone() };
            shared_bytes += file.content.held();
            shared.insert(inode, SharedFile(Arc::new(file)));
        }
        if root.shared {
            check_names(&root.dir, &shared)?;
        }
        let tree = Tree { root: root.dir.clone(), shared, shared_bytes, mounts: 0 };
        Ok((name, tree))
    }
}

/// Whether the tree has every file with several names, as often as it says.
fn check_names(root: &Arc<Dir>, shared: &OrdMap<u64, SharedFile>) -> Result<(), Fault> {
    let mut counts: HashMap<u64, u32> = HashMap::new();
    let mut dirs = vec![root];
    while let Some(dir) = dirs.pop() {
        let Entries::Here(map) = &dir.entries else { continue };
        for (_, entry) in map.iter() {
            match entry {
                // Directories without such names are not looked at.
                Entry::Dir(dir) if dir.weight.shared > 0 => dirs.push(dir),
                Entry::Shared(inode) => *counts.entry(*inode).or_default() += 1,
                _ => {}
            }
        }
    }
    let right = counts.iter().all(|(inode, count)| {
        shared.get(inode).is_some_and(|SharedFile(file)| file.names == *count)
    });
    match right {
        true => Ok(()),
        false => Err(corrupt("the names of a file")),
    }
}

/// What is left of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) =
            self.0.split_at_checked(len).ok_or_else(|| corrupt("a record is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    fn int(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for place in 0..10 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(corrupt("a number"))
    }

    fn small(&mut self) -> Result<u32, Fault> {
        u32::try_from(self.int()?).map_err(|_| corrupt("a number"))
    }

    fn blob(&mut self) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(self.int()?).map_err(|_| corrupt("a record is cut off"))?;
        self.take(len)
    }

    fn time(&mut self) -> Result<i64, Fault> {
        let bytes = self.take(8)?.try_into().map_err(|_| corrupt("a time"))?;
        Ok(i64::from_le_bytes(bytes))
    }

    fn meta(&mut self) -> Result<(Meta, Xattrs), Fault> {
        let (mode, uid, gid) = (self.small()?, self.small()?, self.small()?);
        let (modified_ns, changed_ns) = (self.time()?, self.time()?);
        let mut xattrs = BTreeMap::new();
        for _ in 0..self.int()? {
            xattrs.insert(self.blob()?.into(), self.blob()?.into());
        }
        let meta = Meta { mode: mode & 0o7777, uid, gid, modified_ns, changed_ns };
        Ok((meta, (!xattrs.is_empty()).then(|| Arc::new(xattrs))))
    }
}

impl Content {
    fn of_pieces(size: u64, mut pieces: Vec<(u64, Bytes)>) -> Result<Content, Fault> {
        if size == 0 {
            return Ok(Content::empty());
        }
        if let [(0, bytes)] = &mut pieces[..]
            && bytes.len() as u64 == size
        {
            return Ok(Content::Whole(std::mem::take(bytes)));
        }
        let blocks = Blocks::of_pieces(size, pieces).ok_or_else(|| corrupt("a file"))?;
        Ok(Content::Blocks(blocks))
    }
}
