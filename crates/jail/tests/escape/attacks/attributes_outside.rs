//! Mode, owner, times and attributes of a file of the host, which belongs to
//! the same user: by path, by descriptor, and through links.

use crate::arena::Arena;
use crate::harness::Attack;
use std::os::unix::fs::MetadataExt;

const MODE: u32 = 0o640;

fn as_before(arena: &Arena) -> Result<(), String> {
    for name in ["outside/file", "outside"] {
        let meta = std::fs::metadata(arena.path(name)).unwrap();
        let (mode, old) = (meta.mode() & 0o7777, meta.mtime() < 1_000_000);
        if (name == "outside/file" && mode != MODE) || mode == 0o777 || old {
            return Err(format!("{name} has mode {mode:o} and was changed at {}", meta.mtime()));
        }
    }
    let path = arena.path("outside/file");
    match rustix::fs::getxattr(&path, "user.owned", &mut [0u8; 8]) {
        Ok(_) => Err("an attribute was set".to_owned()),
        Err(_) => Ok(()),
    }
}

attack!(
    attributes_of_host_files_cannot_be_changed,
    Attack::python(
        r#"
outside = f"{arena}/outside"
os.symlink(target, f"{arena}/project/link")
os.symlink(outside, f"{arena}/project/links")
O_PATH = 0x200000
def held_path(path): return f"/proc/self/fd/{os.open(path, O_PATH)}"
def directory(path): return os.open(path, O_PATH)
paths = [target, f"{arena}/project/link", f"{arena}/project/links/file", f"{arena}/project/../outside/file",
         f"/proc/self/root{target}", f"/proc/{os.getpid()}/root{target}", f"/proc/thread-self/root{target}"]
for path in paths:
    for attempt in (
        lambda: os.chmod(path, 0o777),
        lambda: os.chmod(held_path(path), 0o777),
        lambda: os.fchmod(os.open(path, os.O_RDONLY), 0o777),
        lambda: os.chmod("file", 0o777, dir_fd=directory(outside)),
        lambda: os.chmod("../outside/file", 0o777),
        lambda: os.chmod(outside, 0o777),
        lambda: os.utime(path, (1, 1)),
        lambda: os.utime(held_path(path), (1, 1)),
        lambda: os.utime(outside, (1, 1)),
        lambda: os.utime("file", (1, 1), dir_fd=directory(outside)),
        lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.setxattr(path, "user.owned", b"y"),
        lambda: call(452, directory(path), b"", 0o777, 0x1000),
    ):
        try:
            attempt()
        except OSError as error:
            note(error)
"#
    )
    .prepare(|arena| {
        use std::os::unix::fs::PermissionsExt;
        let path = arena.canary("outside/file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).unwrap();
    })
    .verdict(as_before)
);

attack!(
    swapping_links_while_changing_modes_changes_nothing_outside,
    Attack::python(
        r#"
place, other = f"{arena}/project/place", f"{arena}/project/other"
os.mkdir(place)
spill(f"{place}/file", "")
os.symlink(f"{arena}/outside", other)
RENAME_EXCHANGE = 2
child = os.fork()
if child == 0:
    while True:
        libc.renameat2(-100, place.encode(), -100, other.encode(), RENAME_EXCHANGE)
end_time, done = time.time() + 0.5, 0
while time.time() < end_time:
    try:
        os.chmod(f"{place}/file", 0o777)
        done += 1
    except OSError:
        pass
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
note(f"changed {done} times")
"#
    )
    .prepare(|arena| {
        use std::os::unix::fs::PermissionsExt;
        let path = arena.canary("outside/file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).unwrap();
    })
    .verdict(as_before)
);
