//! Every way to change a file of the project; the real one must stay.

use crate::arena::canary_sings;
use crate::harness::Attack;

attack!(
    the_real_project_cannot_be_written,
    Attack::python(
        r#"
def change(flags):
    fd = os.open(target, flags)
    os.write(fd, b"owned")
    os.fsync(fd)
    memory = mmap.mmap(fd, 5) if flags & os.O_RDWR else None
    if memory:
        memory[0:5] = b"OWNED"
        memory.flush()
change(os.O_WRONLY | os.O_APPEND)
change(os.O_RDWR)
os.chmod(target, 0o777)
os.truncate(target, 0)
os.utime(target, (0, 0))
"#
    )
    .prepare(|arena| drop(arena.canary("project/file")))
    .verdict(|arena| canary_sings(&arena.path("project/file")))
);
