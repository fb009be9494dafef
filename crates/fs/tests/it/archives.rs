//! Archives that real programs made, and archives that mean harm.

use crate::common::{all, kind, mounted, path, text};
use crate::dice::{Dice, seeds};
use fractal_fs::{Archive, ArchiveBounds, Fault, Freshness, Kind, Vfs};
use fractal_model::EntryKind;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn run(program: &str, args: &[&str], dir: &Path) {
    let done = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn python(code: &str, dir: &Path) {
    run("python3", &["-c", code], dir);
}

/// A directory with one of each, below `in/`.
fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("in").join(name);
    fs::create_dir_all(at("sub/deep")).unwrap();
    fs::write(at("a.txt"), "hello").unwrap();
    fs::write(at("sub/deep/big"), (0..300_000u32).map(|n| n as u8).collect::<Vec<_>>()).unwrap();
    fs::set_permissions(at("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(at(&"long".repeat(50)), "long name").unwrap();
    symlink("../a.txt", at("sub/link")).unwrap();
    symlink("/etc/passwd", at("out")).unwrap();
    fs::hard_link(at("a.txt"), at("sub/same")).unwrap();
    fs::write(dir.path().join("in").join(std::ffi::OsStr::from_bytes(b"odd \xff\n")), "odd")
        .unwrap();
    dir
}

fn open(file: &Path) -> Result<Archive, Fault> {
    Archive::open(file, ArchiveBounds::default())
}

fn of(bytes: &[u8]) -> Result<Archive, Fault> {
    Archive::of_bytes(bytes.to_vec(), ArchiveBounds::default())
}

fn check_sample(view: &Vfs) {
    assert_eq!(text(view, "/m/in/a.txt"), "hello");
    assert_eq!(view.stat("/m/in/a.txt").unwrap().meta.mode, 0o640);
    let big = view.read("/m/in/sub/deep/big").unwrap();
    assert!(big.iter().enumerate().all(|(at, byte)| *byte == at as u8) && big.len() == 300_000);
    assert_eq!(&view.read_range("/m/in/sub/deep/big", 1000..1003).unwrap()[..], [232, 233, 234]);
    assert_eq!(text(view, "/m/in/sub/link"), "hello");
    assert_eq!(text(view, &format!("/m/in/{}", "long".repeat(50))), "long name");
    assert_eq!(view.read_link("/m/in/out").unwrap(), b"/etc/passwd");
    assert_eq!(
        kind(view.read("/m/in/out")),
        Kind::NotFound,
        "links lead nowhere but into the view"
    );
    view.append("/m/in/a.txt", b"!").unwrap();
    assert_eq!(text(view, "/m/in/a.txt"), "hello!");
}

#[test]
fn tars_of_every_packing_are_sources() {
    let dir = sample();
    for format in ["gnu", "pax"] {
        let form = format!("--format={format}");
        run("tar", &["-cf", "a.tar", &form, "in"], dir.path());
        run("tar", &["-czf", "a.tar.gz", &form, "in"], dir.path());
        run("zstd", &["-qf", "a.tar"], dir.path());
        for name in ["a.tar", "a.tar.gz", "a.tar.zst"] {
            let view = mounted(Arc::new(open(&dir.path().join(name)).unwrap()), Freshness::Frozen);
            assert_eq!(view.read(b"/m/in/odd \xff\n").unwrap(), "odd", "{name} {format}");
            assert_eq!(text(&view, "/m/in/sub/same"), "hello");
            check_sample(&view);
        }
    }
}

#[test]
fn zips_of_python_are_sources() {
    let dir = sample();
    let code = r#"
import zipfile, os, stat
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for root, dirs, files in os.walk("in"):
        for name in files + [d for d in dirs]:
            path = os.path.join(root, name)
            if os.path.islink(path):
                info = zipfile.ZipInfo(path); info.create_system = 3
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
                z.writestr(info, os.readlink(path))
            elif "odd" not in path:
                z.write(path)
"#;
    python(code, dir.path());
    let view = mounted(Arc::new(open(&dir.path().join("a.zip")).unwrap()), Freshness::Frozen);
    assert_eq!(view.stat("/m/in/sub").unwrap().kind, EntryKind::Directory);
    check_sample(&view);
}

#[test]
fn an_archive_that_changes_under_us_is_refused() {
    let dir = sample();
    run("tar", &["-cf", "a.tar", "in"], dir.path());
    let view = mounted(Arc::new(open(&dir.path().join("a.tar")).unwrap()), Freshness::Frozen);
    view.list("/m/in").unwrap();
    let file = fs::File::options().append(true).open(dir.path().join("a.tar")).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    assert_eq!(kind(view.read("/m/in/a.txt")), Kind::Changed);
    assert_eq!(open(&dir.path().join("none.tar")).err().unwrap().kind, Kind::NotFound);
    assert_eq!(open(dir.path()).err().unwrap().kind, Kind::Invalid);
    assert_eq!(of(b"").err().unwrap().kind, Kind::Invalid);
    assert_eq!(of(b"no archive at all").err().unwrap().kind, Kind::Invalid);
}

/// Tars or zips that Python makes of entries that no decent program makes,
/// one for each piece of code, in one process.
fn hostile(codes: &[(String, &str)]) -> Vec<Result<Archive, Fault>> {
    let dir = tempfile::tempdir().unwrap();
    let before = r#"
import tarfile, zipfile, io, struct, warnings
warnings.simplefilter("ignore")
def tar(entries, mode="w"):
    with tarfile.open("a.tar", mode) as t:
        for name, kind, link, size in entries:
            info = tarfile.TarInfo(name); info.type = kind; info.linkname = link; info.size = size
            t.addfile(info, io.BytesIO(b"x" * size))
def zipped(entries, pack=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile("a.zip", "w", pack) as z:
        for name, data in entries: z.writestr(name, data)
F, D, L, H = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
"#;
    let after = "import os, sys\nfor n, code in enumerate(sys.argv[1:]):\n    \
                 os.mkdir(str(n)); os.chdir(str(n)); exec(code); os.chdir('..')\n";
    let all = format!("{before}{after}");
    let mut args = vec!["-c", &all];
    args.extend(codes.iter().map(|(code, _)| code.as_str()));
    run("python3", &args, dir.path());
    let bounds = ArchiveBounds { entries_max: 1000, bytes_max: 8 << 20, ratio_max: 1100 };
    let open = |(number, (_, suffix)): (usize, &(String, &str))| {
        Archive::open(dir.path().join(format!("{number}/a.{suffix}")), bounds)
    };
    codes.iter().enumerate().map(open).collect()
}

fn hostile_one(code: &str, suffix: &str) -> Archive {
    hostile(&[(code.to_owned(), suffix)]).remove(0).unwrap()
}

#[test]
fn hostile_archives_are_refused_and_say_why() {
    let mut cases: Vec<(String, &str, Kind, &str)> = Vec::new();
    let mut check = |code: &str, suffix: &'static str, expect: Kind, words: &'static str| {
        cases.push((code.to_owned(), suffix, expect, words));
    };
    for name in ["../evil", "a/../../evil", "a/.."] {
        check(&format!("tar([({name:?}, F, '', 1)])"), "tar", Kind::Invalid, "climbs");
        check(&format!("zipped([({name:?}, 'x')])"), "zip", Kind::Invalid, "climbs");
    }
    check("tar([('/etc/passwd', F, '', 1)])", "tar", Kind::Invalid, "absolute");
    check("zipped([('/etc/passwd', 'x')])", "zip", Kind::Invalid, "absolute");
    check("tar([('a', F, '', 1), ('a', F, '', 2)])", "tar", Kind::Source, "names /a twice");
    check("zipped([('a', 'x'), ('a', 'y')])", "zip", Kind::Source, "names /a twice");
    check("tar([('a', L, '/etc', 0), ('a/b', F, '', 1)])", "tar", Kind::Source, "something else");
    check("tar([('a', F, '', 1), ('a/b', F, '', 1)])", "tar", Kind::Source, "something else");
    check("tar([('a', H, '/etc/passwd', 0)])", "tar", Kind::Invalid, "absolute");
    check("tar([('a', H, '../x', 0)])", "tar", Kind::Invalid, "climbs");
    check("tar([('a', H, 'b', 0), ('b', F, '', 1)])", "tar", Kind::Source, "which it lacks");
    for device in ["CHRTYPE", "BLKTYPE", "FIFOTYPE"] {
        check(
            &format!("tar([('a', tarfile.{device}, '', 0)])"),
            "tar",
            Kind::Unsupported,
            "device",
        );
    }
    let many = "[(str(n), F, '', 0) for n in range(1001)]";
    check(&format!("tar({many})"), "tar", Kind::TooLarge, "1000 entries");
    check("zipped([(str(n), '') for n in range(1001)])", "zip", Kind::TooLarge, "1000 entries");
    let bomb = "import gzip\ng = gzip.open('a.tar', 'wb', 9)\nh = tarfile.TarInfo('a')\n\
                h.size = 40 << 20\ng.write(h.tobuf())\nfor _ in range(40): g.write(bytes(1 << 20))\n\
                g.write(bytes(1024))\ng.close()";
    check(bomb, "tar", Kind::TooLarge, "unpacks to more than");
    check("zipped([(str(n), bytes(1 << 20)) for n in range(9)])", "zip", Kind::TooLarge, "bytes");
    // Two names for the same packed bytes.
    let over = "zipped([('a', 'x' * 100), ('b', 'y' * 100)], zipfile.ZIP_STORED)\n\
                d = bytearray(open('a.zip', 'rb').read())\nc = d.rindex(b'PK\\x01\\x02')\n\
                d[c + 42:c + 46] = struct.pack('<I', 0)\nopen('a.zip', 'wb').write(d)";
    check(over, "zip", Kind::Source, "over each other");
    check("zipped([('a', 'x')], zipfile.ZIP_BZIP2)", "zip", Kind::Unsupported, "not with deflate");
    let deep = "tar([('a/' * 1500 + 'x', F, '', 0)])";
    check(deep, "tar", Kind::NameTooLong, "a/a/a");
    check("zipped([('a' * 300, 'x')])", "zip", Kind::NameTooLong, "aaa");
    let codes: Vec<_> = cases.iter().map(|(code, suffix, ..)| (code.clone(), *suffix)).collect();
    for ((code, _, expect, words), opened) in cases.iter().zip(hostile(&codes)) {
        let fault = opened.err().unwrap_or_else(|| panic!("{code} was taken"));
        let reason = fault.reason.clone().unwrap_or_default();
        assert_eq!(fault.kind, *expect, "{code}: {reason}");
        assert!(reason.contains(words), "{code}: {reason}");
    }
    // A link that leads out is a link of the view, and leads nowhere.
    let archive = hostile_one("tar([('l', L, '../../../../etc/passwd', 0)])", "tar");
    assert_eq!(kind(mounted(Arc::new(archive), Freshness::Frozen).read("/m/l")), Kind::NotFound);
}

#[test]
fn what_a_zip_says_of_its_size_is_checked() {
    let lie = "zipped([('a', 'x' * 5000)])\nd = bytearray(open('a.zip', 'rb').read())\n\
               c = d.rindex(b'PK\\x01\\x02')\nd[c + 24:c + 28] = struct.pack('<I', 10)\n\
               open('a.zip', 'wb').write(d)";
    let view = mounted(Arc::new(hostile_one(lie, "zip")), Freshness::Frozen);
    assert_eq!(kind(view.read("/m/a")), Kind::Source);
    let sum = "zipped([('a', 'x' * 5000)], zipfile.ZIP_STORED)\nd = bytearray(open('a.zip', 'rb').read())\n\
               d[100] ^= 1\nopen('a.zip', 'wb').write(d)";
    let view = mounted(Arc::new(hostile_one(sum, "zip")), Freshness::Frozen);
    assert_eq!(kind(view.read("/m/a")), Kind::Source);
}

/// Whatever becomes of an archive's bytes, reading it ends, with entries that
/// lie in the view or with an error.
#[test]
fn mutated_archives_never_break_the_reader() {
    let dir = sample();
    run(
        "tar",
        &["-cf", "a.tar", "--format=pax", "--xattrs", "in/a.txt", "in/sub/link", "in/sub/same"],
        dir.path(),
    );
    run("tar", &["-czf", "a.tar.gz", "in/a.txt", "in/out"], dir.path());
    run("zstd", &["-q", "a.tar"], dir.path());
    python(
        "import zipfile\nz = zipfile.ZipFile('a.zip', 'w', 8)\nz.writestr('d/a', 'x' * 999)\nz.writestr('b', '')\nz.close()",
        dir.path(),
    );
    let bounds = ArchiveBounds { entries_max: 1000, bytes_max: 1 << 20, ratio_max: 100 };
    let names = ["a.tar", "a.tar.gz", "a.tar.zst", "a.zip"];
    let archives = names.map(|name| fs::read(dir.path().join(name)).unwrap());
    let mut taken = 0;
    for seed in seeds("archives", 4) {
        let mut dice = Dice::new(seed + 41);
        let which = (seed % 4) as usize;
        let (name, whole) = (names[which], &archives[which]);
        assert!(Archive::of_bytes(whole.clone(), bounds).is_ok(), "{name}");
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..=dice.below(4) {
                let at = dice.below(bytes.len() as u64) as usize;
                match dice.below(4) {
                    0 => bytes[at] = dice.below(256) as u8,
                    1 => bytes[at] ^= 1 << dice.below(8),
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        let end = (at + dice.below(600) as usize).min(bytes.len());
                        let piece = bytes[at..end].to_vec();
                        let to = dice.below(bytes.len() as u64) as usize;
                        bytes.splice(to..to, piece);
                    }
                }
            }
            if let Ok(archive) = Archive::of_bytes(bytes, bounds) {
                taken += 1;
                let view = Vfs::default();
                // The content may be broken; what was there is not.
                view.write("/kept", "kept").unwrap();
                if view.import_archive(&path("/new"), &archive).is_err() {
                    assert!(!view.exists("/new"));
                }
                assert_eq!(view.list("/").unwrap().len(), 1 + usize::from(view.exists("/new")));
            }
        }
    }
    assert!(taken > 0, "none was still an archive");
}

#[test]
fn truncation_anywhere_is_an_error_or_the_same_entries() {
    let dir = sample();
    run("tar", &["-cf", "a.tar", "in"], dir.path());
    let whole = fs::read(dir.path().join("a.tar")).unwrap();
    let full = Vfs::default();
    full.import_archive(&path("/x"), &of(&whole).unwrap()).unwrap();
    let full = all(&full, b"/x");
    for len in (512..whole.len()).step_by(9973) {
        let view = Vfs::default();
        match of(&whole[..len]) {
            Ok(archive) => {
                view.import_archive(&path("/x"), &archive).unwrap();
                assert_eq!(all(&view, b"/x"), full, "cut at {len}");
            }
            Err(fault) => assert_eq!(fault.kind, Kind::Source, "cut at {len}: {fault:?}"),
        }
    }
}
