//! The host gets another name.

use crate::harness::{Attack, Control};

attack!(
    the_host_name_cannot_be_changed,
    Attack::python(
        r#"
call(SYS_sethostname, b"owned", 5)
escaped("renamed")
"#
    )
    .control(Control::RootIn(&["--uts"]))
);
