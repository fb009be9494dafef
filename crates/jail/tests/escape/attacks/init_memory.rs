//! The supervisor inside is a copy of the launcher, with all its memory.

use crate::harness::Attack;

attack!(
    the_memory_of_the_supervisor_cannot_be_read,
    Attack::python(
        r#"
parent = os.getppid()
def maps():
    lines = slurp(f"/proc/{parent}/maps").decode().splitlines()
    if not lines:
        raise OSError(0, "no maps")
    start = int(lines[0].split("-")[0], 16)
    fd = os.open(f"/proc/{parent}/mem", os.O_RDWR)
    return os.pread(fd, 16, start)
def copied():
    buffer = ctypes.create_string_buffer(16)
    local = struct.pack("QQ", ctypes.addressof(buffer), 16)
    stack = int(slurp(f"/proc/{parent}/stat").split()[27]) or 0x400000
    remote = struct.pack("QQ", stack & ~0xfff, 16)
    return call(SYS_process_vm_readv, parent, local, 1, remote, 1, 0)
tries(maps, copied)
escaped("read the supervisor's memory")
"#
    )
);
