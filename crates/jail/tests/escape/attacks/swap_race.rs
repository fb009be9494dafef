//! A link is swapped for a directory while somebody writes through it.

use crate::arena::canary_sings;
use crate::harness::Attack;

attack!(
    swapping_links_while_writing_changes_nothing_outside,
    Attack::python(
        r#"
place, other = f"{arena}/project/place", f"{arena}/project/other"
os.mkdir(place)
os.symlink(f"{arena}/outside", other)
RENAME_EXCHANGE = 2
child = os.fork()
if child == 0:
    while True:
        libc.renameat2(-100, place.encode(), -100, other.encode(), RENAME_EXCHANGE)
end_time = time.time() + 0.3
while time.time() < end_time:
    try:
        spill(f"{place}/file", "owned")
    except OSError:
        pass
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"#
    )
    .prepare(|arena| drop(arena.canary("outside/file")))
    .verdict(|arena| canary_sings(&arena.path("outside/file")))
);
