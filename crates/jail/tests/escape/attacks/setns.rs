//! Another process's namespaces are entered.

use crate::harness::{Attack, Control};

attack!(
    the_namespaces_of_others_cannot_be_entered,
    Attack::python(
        r#"
def enter(pid, kind):
    return call(SYS_setns, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)
pids = (os.getppid(), "self", victim)
attempts = [lambda p=p, k=k: enter(p, k) for p in pids for k in ("mnt", "net", "pid", "ipc", "uts")]
attempts.append(lambda: call(SYS_setns, os.pidfd_open(os.getppid()), 0x20000))
tries(*attempts)
escaped("entered a namespace")
"#
    )
    .prepare(|arena| {
        arena.victim("");
    })
    .control(Control::Root)
);
