//! The bytes of an archive, and the stream of what they unpack to.

use super::{ArchiveBounds, RATIO_FREE_BYTES, broken, corrupt};
use crate::error::{Fault, Kind};
use bytes::Bytes;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The largest window a zstd stream may ask memory for.
const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;

pub(super) enum Store {
    Memory(Bytes),
    File { file: File, len: u64, modified: Option<SystemTime> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Tar,
    Gzip,
    Zstd,
    Zip,
}

impl Store {
    pub(super) fn open(path: &Path) -> Result<Store, Fault> {
        let failed = |error: io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::NotFound => Kind::NotFound,
                io::ErrorKind::PermissionDenied => Kind::Denied,
                _ => Kind::Source,
            };
            Fault::because(kind, format!("{}: {error}", path.display()))
        };
        // Looked at before it is opened: opening a fifo would wait.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Fault::because(Kind::Invalid, format!("{} is no file", path.display())));
        }
        let file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        Ok(Store::File { file, len: meta.len(), modified: meta.modified().ok() })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Store::Memory(bytes) => bytes.len() as u64,
            Store::File { len, .. } => *len,
        }
    }

    /// Whether it still is what was indexed.
    pub(super) fn check_same(&self) -> Result<(), Fault> {
        let Store::File { file, len, modified } = self else { return Ok(()) };
        let meta = file.metadata();
        let meta = meta.map_err(|error| Fault::because(Kind::Source, error.to_string()))?;
        match meta.len() == *len && meta.modified().ok() == *modified {
            true => Ok(()),
            false => Err(Fault::because(Kind::Changed, "the archive was written meanwhile")),
        }
    }

    pub(super) fn read_some(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Store::Memory(bytes) => {
                let rest = bytes.get(at.min(bytes.len() as u64) as usize..).unwrap_or_default();
                let len = rest.len().min(out.len());
                out[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
            #[cfg(unix)]
            Store::File { file, .. } => std::os::unix::fs::FileExt::read_at(file, out, at),
            #[cfg(windows)]
            Store::File { file, .. } => std::os::windows::fs::FileExt::seek_read(file, out, at),
        }
    }

    pub(super) fn fill(&self, out: &mut [u8], at: u64) -> Result<(), Fault> {
        let mut done = 0;
        while done < out.len() {
            match self.read_some(&mut out[done..], at + done as u64) {
                Ok(0) => return Err(corrupt("it is cut off")),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }
}

impl Form {
    pub(super) fn of(store: &Store) -> Result<Form, Fault> {
        let mut head = [0; 512];
        let len = store.read_some(&mut head, 0).map_err(broken)?;
        let head = &head[..len];
        match head {
            [0x1f, 0x8b, ..] => Ok(Form::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Form::Zstd),
            [b'P', b'K', 3..=8, 4..=8, ..] => Ok(Form::Zip),
            _ if head.get(257..262) == Some(b"ustar") => Ok(Form::Tar),
            // A tar without entries is nothing but zeros.
            _ if len == 512 && head.iter().all(|byte| *byte == 0) => Ok(Form::Tar),
            _ => Err(Fault::because(Kind::Invalid, "neither tar, tar.gz, tar.zst nor zip")),
        }
    }
}

/// From a place of a store on; tells how far it came.
struct From {
    store: Arc<Store>,
    at: Arc<AtomicU64>,
}

impl Read for From {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let at = self.at.load(Ordering::Relaxed);
        let len = self.store.read_some(out, at)?;
        self.at.store(at + len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// What an archive unpacks to, in order.
pub(super) enum Stream {
    Plain { store: Arc<Store>, at: u64 },
    Packed(Box<dyn Read + Send>),
}

impl Stream {
    pub(super) fn new(
        store: &Arc<Store>,
        form: Form,
        bounds: &ArchiveBounds,
    ) -> Result<Stream, Fault> {
        let at = Arc::new(AtomicU64::new(0));
        let packed = From { store: store.clone(), at: at.clone() };
        // Headers and padding come on top of what files hold.
        let room = bounds.entries_max.saturating_mul(2048);
        let bytes_max = bounds.bytes_max.saturating_add(room);
        let bounded = |inner| {
            Stream::Packed(Box::new(Bounded {
                inner,
                at,
                out: 0,
                bytes_max,
                ratio_max: bounds.ratio_max,
            }))
        };
        Ok(match form {
            Form::Tar | Form::Zip => Stream::Plain { store: store.clone(), at: 0 },
            Form::Gzip => {
                let packed = io::BufReader::new(packed);
                bounded(Box::new(flate2::bufread::MultiGzDecoder::new(packed)))
            }
            Form::Zstd => bounded(Box::new(Frames::new(packed)?)),
        })
    }

    /// Goes on without looking.
    pub(super) fn skip(&mut self, len: u64) -> Result<(), Fault> {
        match self {
            Stream::Plain { store, at } => {
                match at.checked_add(len).filter(|at| *at <= store.len()) {
                    Some(next) => *at = next,
                    None => return Err(corrupt("it is cut off")),
                }
            }
            Stream::Packed(inner) => {
                let skipped = io::copy(&mut inner.take(len), &mut io::sink()).map_err(broken)?;
                if skipped < len {
                    return Err(corrupt("it is cut off"));
                }
            }
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Packed(inner) => inner.read(out),
            Stream::Plain { store, at } => {
                let len = store.read_some(out, *at)?;
                *at += len as u64;
                Ok(len)
            }
        }
    }
}

/// Zstd data is one frame after the other.
struct Frames {
    packed: Option<io::BufReader<From>>,
    frame: Option<Frame>,
}

type Frame =
    ruzstd::decoding::StreamingDecoder<io::BufReader<From>, ruzstd::decoding::FrameDecoder>;

impl Frames {
    fn new(packed: From) -> Result<Frames, Fault> {
        let mut frames = Frames { packed: Some(io::BufReader::new(packed)), frame: None };
        frames.next_frame().map_err(broken)?;
        Ok(frames)
    }

    fn next_frame(&mut self) -> io::Result<()> {
        let packed = self.frame.take().map(Frame::into_inner).or_else(|| self.packed.take());
        let Some(mut packed) = packed else { return Ok(()) };
        if io::BufRead::fill_buf(&mut packed)?.is_empty() {
            return Ok(());
        }
        let frame = Frame::new_with_max_window_size(packed, ZSTD_WINDOW_BYTES_MAX);
        self.frame = Some(frame.map_err(|error| io::Error::other(error.to_string()))?);
        Ok(())
    }
}

impl Read for Frames {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let len = frame.read(out)?;
            if len > 0 || out.is_empty() {
                return Ok(len);
            }
            self.next_frame()?;
        }
        Ok(0)
    }
}

/// Stops unpacking what becomes too much.
struct Bounded {
    inner: Box<dyn Read + Send>,
    /// How far the packed bytes were read.
    at: Arc<AtomicU64>,
    out: u64,
    bytes_max: u64,
    ratio_max: u64,
}

/// A fault on its way through readers that only know I/O errors.
#[derive(Debug)]
pub(super) struct Bomb(pub(super) Fault);

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.reason.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for Bomb {}

impl Read for Bounded {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(out)?;
        self.out += len as u64;
        if self.out > self.bytes_max {
            let reason = format!("the archive unpacks to more than {} bytes", self.bytes_max);
            return Err(io::Error::other(Bomb(Fault::because(Kind::TooLarge, reason))));
        }
        check_ratio(self.at.load(Ordering::Relaxed), self.out, self.ratio_max)
            .map_err(|fault| io::Error::other(Bomb(fault)))?;
        Ok(len)
    }
}

/// Whether so many packed bytes may become so many.
pub(super) fn check_ratio(packed: u64, unpacked: u64, ratio_max: u64) -> Result<(), Fault> {
    let allowed = packed.saturating_mul(ratio_max).saturating_add(RATIO_FREE_BYTES);
    match unpacked > allowed {
        false => Ok(()),
        true => {
            let reason = format!("the archive unpacks to more than {ratio_max} times its size");
            Err(Fault::because(Kind::TooLarge, reason))
        }
    }
}
