//! /dev/mem is physical memory.

use crate::harness::{Attack, Control};

attack!(
    physical_memory_cannot_be_read,
    Attack::python(
        r#"
def made(place):
    os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 1))
    try:
        return os.open(place, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    finally:
        os.unlink(place)
named = lambda: os.open("/dev/mem", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
try:
    tries(named, *[lambda p=p: made(p) for p in places("/dev/shm/node", "/run/node")])
except OSError:
    if not inside:
        absent("such a device")
    raise
escaped("opened it")
"#
    )
    .control(Control::Root)
);
