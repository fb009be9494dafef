//! Random histories, carried out in a view and in a real directory: every
//! answer, every error and in the end every entry must be the same.

use crate::dice::{Dice, seeds};
use fractal_fs::{FsError, Kind, NewMeta, Vfs};
use fractal_model::EntryKind;
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Deep enough that no `..` of a history gets above the directory it began
/// in, where the two worlds differ.
const DEEP: &str = "1/2/3/4/5/6/7/8/9";

struct Worlds {
    view: Vfs,
    real: PathBuf,
    _dir: tempfile::TempDir,
}

impl Worlds {
    fn new() -> Worlds {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join(DEEP);
        fs::create_dir_all(&real).unwrap();
        let view = Vfs::default();
        view.make_dir_all(format!("/{DEEP}")).unwrap();
        Worlds { view, real, _dir: dir }
    }

    fn virtual_path(&self, path: &str) -> String {
        format!("/{DEEP}/{path}")
    }

    fn real_path(&self, path: &str) -> PathBuf {
        // Joined as text: `Path::join` would drop a slash at the end.
        PathBuf::from(format!("{}/{path}", self.real.display()))
    }
}

fn kind(error: &io::Error) -> Option<Kind> {
    // Errno numbers of Linux.
    Some(match error.raw_os_error()? {
        2 => Kind::NotFound,
        17 => Kind::Exists,
        20 => Kind::NotADirectory,
        21 => Kind::IsADirectory,
        39 => Kind::NotEmpty,
        40 => Kind::Loop,
        36 => Kind::NameTooLong,
        22 => Kind::Invalid,
        1 => Kind::Denied,
        16 => Kind::Busy,
        _ => return None,
    })
}

/// The same outcome, or the words for the difference.
fn agree<T: PartialEq + std::fmt::Debug>(
    what: &str,
    real: io::Result<T>,
    view: Result<T, FsError>,
) {
    match (real, view) {
        (Ok(real), Ok(view)) => assert!(real == view, "{what}: {real:?} and {view:?}"),
        (Err(real), Err(view)) => {
            let expect = kind(&real);
            assert_eq!(Some(view.kind), expect, "{what}: {real} and {view}");
        }
        (real, view) => panic!("{what}: {real:?} and {view:?}"),
    }
}

/// Kind, size, mode and number of names.
type Seen = (EntryKind, u64, u32, u64);

fn see_real(meta: &fs::Metadata) -> Seen {
    let kind = match meta.file_type() {
        kind if kind.is_dir() => EntryKind::Directory,
        kind if kind.is_symlink() => EntryKind::Symlink,
        _ => EntryKind::File,
    };
    let file = kind == EntryKind::File;
    let size = if kind == EntryKind::Directory { 0 } else { meta.len() };
    (kind, size, meta.mode() & 0o777, if file { meta.nlink() } else { 1 })
}

fn see_view(stat: fractal_fs::Stat) -> Seen {
    (stat.kind, stat.size, stat.meta.mode & 0o777, u64::from(stat.names))
}

fn names_real(path: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_string().unwrap()));
    let mut names = names.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

fn names_view(view: &Vfs, path: &str) -> Result<Vec<String>, FsError> {
    Ok(view.list(path)?.into_iter().map(|listed| listed.name.to_string()).collect())
}

fn path(dice: &mut Dice) -> String {
    let names = ["a", "b", "c", "dir", "link", "a-much-longer-name-than-fits-into-short"];
    let mut path = String::new();
    for step in 0..=dice.below(3) {
        if step > 0 {
            path.push('/');
        }
        match dice.below(12) {
            0 => path.push_str(".."),
            1 => path.push('.'),
            _ => path.push_str(dice.of(&names)),
        }
    }
    if dice.below(15) == 0 {
        path.push('/');
    }
    path
}

fn step(worlds: &Worlds, dice: &mut Dice) {
    let (one, two) = (path(dice), path(dice));
    let (view, real, at) = (&worlds.view, worlds.real_path(&one), worlds.virtual_path(&one));
    let data = vec![b'a' + dice.below(26) as u8; dice.below(40_000) as usize];
    match dice.below(16) {
        0 | 1 => {
            agree(&format!("write {one}"), fs::write(&real, &data), view.write(at, data).map(drop))
        }
        2 => {
            let open = fs::OpenOptions::new().append(true).create(true).open(&real);
            let done = open.and_then(|mut file| file.write_all(&data));
            agree(&format!("append {one}"), done, view.append(at, &data));
        }
        3 => {
            let place = dice.below(200_000);
            let open = fs::OpenOptions::new().write(true).open(&real);
            let done = open.and_then(|mut file| {
                file.seek(SeekFrom::Start(place))?;
                file.write_all(&data)
            });
            agree(&format!("write_at {one}"), done, view.write_at(at, place, &data));
        }
        4 => {
            let len = dice.below(150_000);
            let open = fs::OpenOptions::new().write(true).open(&real);
            let done = open.and_then(|file| file.set_len(len));
            agree(&format!("truncate {one}"), done, view.truncate(at, len));
        }
        5 | 6 => {
            agree(&format!("mkdir {one}"), fs::create_dir(&real), view.make_dir(at, 0o755));
        }
        7 => agree(&format!("unlink {one}"), fs::remove_file(&real), view.remove_file(at)),
        8 => agree(&format!("rmdir {one}"), fs::remove_dir(&real), view.remove_dir(at)),
        9 | 10 => {
            let (to, target) = (worlds.real_path(&two), worlds.virtual_path(&two));
            let done = fs::rename(&real, to);
            agree(&format!("rename {one} {two}"), done, view.rename(at, target));
        }
        11 => {
            // A slash at the end of a target makes Linux say `is a directory`
            // early when it creates through the link, before it sees a loop.
            let two = two.trim_end_matches('/');
            let done = std::os::unix::fs::symlink(two, &real);
            agree(&format!("symlink {one} -> {two}"), done, view.symlink(at, two));
        }
        12 => {
            let (to, target) = (worlds.real_path(&two), worlds.virtual_path(&two));
            // A second name for a symlink is something Linux has and we refuse.
            if !fs::symlink_metadata(&real).is_ok_and(|meta| meta.is_symlink()) {
                let done = fs::hard_link(&real, to);
                agree(&format!("link {one} {two}"), done, view.link(at, target));
            }
        }
        13 => {
            // Who owns it may do everything: what others may is not looked at
            // in a view, and would stop us here unless we are root.
            let mode = 0o700 + dice.below(64) as u32;
            // Through a link the real one changes what it leads to.
            if !fs::symlink_metadata(&real).is_ok_and(|meta| meta.is_symlink()) {
                let done = fs::set_permissions(&real, fs::Permissions::from_mode(mode));
                let new = NewMeta { mode: Some(mode), ..NewMeta::default() };
                agree(&format!("chmod {one}"), done, view.set_meta(at, new));
            }
        }
        14 => {
            let seen = fs::metadata(&real).map(|meta| see_real(&meta));
            agree(&format!("stat {one}"), seen, view.stat(&at).map(see_view));
            let seen = fs::symlink_metadata(&real).map(|meta| see_real(&meta));
            agree(&format!("lstat {one}"), seen, view.lstat(at).map(see_view));
        }
        _ => {
            agree(&format!("list {one}"), names_real(&real), names_view(view, &at));
            let read = fs::read(&real);
            agree(&format!("read {one}"), read, view.read(&at).map(|bytes| bytes.to_vec()));
            let link = fs::read_link(&real).map(|target| target.to_str().unwrap().to_owned());
            let ours = view.read_link(at).map(|target| String::from_utf8(target).unwrap());
            agree(&format!("readlink {one}"), link, ours);
        }
    }
}

/// Every entry, with its content.
fn same_trees(worlds: &Worlds, path: &str, what: &str) {
    let (real, at) = (worlds.real_path(path), worlds.virtual_path(path));
    let names = names_real(&real).unwrap();
    assert_eq!(names, names_view(&worlds.view, &at).unwrap(), "{what}: in {path:?}");
    for name in names {
        let path = format!("{path}{name}");
        let (real, at) = (worlds.real_path(&path), worlds.virtual_path(&path));
        let seen = see_real(&fs::symlink_metadata(&real).unwrap());
        assert_eq!(seen, see_view(worlds.view.lstat(&at).unwrap()), "{what}: {path}");
        match seen.0 {
            EntryKind::Directory => same_trees(worlds, &format!("{path}/"), what),
            EntryKind::File => {
                let same = fs::read(&real).unwrap() == worlds.view.read(&at).unwrap();
                assert!(same, "{what}: content of {path}");
            }
            _ => {}
        }
    }
}

#[test]
fn random_histories_end_as_on_a_real_filesystem() {
    for seed in seeds("histories", 120) {
        let (worlds, mut dice) = (Worlds::new(), Dice::new(seed));
        for number in 0..150 {
            step(&worlds, &mut dice);
            // Forks share nodes with what is edited next: the edit must not
            // show in them, and they must not slow it to a different answer.
            if number % 10 == 0 {
                drop(worlds.view.fork());
            }
        }
        same_trees(&worlds, "", &format!("history {seed}"));
    }
}
