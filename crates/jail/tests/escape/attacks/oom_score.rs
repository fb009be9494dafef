//! A process of the host is made the first to die when memory runs out.

use crate::harness::Attack;

attack!(
    the_oom_score_of_a_host_process_cannot_be_changed,
    Attack::python(
        r#"
spill(f"/proc/{victim}/oom_score_adj", "777")
"#
    )
    .prepare(|arena| {
        arena.victim("");
    })
    .verdict(|arena| {
        let path = format!("/proc/{}/oom_score_adj", arena.victims[0].pid());
        let score = std::fs::read_to_string(path).unwrap();
        (score.trim() != "777").then_some(()).ok_or("the score was changed".to_owned())
    })
);
