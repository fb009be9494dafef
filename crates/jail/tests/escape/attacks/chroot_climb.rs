//! The oldest one: a second chroot and a directory kept open outside of it.

use crate::harness::{Attack, Control};

attack!(
    climbing_out_of_a_chroot_ends_at_the_sandbox,
    Attack::python(
        r#"
fd = os.open("/", os.O_RDONLY)
os.mkdir("cage")
os.chroot("cage")
os.fchdir(fd)
for _ in range(100):
    os.chdir("..")
os.chroot(".")
leak(slurp(target))
"#
    )
    .prepare(|arena| drop(arena.secret_file("outside/secret")))
    .spec(|spec, arena| spec.hidden.push(arena.path("outside/secret")))
    .control(Control::Root)
);
