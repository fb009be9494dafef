//! The selection of the host's console is pasted.

use crate::harness::Attack;

attack!(
    the_console_selection_cannot_be_pasted,
    Attack::python(
        r#"
master, slave = os.openpty()
for request in (0x541C, 0x541C | 1 << 40):
    try:
        call(SYS_ioctl, slave, request, ctypes.create_string_buffer(b"\x03"))
    except OSError as error:
        # Any other answer comes from the terminal: the filter let it pass.
        if error.errno == errno.EPERM:
            continue
        note(error)
    escaped("the request reached the terminal")
"#
    )
);
