//! `/sys` has switches too: `uevent_helper` is started by the kernel as root.

use crate::harness::{Attack, Control};

attack!(
    nothing_in_sys_opens_for_writing,
    Attack::python(
        r#"
seen = 0
for root in ("/sys/kernel", "/sys/module", "/sys/power", "/sys/class", "/sys/block", "/sys/fs"):
    for top, dirs, files in os.walk(root):
        for name in files:
            path = f"{top}/{name}"
            try:
                # Modes are looked at first, to leave the odd device alone.
                if os.lstat(path).st_mode & 0o200:
                    seen += 1
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    escaped(f"could write {path}")
            except OSError:
                continue
        if seen > 3000:
            break
note(f"tried {seen}")
"#
    )
    .control(Control::Root)
);
