//! A process leaves its group, and with it its limits.

use crate::harness::{Attack, Control};

attack!(
    a_process_cannot_leave_its_group,
    Attack::python(
        r#"
import glob
found = glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:200]
for path in found:
    try:
        os.open(path, os.O_WRONLY)
        escaped(f"could join {path}")
    except OSError as error:
        note(f"{path}: {error}")
for path in glob.glob("/sys/fs/cgroup/*") if inside else ():
    os.mkdir(f"{path}/made-inside")
    os.rmdir(f"{path}/made-inside")
    escaped("made a group")
"#
    )
    .spec(|spec, _| spec.limits.pids = Some(100))
    .control(Control::Root)
);
