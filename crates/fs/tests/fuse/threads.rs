//! Many at once, in the same directories and files.

use crate::dice::Dice;
use crate::mounted::empty;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};

#[test]
fn lines_that_many_append_are_all_there() {
    let Some(view) = empty() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let path = view.at("log");
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for line in 0..200 {
                    // In one call: two would let others in between.
                    file.write_all(format!("{thread} {line}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(view.at("log")).unwrap();
    assert_eq!(text.as_bytes(), &view.view.read("/log").unwrap()[..]);
    for thread in 0..8 {
        let own = text.lines().filter(|line| line.starts_with(&format!("{thread} ")));
        assert!(own.eq((0..200).map(|line| format!("{thread} {line}"))), "{thread}");
    }
}

/// Directories are moved about while files in them are written: every write
/// lands in the file it was meant for.
#[test]
fn moves_never_lead_a_write_astray() {
    let Some(view) = empty() else { return };
    let files: Vec<File> = (0..4)
        .map(|number| {
            let home = view.at(&format!("d{number}"));
            fs::create_dir(&home).unwrap();
            let mut open = OpenOptions::new();
            open.create_new(true).read(true).append(true).open(home.join("mine")).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for (thread, mut file) in files.into_iter().enumerate() {
            scope.spawn(move || {
                for line in 0..300 {
                    file.write_all(format!("{thread}:{line}\n").as_bytes()).unwrap();
                }
                let mut text = String::new();
                std::io::Seek::rewind(&mut file).unwrap();
                file.read_to_string(&mut text).unwrap();
                assert!(text.lines().eq((0..300).map(|line| format!("{thread}:{line}"))));
            });
        }
        let view = &view;
        scope.spawn(move || {
            let mut dice = Dice::new(1);
            let mut at: Vec<String> = (0..4).map(|number| format!("d{number}")).collect();
            for turn in 0..400 {
                let which = dice.below(4) as usize;
                // The name that becomes free is taken by another.
                let to = format!("m{}", turn % 6);
                if to != at[which] && fs::rename(view.at(&at[which]), view.at(&to)).is_ok() {
                    fs::create_dir(view.at(&at[which])).unwrap_or_default();
                    fs::write(view.at(&at[which]).join("mine"), "decoy").unwrap_or_default();
                    at[which] = to;
                }
            }
        });
    });
}

#[test]
fn names_come_and_go_under_readers() {
    let Some(view) = empty() else { return };
    for number in 0..500 {
        fs::write(view.at(&format!("stays-{number}")), "x").unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let view = &view;
            scope.spawn(move || {
                for number in 0..300 {
                    let path = view.at(&format!("goes-{thread}-{number}"));
                    fs::write(&path, "y").unwrap();
                    fs::remove_file(&path).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..15 {
                    let names = fs::read_dir(view.path()).unwrap();
                    let mut names: Vec<String> = names
                        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                        .collect();
                    names.retain(|name| name.starts_with("stays"));
                    let seen = names.len();
                    names.sort();
                    names.dedup();
                    assert_eq!((seen, names.len()), (500, 500));
                }
            });
        }
    });
    assert_eq!(view.view.usage().entries, 500);
}
