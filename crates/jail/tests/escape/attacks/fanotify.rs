//! fanotify hears of every file on a filesystem.

use crate::harness::{Attack, Control};

attack!(
    files_of_the_host_cannot_be_watched,
    Attack::python(
        r#"
call(SYS_fanotify_init, 0, 0)
escaped("listening")
"#
    )
    .control(Control::Root)
);
