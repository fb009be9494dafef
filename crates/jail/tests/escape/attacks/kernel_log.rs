//! The kernel's log tells addresses and other tenants' doings.

use crate::harness::{Attack, Control};

attack!(
    the_kernel_log_cannot_be_read,
    Attack::python(
        r#"
buffer = ctypes.create_string_buffer(1000)
def device(path):
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 11))
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return len(os.read(fd, 8192))
count = tries(
    lambda: call(SYS_syslog, 3, buffer, 1000),
    lambda: len(os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)),
    *[lambda p=p: device(p) for p in places("/dev/shm/node", "/run/node")],
)
if count:
    escaped("read the kernel log")
"#
    )
    .control(Control::Root)
);
