//! A file with capabilities is made inside and run.

use crate::harness::{Attack, Control};

attack!(
    file_capabilities_give_nothing,
    Attack::python(
        r#"
import shutil
os.chmod(arena, 0o755)
path = f"{arena}/project/capable"
shutil.copy("/usr/bin/cat", path)
os.chmod(path, 0o755)
# What is beyond the bounding set makes exec fail, so that set is tried too.
bound = int(slurp("/proc/self/status").decode().split("CapBnd:")[1].split()[0], 16)
def revisions(mask):
    low, high = mask & 0xFFFFFFFF, mask >> 32
    yield struct.pack("<5I", 0x02000001, low, 0, high, 0)
    yield struct.pack("<6I", 0x03000001, low, 0, high, 0, 0)
for value in (*revisions(0x1FFFFFFFFFF), *revisions(bound)):
    try:
        os.setxattr(path, "security.capability", value)
    except OSError as error:
        note(error)
        continue
    lower = (lambda: (os.setgid(1), os.setuid(1))) if os.getuid() == 0 else None
    try:
        done = subprocess.run([path, "/proc/self/status"], preexec_fn=lower, capture_output=True, text=True)
    except OSError as error:
        note(error)
        continue
    for line in done.stdout.splitlines():
        if line.startswith(("CapEff", "CapPrm")) and int(line.split()[1], 16):
            escaped(line)
"#
    )
    .control(Control::Root)
);
