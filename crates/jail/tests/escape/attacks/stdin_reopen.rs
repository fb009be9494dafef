//! A file given as standard input is opened again for writing.

use crate::arena::canary_sings;
use crate::harness::Attack;

attack!(
    the_file_behind_standard_input_cannot_be_written,
    Attack::python(
        r#"
fd = tries(
    lambda: os.open("/proc/self/fd/0", os.O_WRONLY | os.O_TRUNC),
    lambda: os.open("/dev/stdin", os.O_RDWR),
    lambda: os.open(f"/proc/{os.getppid()}/fd/0", os.O_RDWR),
)
os.write(fd, b"owned")
"#
    )
    .prepare(|arena| {
        let path = arena.canary("outside/input");
        arena.stdin = Some(std::fs::File::open(path).unwrap());
    })
    .verdict(|arena| canary_sings(&arena.path("outside/input")))
);
