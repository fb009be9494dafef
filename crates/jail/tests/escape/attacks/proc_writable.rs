//! Whatever else the owner of `/proc` could write.

use crate::harness::{Attack, Control};

attack!(
    nothing_of_the_kernel_opens_for_writing_in_proc,
    Attack::python(
        r#"
for top, dirs, files in os.walk("/proc"):
    if top == "/proc":
        dirs[:] = [d for d in dirs if not d.isdigit() and d not in ("self", "thread-self", "net")]
    for name in files:
        path = f"{top}/{name}"
        # Its own network is the sandbox's to configure; masks are not files.
        if path.startswith("/proc/sys/net") or not stat.S_ISREG(os.lstat(path).st_mode):
            continue
        # What everybody on the machine may write (pressure triggers, the
        # namespace's last pid) gives nothing that a user does not have.
        if not os.lstat(path).st_mode & 0o222 or os.lstat(path).st_mode & 0o002:
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        escaped(f"could write {path}")
"#
    )
    .control(Control::Root)
);
