//! Services of the host (D-Bus, Docker, systemd) listen below `/run`.

use crate::harness::{Attack, Control};

attack!(
    there_are_no_sockets_in_run,
    Attack::python(
        r#"
for root in ("/run", "/var/run", "/dev"):
    for top, dirs, files in os.walk(root):
        for name in files:
            if stat.S_ISSOCK(os.lstat(f"{top}/{name}").st_mode):
                escaped(f"{top}/{name}")
"#
    )
    .control(Control::Never("this machine may have no services"))
);
