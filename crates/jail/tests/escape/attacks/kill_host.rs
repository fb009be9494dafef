//! A process of the host gets a signal.

use crate::harness::Attack;

attack!(
    a_host_process_cannot_be_killed,
    Attack::python(
        r#"
for attempt in (
    lambda: os.kill(victim, signal.SIGKILL),
    lambda: os.killpg(os.getpgid(victim), signal.SIGKILL),
    lambda: signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL),
):
    try:
        attempt()
        break
    except OSError as error:
        note(error)
time.sleep(0.1)
"#
    )
    .prepare(|arena| {
        arena.victim("os.setsid()");
    })
);
