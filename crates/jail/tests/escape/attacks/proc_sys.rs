//! Settings of the kernel, one of which names a program to start as root.

use crate::harness::{Attack, Control};

attack!(
    kernel_settings_cannot_be_written,
    Attack::python(
        r#"
names = ("kernel/modprobe", "kernel/hotplug", "kernel/randomize_va_space", "kernel/panic",
         "vm/panic_on_oom", "vm/overcommit_memory", "fs/suid_dumpable", "fs/protected_hardlinks",
         "fs/binfmt_misc/register", "kernel/domainname", "kernel/threads-max")
for name in names:
    try:
        os.open(f"/proc/sys/{name}", os.O_WRONLY)
    except OSError as error:
        note(f"{name}: {error}")
        continue
    escaped(f"could write {name}")
"#
    )
    .control(Control::Root)
);
