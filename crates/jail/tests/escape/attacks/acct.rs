//! Accounting writes a file of the host at every exit.

use crate::harness::{Attack, Control};

attack!(
    accounting_cannot_be_started,
    Attack::python(
        r#"
reach(SYS_acct, b"/nonexistent/file")
"#
    )
    .control(Control::Root)
);
