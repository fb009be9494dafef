//! A process of the host shares memory as a file in `/dev/shm`.

use crate::harness::Attack;

attack!(
    shared_memory_files_of_the_host_are_not_visible,
    Attack::python(
        r#"
leak(slurp(answer))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
answer = "/dev/shm/" + os.path.basename(arena.rstrip("/"))
with open(answer, "w") as file:
    file.write(secret)
atexit.register(lambda: os.unlink(answer))
"#,
        );
    })
);
