//! A device node of the disk shows all files of the host.

use crate::harness::{Attack, Control};

attack!(
    the_disk_cannot_be_read_through_a_device_node,
    Attack::python(
        r#"
# Outside an unused loop device is enough: the real disk is left alone.
devices = (int(answer), os.makedev(7, 0)) if inside else (os.makedev(7, 0),)
def look(place, number):
    os.mknod(place, 0o600 | stat.S_IFBLK, number)
    try:
        return os.open(place, os.O_RDONLY)
    finally:
        os.unlink(place)
spots = places("/dev/disk", "/dev/shm/disk", "/run/disk", "/disk", f"{arena}/home/disk")
tries(*[lambda p=p, d=d: look(p, d) for p in spots for d in devices])
escaped("opened a disk")
"#
    )
    .prepare(|arena| {
        arena.victim("answer = os.stat('/').st_dev");
    })
    .control(Control::Root)
);
