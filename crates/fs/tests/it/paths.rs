//! Paths that nobody should write, at every door.

use crate::common::mount;
use crate::dice::{Dice, seeds};
use fractal_fs::{Access, Freshness, Host, Vfs};
use std::sync::Arc;

const PIECES: [&[u8]; 22] = [
    b"..",
    b".",
    b"",
    b"/",
    b"a",
    b"b",
    b"up",
    b"out",
    b"loop",
    b"m",
    b"secret",
    b"\xff\xfe",
    b"\0",
    b"\n",
    b"...",
    b"..\0",
    b" ",
    b"%2e%2e",
    b"\\..\\",
    b"etc",
    b"passwd",
    b"\xe2\x80\xae",
];

fn odd(dice: &mut Dice) -> Vec<u8> {
    let mut path = if dice.below(4) > 0 { b"/".to_vec() } else { Vec::new() };
    for _ in 0..=dice.below(12) {
        match dice.below(40) {
            0 => path.extend(vec![b'x'; 250 + dice.below(10) as usize]),
            1 => path.extend(b"up/".repeat(dice.below(2000) as usize)),
            _ => path.extend_from_slice(dice.of(&PIECES)),
        }
        if dice.below(5) > 0 {
            path.push(b'/');
        }
    }
    path
}

/// Does one thing at odd paths; what it answers is nobody's business.
fn poke(view: &Vfs, dice: &mut Dice) -> Option<Vec<u8>> {
    let (one, two) = (odd(dice), odd(dice));
    match dice.below(18) {
        0 => drop(view.write(&one, "w")),
        1 => drop(view.write_all(&one, "w")),
        2 => drop(view.append(&one, b"w")),
        3 => drop(view.make_dir(&one, 0o700)),
        4 => drop(view.make_dir_all(&one)),
        5 => drop(view.symlink(&one, &two)),
        6 => drop(view.link(&one, &two)),
        7 => drop(view.rename(&one, &two)),
        8 => drop(view.exchange(&one, &two)),
        9 => drop(view.remove_file(&one)),
        10 => drop(view.copy_file(&one, &two)),
        11 => drop(view.truncate(&one, dice.below(1 << 40))),
        12 => drop(view.list(&one)),
        13 => drop(view.lstat(&one)),
        14 => drop(view.read_range(&one, dice.below(9)..dice.below(1 << 40))),
        15 => drop(view.set_xattr(&one, &two, &one)),
        _ => return view.read(&one).ok().map(|bytes| bytes.to_vec()),
    }
    None
}

/// A fuzz target: see CONTRIBUTING.md.
#[test]
fn no_path_leads_out_or_breaks_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "s3cret").unwrap();
    let shown = dir.path().join("shown");
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("a"), "shown").unwrap();
    std::os::unix::fs::symlink("../secret", shown.join("out")).unwrap();
    std::os::unix::fs::symlink(dir.path(), shown.join("up")).unwrap();
    for seed in seeds("paths", 8) {
        let (view, mut dice) = (Vfs::default(), Dice::new(seed));
        let host = Arc::new(Host::open(&shown).unwrap());
        mount(&view, "/m", host, Access::Writable, Freshness::Frozen);
        view.symlink("/loop", "loop/loop").unwrap();
        view.symlink("/up", "../../..").unwrap();
        view.symlink("/out", dir.path().as_os_str().as_encoded_bytes()).unwrap();
        for _ in 0..200 {
            let read = poke(&view, &mut dice);
            assert_ne!(read.as_deref(), Some(&b"s3cret"[..]), "seed {seed}");
            let path = odd(&mut dice);
            if let Ok(real) = view.resolve(&path) {
                let parts: Vec<&[u8]> = real.split(|byte| *byte == b'/').skip(1).collect();
                assert!(real.starts_with(b"/"), "seed {seed}: {}", real.escape_ascii());
                assert!(!parts.iter().any(|part| matches!(*part, b"." | b"..")), "seed {seed}");
                // Its last name need not be there yet.
                let inode = |stat: Result<fractal_fs::Stat, _>| stat.ok().map(|stat| stat.inode);
                let same = inode(view.stat(&path)) == inode(view.lstat(&real));
                assert!(same, "seed {seed}: {}: {:?}", path.escape_ascii(), view.stat(&path));
            }
        }
        // Everything that is there can be reached by its name.
        walk(&view, b"", 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(std::fs::read_dir(&shown).unwrap().count(), 3);
    }
}

fn walk(view: &Vfs, path: &[u8], depth: u32) {
    let shown = if path.is_empty() { b"/" } else { path };
    for listed in view.list(shown).unwrap() {
        let path = [path, b"/", listed.name.bytes()].concat();
        let stat = view.lstat(&path).unwrap();
        if stat.kind == fractal_model::EntryKind::Directory && depth < 100 {
            walk(view, &path, depth + 1);
        }
    }
}
