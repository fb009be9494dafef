//! A set-uid file of root's is made inside and run as somebody else.

use crate::harness::{Attack, Control};

attack!(
    a_set_uid_file_made_inside_gives_nothing,
    Attack::python(
        r#"
import shutil
os.chmod(arena, 0o755)
for path in places("/run/rooted", "/dev/shm/rooted", "/var/tmp/rooted"):
    try:
        shutil.copy("/usr/bin/id", path)
        os.chown(path, 0, 0)
        os.chmod(path, 0o6755)
        lower = (lambda: (os.setgid(1), os.setuid(1))) if os.getuid() == 0 else None
        done = subprocess.run([path, "-u"], preexec_fn=lower, capture_output=True, text=True)
        if done.stdout.strip() == "0":
            escaped(f"{path} is root")
        note(f"{path}: {done.stdout} {done.stderr}")
    except OSError as error:
        note(f"{path}: {error}")
    except subprocess.SubprocessError as error:
        note(f"{path}: {error}")
"#
    )
    .control(Control::Root)
);
