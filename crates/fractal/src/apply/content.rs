//! Content: copied and hashed in one pass, attributes brought along.

use super::disk::Disk;
use fractal_jail::layer::Attributes;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

const CHUNK_BYTES: usize = 128 * 1024;

/// Fills an empty file with another's content and returns its hash. Never
/// more than the source held when it was opened: whoever may still write it
/// cannot keep us here or fill the disk. Blocks are shared where the
/// filesystem can, and holes stay holes.
pub(super) fn copy(source: &File, target: &File) -> io::Result<(u64, String)> {
    let meta = source.metadata()?;
    let size = meta.len();
    if size > 0 && rustix::fs::ioctl_ficlone(target, source).is_ok() {
        target.set_len(size.min(target.metadata()?.len()))?;
        return Ok((target.metadata()?.len(), hash(target)?));
    }
    let sparse = meta.blocks().saturating_mul(512) < size;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES)).max(1)];
    let mut at = 0;
    while at < size {
        let want = buffer.len().min(usize::try_from(size - at).unwrap_or(buffer.len()));
        let got = source.read_at(&mut buffer[..want], at)?;
        if got == 0 {
            break;
        }
        hasher.update(&buffer[..got]);
        if !(sparse && buffer[..got].iter().all(|byte| *byte == 0)) {
            target.write_all_at(&buffer[..got], at)?;
        }
        at += got as u64;
    }
    if sparse {
        target.set_len(at)?;
    }
    Ok((at, hex(hasher)))
}

/// The hash of a whole file, from its start.
pub(super) fn hash(file: &File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(hex(hasher)),
            got => {
                hasher.update(&buffer[..got]);
                at += got as u64;
            }
        }
    }
}

/// The hash of bytes in memory.
pub(super) fn hash_bytes(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

fn hex(hasher: Sha256) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Which attributes come along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Of a layer: what programs note about their own files. Never what gives
    /// rights or what the kernel's overlay noted.
    OfLayer,
    /// Of a file that stood in reality: all that we may set.
    All,
}

/// The kernel's bound for a value and for a list of names.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

/// Gives one file the attributes of another. What the filesystem cannot hold,
/// or we may not set, is left behind, as `cp` does.
pub(super) fn copy_attributes(
    disk: &Disk,
    source: &File,
    target: &File,
    which: Which,
) -> io::Result<()> {
    match which {
        Which::OfLayer => {
            let noted = Attributes::of(source).map_err(too_many)?;
            give_all(disk, target, &noted)
        }
        Which::All => copy_all(disk, source, target),
    }
}

fn too_many(errno: Errno) -> io::Error {
    match errno {
        Errno::TOOBIG => {
            let why = "it has more extended attributes than are taken along";
            io::Error::new(io::ErrorKind::QuotaExceeded, why)
        }
        errno => errno.into(),
    }
}

fn copy_all(disk: &Disk, source: &File, target: &File) -> io::Result<()> {
    // Most files have none: asking for the length first costs no buffer.
    match rustix::fs::flistxattr_query(source) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
        Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut buffer = vec![0u8; ATTRIBUTE_BYTES_MAX];
    let length = rustix::fs::flistxattr(source, &mut buffer[..])?;
    let names: Vec<Vec<u8>> = buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    for name in names {
        let value = rustix::fs::fgetxattr(source, name.as_slice(), &mut buffer[..]);
        let Ok(length) = value else { continue };
        give(disk, target, &name, &buffer[..length])?;
    }
    Ok(())
}

fn give(disk: &Disk, target: &File, name: &[u8], value: &[u8]) -> io::Result<()> {
    match disk.set_attribute(target, name, value) {
        Err(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw_os_error),
                Some(Errno::NOTSUP | Errno::PERM | Errno::ACCESS)
            ) =>
        {
            Ok(())
        }
        answer => answer,
    }
}

/// Gives a new file or directory what was noted about it.
pub(super) fn give_all(disk: &Disk, target: &File, noted: &Attributes) -> io::Result<()> {
    noted.iter().try_for_each(|(name, value)| give(disk, target, name, value))
}

/// Whether two files hold the same.
pub(super) fn is_equal(one: &File, other: &File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (io::BufReader::new(one), io::BufReader::new(other));
    let (mut left, mut right) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let got = one.read(&mut left)?;
        if got == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        match other.read_exact(&mut right[..got]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            answer => answer?,
        }
        if left[..got] != right[..got] {
            return Ok(false);
        }
    }
}
