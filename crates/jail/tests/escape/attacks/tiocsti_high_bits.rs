//! Characters are typed into a terminal, by a request with bits that the kernel ignores.

use crate::harness::Attack;

attack!(
    high_bits_do_not_hide_terminal_injection,
    Attack::python(
        r#"
master, slave = os.openpty()
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, 0x540E, 0)
    try:
        call(SYS_ioctl, slave, 0x5412 | 1 << 32, ctypes.create_string_buffer(b"x"))
    except OSError as error:
        note(error)
        os._exit(0 if error.errno in (errno.EPERM, errno.EIO) else 2)
    os._exit(1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if status:
    escaped(f"typed into a terminal ({status})")
"#
    )
);
