//! What the kernel asks, one method for each kind of request.
//!
//! No handles are kept: the kernel knows an open file by its inode, and is
//! told that there is nothing to say about opening and closing.

use super::attr::{attr, kind, missing, nanoseconds};
use super::server::{Answer, Server};
use crate::error::Kind;
use crate::{Fault, NewMeta, Stat};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The largest write in one request.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Inodes are never used again.
const GENERATION: Generation = Generation(0);

const BLOCK_BYTES: u64 = 4096;

// Numbers of Linux.
const FILE_KIND: u32 = 0o170_000;
const FILE_REGULAR: u32 = 0o100_000;
const APPEND: i32 = 0o2000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// What is asked for where the kernel has it.
const WISHES: [InitFlags; 8] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Cached content is dropped when we say so, not whenever a time differs.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // A view takes set-uid bits away on every write itself. Without this the
    // kernel asks for an attribute before each single write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// Sends what was found out, or the error.
macro_rules! answer {
    ($reply:ident, $done:expr, $send:expr) => {
        match $done {
            Ok(value) => $send($reply, value),
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wish in WISHES {
            // An older kernel does without.
            config.add_capabilities(wish).unwrap_or_default();
        }
        // Larger or smaller, what the kernel can do is taken.
        config.set_max_write(WRITE_BYTES_MAX).unwrap_or_default();
        config.set_max_background(64).unwrap_or_default();
        Ok(())
    }

    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tell(dir.0, name) {
            Ok(told) => reply.entry(&told.remember, &told.attr, GENERATION),
            Err(error) if error.code() == Kind::NotFound.errno() => {
                reply.entry(&self.tell_missing(dir.0, name), &missing(), GENERATION);
            }
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, times: u64) {
        if self.table.forget(inode.0, times) {
            self.clear(inode.0);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.about(inode.0), |reply: ReplyAttr, told: Answer| {
            reply.attr(&told.remember, &told.attr)
        });
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let new = NewMeta { mode, uid, gid, modified_ns: modified.map(nanoseconds) };
        let done = self.set(inode.0, size, new).and_then(|()| self.about(inode.0));
        answer!(reply, done, |reply: ReplyAttr, told: Answer| {
            reply.attr(&told.remember, &told.attr)
        });
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let done = self.on(inode.0, |view, path| view.read_link(path));
        answer!(reply, done, |reply: ReplyData, target: Vec<u8>| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        if !matches!(mode & FILE_KIND, 0 | FILE_REGULAR) {
            // Pipes, sockets and devices are not kept.
            return reply.error(Errno::EPERM);
        }
        let done = self.make(request, dir.0, name, |view, path, _| view.create(path, mode));
        answer!(reply, done, entry);
    }

    fn mkdir(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let done = self.make(request, dir.0, name, |view, path, above| {
            view.make_dir(path, mode | above.meta.mode & 0o2000)
        });
        answer!(reply, done, entry);
    }

    fn symlink(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let done = self.make(request, dir.0, name, |view, path, _| view.symlink(path, target));
        answer!(reply, done, entry);
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove_file(dir.0, name), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove_dir(dir.0, name), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        to_dir: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let names = [(dir.0, name), (to_dir.0, to_name)];
        let done = match flags {
            RenameFlags::RENAME_EXCHANGE => self.exchange(names),
            flags if flags.is_empty() => self.rename_to(names, true),
            RenameFlags::RENAME_NOREPLACE => self.rename_to(names, false),
            _ => Err(Errno::EINVAL),
        };
        answer!(reply, done, |reply: ReplyEmpty, ()| reply.ok());
    }

    fn link(&self, _: &Request, inode: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = self.link_to(inode.0, dir.0, name);
        answer!(reply, done.and_then(|()| self.tell(dir.0, name)), entry);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if !self.says_opens {
            return reply.error(Errno::ENOSYS);
        }
        let live = self.stat(inode.0).is_ok_and(|(_, path)| self.live(&path).is_some());
        let flags = match live {
            true => FopenFlags::FOPEN_DIRECT_IO,
            false => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        };
        reply.opened(FileHandle(0), flags);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.says_opens {
            true => reply.opened(FileHandle(0), FopenFlags::empty()),
            false => reply.error(Errno::ENOSYS),
        }
    }

    /// The kernel makes and opens in two steps then, and need not close.
    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let range = at..at.saturating_add(u64::from(size));
        let done = self.on(inode.0, |view, path| view.read_range(path, range.clone()));
        answer!(reply, done, |reply: ReplyData, bytes: bytes::Bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // What comes from cached pages has its place.
        let append = flags.0 & APPEND != 0 && !how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let done = self.on(inode.0, |view, path| match append {
            true => view.append(path, data),
            false => view.write_at(path, at, data),
        });
        answer!(reply, done, |reply: ReplyWrite, ()| reply.written(data.len() as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    /// There is no disk: what was written is there.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = self.pages(inode.0, offset, |next, name, page| match page {
            Some(page) => reply.add(INodeNo(page.listed.inode), next, kind(page.listed.kind), name),
            None => reply.add(inode, next, fuser::FileType::Directory, name),
        });
        answer!(reply, done, |reply: ReplyDirectory, ()| reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let answering = self.outside.answering();
        let (stat, path) = match self.stat(inode.0) {
            Ok(known) => known,
            Err(error) => return reply.error(error),
        };
        let remember = self.remember(&path, &answering);
        let own = attr(inode.0, &stat);
        let done = self.pages(inode.0, offset, |next, name, page| {
            let Some(page) = page else {
                return reply.add(inode, next, name, &Duration::ZERO, &own, GENERATION);
            };
            let unknown;
            let (known, remember) = match &page.stat {
                Some(known) => (known, remember),
                // What has no size yet is looked up when it is wanted.
                None => {
                    let (kind, inode) = (page.listed.kind, page.listed.inode);
                    unknown = Stat { kind, inode, size: 0, held: 0, ..stat.clone() };
                    (&unknown, Duration::ZERO)
                }
            };
            let attr = attr(known.inode, known);
            let full = reply.add(attr.ino, next, name, &remember, &attr, GENERATION);
            if !full {
                self.table.tell(known, (inode.0, page.listed.name.clone()));
            }
            full
        });
        answer!(reply, done, |reply: ReplyDirectoryPlus, ()| reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (limits, used) = (self.view.limits(), self.view.usage());
        let free = limits.bytes_max.saturating_sub(used.bytes) / BLOCK_BYTES;
        let left = limits.entries_max.saturating_sub(used.entries);
        let blocks = limits.bytes_max / BLOCK_BYTES;
        let size = BLOCK_BYTES as u32;
        let name_max = crate::NAME_BYTES_MAX as u32;
        reply.statfs(blocks, free, free, limits.entries_max, left, size, name_max, size);
    }

    fn setxattr(
        &self,
        _: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if is_the_kernels(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let name = name.as_bytes();
        let done = self.on(inode.0, |view, path| {
            let there = match view.xattr(path, name) {
                Ok(_) => true,
                Err(error) if error.kind == Kind::NoAttribute => false,
                Err(error) => return Err(error),
            };
            match there {
                true if flags == XATTR_CREATE => Err(Fault::new(Kind::Exists).at(path)),
                false if flags == XATTR_REPLACE => Err(Fault::new(Kind::NoAttribute).at(path)),
                _ => view.set_xattr(path, name, value),
            }
        });
        answer!(reply, done, |reply: ReplyEmpty, ()| reply.ok());
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if is_the_kernels(name) {
            return reply.error(Errno::ENODATA);
        }
        let done = self.on(inode.0, |view, path| view.xattr(path, name.as_bytes()));
        sized(reply, size, done);
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let done = self.on(inode.0, |view, path| view.xattrs(path));
        let list =
            |names: Vec<Vec<u8>>| names.into_iter().flat_map(|name| [name, vec![0]].concat());
        sized(reply, size, done.map(|names| list(names).collect()));
    }

    fn removexattr(&self, _: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.on(inode.0, |view, path| view.remove_xattr(path, name.as_bytes()));
        answer!(reply, done, |reply: ReplyEmpty, ()| reply.ok());
    }

    /// The kernel checks by itself, with `default_permissions`.
    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.allocate(inode.0, at..at.saturating_add(len), mode);
        answer!(reply, done, |reply: ReplyEmpty, ()| reply.ok());
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let done = self.seek(inode.0, offset, whence);
        answer!(reply, done, |reply: ReplyLseek, offset: u64| reply.offset(offset as i64));
    }

    /// The kernel copies through its own pages then.
    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}

fn entry(reply: ReplyEntry, told: Answer) {
    reply.entry(&told.remember, &told.attr, GENERATION);
}

/// Names that mean something to the kernel's own checks: nothing in a view is
/// run with more than its caller's rights, so none of them is kept.
fn is_the_kernels(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"security.") || name.starts_with(b"system.")
}

fn sized(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(error),
    }
}
