//! Reads, writes, cuts, holes and seeks at random, against plain memory.

use crate::dice::Dice;
use crate::mounted::{View, empty, has, sh};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

const SIZE_MAX: u64 = 400_000;

struct Io<'a> {
    view: &'a View,
    file: File,
    plain: Vec<u8>,
    dice: Dice,
}

impl Io<'_> {
    fn range(&mut self) -> (u64, usize) {
        // Half of them end where pages and blocks do.
        let align = *[1, 1, 4096, 65536].get(self.dice.below(4) as usize).unwrap();
        let at = self.dice.below(SIZE_MAX) / align * align;
        let len = self.dice.below(70_000) / align * align + self.dice.below(3);
        (at, len as usize)
    }

    fn zero(&mut self, at: u64, len: usize) {
        let end = self.plain.len().min(at as usize + len);
        self.plain.get_mut(at as usize..end).unwrap_or_default().fill(0);
    }

    fn step(&mut self, what: &str) {
        let (at, len) = self.range();
        match self.dice.below(9) {
            0 | 1 => {
                let mut got = vec![0xaa; len];
                let mut have = 0;
                while have < len {
                    match self.file.read_at(&mut got[have..], at + have as u64).unwrap() {
                        0 => break,
                        more => have += more,
                    }
                }
                let end = self.plain.len().min(at as usize + len);
                let expect = self.plain.get(at as usize..end).unwrap_or_default();
                assert!(got[..have] == *expect, "{what}: read {at}+{len}");
            }
            2..=4 => {
                let data: Vec<u8> = (0..len).map(|_| self.dice.below(256) as u8).collect();
                self.file.write_all_at(&data, at).unwrap();
                if len > 0 {
                    let end = at as usize + len;
                    self.plain.resize(self.plain.len().max(end), 0);
                    self.plain[at as usize..end].copy_from_slice(&data);
                }
            }
            5 => {
                self.file.set_len(at).unwrap();
                self.plain.resize(at as usize, 0);
            }
            6 if len > 0 => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, how, at, len as u64).unwrap();
                self.zero(at, len);
            }
            7 if len > 0 => {
                let how = *[
                    FallocateFlags::empty(),
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::KEEP_SIZE,
                ]
                .get(self.dice.below(3) as usize)
                .unwrap();
                fallocate(&self.file, how, at, len as u64).unwrap();
                if how == FallocateFlags::ZERO_RANGE {
                    self.zero(at, len);
                }
                if how != FallocateFlags::KEEP_SIZE {
                    self.plain.resize(self.plain.len().max(at as usize + len), 0);
                }
            }
            _ => {
                self.file = open(self.view);
                assert_eq!(self.file.metadata().unwrap().len(), self.plain.len() as u64, "{what}");
                self.check_holes(what);
            }
        }
    }

    /// What the file calls a hole is zeros.
    fn check_holes(&self, what: &str) {
        let mut at = 0;
        while (at as usize) < self.plain.len() {
            let Ok(data) = seek(&self.file, SeekFrom::Data(at)) else {
                assert!(self.plain[at as usize..].iter().all(|byte| *byte == 0), "{what}");
                return;
            };
            assert!(self.plain[at as usize..data as usize].iter().all(|byte| *byte == 0), "{what}");
            at = seek(&self.file, SeekFrom::Hole(data)).unwrap();
            assert!(at > data, "{what}");
        }
    }
}

fn open(view: &View) -> File {
    let open =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(view.at("f"));
    open.unwrap()
}

#[test]
fn random_reads_writes_cuts_and_holes() {
    let Some(view) = empty() else { return };
    for seed in 0..6 {
        std::fs::remove_file(view.at("f")).unwrap_or_default();
        let file = open(&view);
        let mut io = Io { view: &view, file, plain: Vec::new(), dice: Dice::new(seed) };
        for step in 0..250 {
            io.step(&format!("seed {seed} step {step}"));
        }
        let seen = std::fs::read(view.at("f")).unwrap();
        assert!(seen == io.plain, "seed {seed}: through the mount");
        assert!(view.view.read("/f").unwrap() == io.plain, "seed {seed}: in the view");
        // The same for a file whose name is gone.
        std::fs::remove_file(view.at("f")).unwrap();
        let mut all = vec![0; io.plain.len() + 10];
        let mut have = 0;
        loop {
            match io.file.read_at(&mut all[have..], have as u64).unwrap() {
                0 => break,
                more => have += more,
            }
        }
        assert!(all[..have] == io.plain, "seed {seed}: without a name");
    }
}

/// Memory maps need unsafe code, which Python has.
const MAPS: &str = r"
import mmap, os, random
random.seed(5)
size = 300_000
with open('m', 'w+b') as f:
    f.truncate(size)
    plain = bytearray(size)
    with mmap.mmap(f.fileno(), size) as m:
        for step in range(400):
            at = random.randrange(size - 5000); n = random.randrange(1, 5000)
            data = random.randbytes(n)
            if step % 3 == 0:
                os.pwrite(f.fileno(), data, at)
            elif step % 3 == 1:
                m[at:at + n] = data
            else:
                assert os.pread(f.fileno(), n, at) == bytes(plain[at:at + n]), step
                assert m[at:at + n] == bytes(plain[at:at + n]), step
                continue
            plain[at:at + n] = data
            if step % 50 == 0: m.flush()
    os.fsync(f.fileno())
assert open('m', 'rb').read() == bytes(plain)
open('plain', 'wb').write(plain)
";

#[test]
fn memory_maps_and_writes_agree() {
    let (Some(view), true) = (empty(), has("python3")) else { return };
    sh(view.path(), &format!("python3 - <<'END'\n{MAPS}\nEND"));
    assert!(view.view.read("/m").unwrap() == view.view.read("/plain").unwrap());
}
