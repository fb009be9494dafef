//! A hard link made inside shares the inode with the real file, or does it?

use crate::arena::canary_sings;
use crate::harness::Attack;

attack!(
    a_hard_link_does_not_reach_the_real_file,
    Attack::python(
        r#"
fd = os.open(target, os.O_RDONLY)
link = f"{arena}/project/link"
os.link(target, link)
spill(link, "owned through a link")
try:
    os.link(f"/proc/self/fd/{fd}", link + "2", follow_symlinks=True)
    spill(link + "2", "owned through a descriptor")
except OSError as error:
    note(error)
"#
    )
    .prepare(|arena| drop(arena.canary("outside/file")))
    .verdict(|arena| canary_sings(&arena.path("outside/file")))
);
