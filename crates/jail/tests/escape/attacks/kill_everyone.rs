//! Everything that can be signalled is killed.

use crate::harness::{Attack, Control};

attack!(
    killing_everyone_reaches_nobody_outside,
    Attack::python(
        r#"
assert inside
try:
    os.kill(-1, signal.SIGKILL)
except OSError as error:
    note(error)
try:
    os.kill(1, signal.SIGKILL)
    os.kill(1, signal.SIGSTOP)
except OSError as error:
    note(error)
"#
    )
    .prepare(|arena| {
        arena.victim("");
    })
    .control(Control::Never("it would kill everyone"))
);
