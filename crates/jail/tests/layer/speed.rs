//! How long walks take. Run with `--release -- --ignored --nocapture speed`.

use crate::support::{Scene, make_dir, path};
use fractal_jail::layer::{Bounds, Step, disk_usage};
use std::fs;
use std::time::Instant;

const DIRECTORIES: usize = 2_000;
const FILES_EACH: usize = 99;

#[test]
#[ignore = "a measurement"]
fn two_hundred_thousand_entries() {
    let scene = Scene::new();
    for directory in 0..DIRECTORIES {
        let at = scene.layer(&format!("p/{}/{directory}", directory % 50));
        make_dir(&at);
        for file in 0..FILES_EACH {
            fs::write(at.join(format!("file-{file}")), "x").expect("write");
        }
    }
    let time = |what: &str, work: &dyn Fn() -> u64| {
        let started = Instant::now();
        let entries = work();
        println!("{what}: {entries} entries in {:?}", started.elapsed());
        assert!(entries >= 200_000);
    };
    for _ in 0..2 {
        time("changes", &|| scene.changes().list.len() as u64);
        time("disk_usage", &|| {
            disk_usage(&scene.own(), &Bounds::default()).expect("usage").entries
        });
        time("walk", &|| {
            let view = scene.top_view();
            let walked = view.walk(&path("/"), &Bounds::default(), |_, _| Step::Continue);
            walked.expect("walk").entries
        });
    }
}
