//! The root is swapped for one of the attacker's own.

use crate::harness::{Attack, Control};

attack!(
    the_root_cannot_be_pivoted,
    Attack::python(
        r#"
place = f"{arena}/project".encode()
for mount in (lambda: call(SYS_mount, b"tmpfs", place, b"tmpfs", 0, None),
              lambda: call(SYS_mount, place, place, None, 4096, None)):
    try:
        mount()
    except OSError as error:
        note(error)
os.chdir(place)
for new, old in ((b".", b"."), (b"/", b"/"), (b"/run", b"/run")):
    try:
        call(SYS_pivot_root, new, old)
        escaped("pivoted")
    except OSError as error:
        note(error)
"#
    )
    .control(Control::Root)
);
