//! Files with several names: kept together, or said to come apart.

use crate::world::World;
use fractal::model::{Policy, PromoteReply, Verdict};
use std::fs;
use std::os::unix::fs::MetadataExt;

fn told(reply: &PromoteReply) -> Vec<&str> {
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    let about = reply.notes.iter().filter(|note| note.contains("names"));
    about.map(String::as_str).collect()
}

#[test]
fn a_file_with_further_names_on_the_host_is_said_to_come_apart() {
    let world = World::new();
    world.write("a", "old\n");
    fs::hard_link(world.file("a"), world.file("other")).unwrap();
    world.write("alone", "old\n");
    world.make("s", "echo new > a; echo new > alone").unwrap();
    let reply = world.promote("s");
    assert_eq!(told(&reply), ["1 file has further names (hard links), which keep what it held"]);
    assert_eq!((world.read("a"), world.read("other")), ("new\n".into(), "old\n".into()));
    world.make("t", "echo newer > alone").unwrap();
    assert!(told(&world.promote("t")).is_empty());
}

#[test]
fn names_of_one_file_stay_together_in_reality_and_are_said_to_part_in_layers() {
    let world = World::new();
    world.make("s", "echo x > a; ln a b; echo y > c").unwrap();
    assert!(told(&world.promote("s")).is_empty());
    let inode = |name: &str| fs::metadata(world.file(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("b"));

    world.make("parent", "echo p > p").unwrap();
    world.fork("parent", "child", &Policy::default()).unwrap();
    world.sh("child", "echo x > d; ln d e; ln d f; echo y > g").unwrap();
    let reply = world.promote("child");
    let expect = "3 names that were links of one another are files of their own there";
    assert_eq!(told(&reply), [expect]);

    let staged = World::with_stages("[[stage]]\nchecks = []\n");
    staged.make("s", "echo x > d; ln d e").unwrap();
    assert_eq!(told(&staged.promote("s")), [expect.replace('3', "2")]);
}
