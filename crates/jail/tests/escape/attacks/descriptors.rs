//! The launcher has a secret file open, and forgot to close it on exec.

use crate::harness::Attack;
use std::io::{Seek, Write};

attack!(
    descriptors_of_the_launcher_are_not_inherited,
    Attack::python(
        r#"
for number in range(3, 1024):
    try:
        where = os.readlink(f"/proc/self/fd/{number}")
        data = os.pread(number, 100, 0)
    except OSError:
        continue
    note(f"{number}: {where}")
    leak(data)
extra = [n for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.exists(f"/proc/self/fd/{n}")]
if extra:
    escaped(f"open: {extra}")
"#
    )
    .prepare(|arena| {
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(arena.path("outside/open"))
            .unwrap();
        file.write_all(arena.secret.as_bytes()).unwrap();
        file.rewind().unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        arena.kept.push(Box::new(file));
    })
);
