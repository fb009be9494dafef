//! Modes and owners in `/proc` are shared by all its mounts: who may change
//! them inside locks the host out, or lets others in.

use crate::harness::{Attack, Control};

attack!(
    modes_in_proc_cannot_be_changed,
    Attack::python(
        r#"
# The mode stays what it is: only the right to change it is tried.
for name in ("execdomains", "meminfo", "mtrr", "kallsyms", "sys", "irq", "version", "tty/drivers"):
    try:
        mode = stat.S_IMODE(os.lstat(f"/proc/{name}").st_mode)
        if not stat.S_ISCHR(os.lstat(f"/proc/{name}").st_mode):
            os.chmod(f"/proc/{name}", mode)
            escaped(f"could change the mode of {name}")
    except OSError as error:
        note(f"{name}: {error}")
"#
    )
    .control(Control::Root)
);
