//! `release_agent` of cgroup version 1 is a program started as root outside.

use crate::harness::{Attack, Control};

attack!(
    the_release_agent_cannot_be_set,
    Attack::python(
        r#"
import glob
found = glob.glob("/sys/fs/cgroup/*/release_agent") + glob.glob("/sys/fs/cgroup/*/notify_on_release")
found += glob.glob("/sys/fs/cgroup/release_agent")
for path in found:
    try:
        os.open(path, os.O_WRONLY)
        escaped(f"could write {path}")
    except OSError as error:
        note(f"{path}: {error}")
if not found:
    absent("cgroup version 1") if not inside else held("no cgroups here")
"#
    )
    .control(Control::Root)
);
