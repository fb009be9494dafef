//! Random histories through the mount and in a real directory: every answer,
//! every error and in the end every entry must be the same.

use crate::dice::Dice;
use crate::mounted::{empty, sh};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

const DEEP: &str = "1/2/3/4/5/6/7/8/9";

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

/// What is done, the same in both worlds.
#[derive(Debug)]
struct Step {
    what: u64,
    one: String,
    two: String,
    data: Vec<u8>,
    number: u64,
}

impl Step {
    fn new(dice: &mut Dice) -> Step {
        Step {
            what: dice.below(20),
            one: path(dice),
            two: path(dice),
            data: vec![b'a' + dice.below(26) as u8; dice.below(40_000) as usize],
            number: dice.below(150_000),
        }
    }

    fn run(&self, root: &Path) -> io::Result<String> {
        // Joined as text: `Path::join` would drop a slash at the end.
        let one = format!("{}/{}", root.display(), self.one);
        let two = format!("{}/{}", root.display(), self.two);
        let done = |()| String::new();
        match self.what {
            0 | 1 => fs::write(&one, &self.data).map(done),
            2 => OpenOptions::new()
                .append(true)
                .create(true)
                .open(&one)
                .and_then(|mut file| file.write_all(&self.data).map(done)),
            3 => OpenOptions::new()
                .write(true)
                .open(&one)
                .and_then(|file| file.write_all_at(&self.data, self.number).map(done)),
            4 => OpenOptions::new()
                .write(true)
                .open(&one)
                .and_then(|file| file.set_len(self.number).map(done)),
            5 | 6 => fs::create_dir(&one).map(done),
            7 => fs::remove_file(&one).map(done),
            8 => fs::remove_dir(&one).map(done),
            9 | 10 => fs::rename(&one, &two).map(done),
            11 => std::os::unix::fs::symlink(self.two.trim_end_matches('/'), &one).map(done),
            // A second name for a symlink is something Linux has and we refuse.
            12 if fs::symlink_metadata(&one).is_ok_and(|meta| meta.is_symlink()) => {
                Ok(String::new())
            }
            12 => fs::hard_link(&one, &two).map(done),
            13 => {
                let mode = Permissions::from_mode(0o600 + (self.number % 64) as u32);
                fs::set_permissions(&one, mode).map(done)
            }
            14 => fs::symlink_metadata(&one).map(|meta| see(&meta)),
            15 => fs::metadata(&one).map(|meta| see(&meta)),
            16 => renameat_with(CWD, &one, CWD, &two, RenameFlags::NOREPLACE)
                .map(done)
                .map_err(Into::into),
            17 => renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE)
                .map(done)
                .map_err(Into::into),
            18 => fs::read_link(&one).map(|target| target.display().to_string()),
            _ => {
                let names = fs::read_dir(&one)?.map(|entry| Ok(entry?.file_name()));
                let mut names = names.collect::<io::Result<Vec<_>>>()?;
                names.sort();
                Ok(format!("{names:?}"))
            }
        }
    }
}

fn see(meta: &fs::Metadata) -> String {
    let size = if meta.is_dir() { 0 } else { meta.len() };
    let names = if meta.is_file() { meta.nlink() } else { 1 };
    format!("{:?} {size} {:o} {names}", meta.file_type(), meta.mode())
}

#[test]
fn random_histories_end_as_on_a_real_filesystem() {
    let Some(view) = empty() else { return };
    for seed in 0..40 {
        let (real, name) = (tempfile::tempdir().unwrap(), format!("history-{seed}"));
        let roots = [real.path().join(DEEP), view.at(&name).join(DEEP)];
        roots.iter().for_each(|root| fs::create_dir_all(root).unwrap());
        let mut dice = Dice::new(seed);
        for number in 0..200 {
            let step = Step::new(&mut dice);
            let [real, ours] = roots
                .each_ref()
                .map(|root| step.run(root).map_err(|error| error.raw_os_error().unwrap_or(0)));
            let Step { what, one, two, .. } = &step;
            assert_eq!(real, ours, "history {seed}, step {number}: {what} {one} {two}");
        }
        let both =
            format!("diff -r --no-dereference {} {}", roots[0].display(), roots[1].display());
        assert_eq!(sh(view.path(), &both), "", "history {seed}");
        let list =
            "find . -printf '%p %y %m %n %l\\n' | sed 's/^\\(\\S* d \\S*\\) \\S*/\\1/' | sort";
        assert_eq!(sh(&roots[0], list), sh(&roots[1], list), "history {seed}");
    }
}
