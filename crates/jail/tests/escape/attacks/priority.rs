//! A process puts itself before all others of the machine.

use crate::harness::{Attack, Control};

attack!(
    priority_over_the_host_cannot_be_had,
    Attack::python(
        r#"
SYS_ioprio_set = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
tries(
    lambda: os.nice(-5),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    lambda: call(SYS_ioprio_set, 1, 0, 1 << 13),
    lambda: spill("/proc/self/oom_score_adj", "-1000"),
)
escaped("went first")
"#
    )
    .control(Control::Root)
);
