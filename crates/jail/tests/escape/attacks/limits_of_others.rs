//! A process of the host, of the same user, gets lower limits and priority.

use crate::harness::Attack;

attack!(
    limits_and_priority_of_a_host_process_cannot_be_changed,
    Attack::python(
        r#"
import resource
for attempt in (
    lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (7, 7)),
    lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    # Without a jail this would reach every process of the user.
    lambda: inside and os.setpriority(os.PRIO_USER, 0, 18),
):
    try:
        attempt()
    except OSError as error:
        note(error)
"#
    )
    .prepare(|arena| {
        arena.victim("os.setsid()");
    })
    .verdict(|arena| {
        let file = |name: &str| {
            std::fs::read_to_string(format!("/proc/{}/{name}", arena.victims[0].pid())).unwrap()
        };
        let stat = file("stat");
        let nice = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap();
        let files = file("limits").lines().any(|line| {
            line.starts_with("Max open files") && line.split_whitespace().nth(3) == Some("7")
        });
        match (nice, files) {
            ("18" | "19", _) => Err("its priority was changed".to_owned()),
            (_, true) => Err("its limits were changed".to_owned()),
            _ => Ok(()),
        }
    })
);
