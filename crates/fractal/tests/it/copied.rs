//! The verbs once more where no namespace can be made. The tests are the same:
//! this binary starts itself again in a user namespace that allows no others.

use std::process::{Command, Stdio};

/// See the same words in the tests of the command line.
const NO_NAMESPACES: &str = r#"
echo 0 > /proc/sys/user/max_user_namespaces || exit 77
[ "$(id -u)" = 0 ] && exec "$@"
exec setpriv --bounding-set -all --inh-caps -all --ambient-caps -all "$@"
"#;

/// What namespaces are needed for: mounts, a network that runs share,
/// terminals that a program makes itself, a live base, one that is shared, what
/// lies above the directory that is copied, and of course those that are made
/// ahead.
const NEED_NAMESPACES: [&str; 13] = [
    "frozen::a_second_capture_copies_only_what_changed",
    "lost_updates::no_edit_is_ever_lost",
    "live::a_shell_with_job_control_does_not_notice",
    "verbs::a_volume_is_shared_and_survives_its_sandboxes",
    "verbs::templates_of_a_project_mount_anywhere_and_set_variables",
    "verbs::a_second_run_joins_the_first_and_shares_files_and_network",
    "knowledge::a_pattern_is_taken_out_and_a_new_sandbox_has_it",
    "knowledge::what_sandboxes_keep_in_volumes_is_found_and_never_led_out_of",
    "spawner::every_run_has_namespaces_of_its_own_also_those_made_ahead",
    "code::a_thread_that_breaks_off_ends_its_program",
    "keys::the_key_of_a_door_has_ended_when_who_made_the_door_has",
    "gates::checks_run_beside_the_file_that_they_are_written_in",
    "links::a_file_with_further_names_on_the_host_is_said_to_come_apart",
];

#[test]
fn the_verbs_keep_their_promises_in_copies() {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-current-user", "--keep-caps", "sh", "-c", NO_NAMESPACES, "sh"]);
    command.arg(std::env::current_exe().unwrap()).args(["--skip", "copied::"]);
    for name in NEED_NAMESPACES {
        eprintln!("does not apply in copied: {name}");
        command.args(["--skip", name]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || text.contains("unshare failed") {
        eprintln!("skipped: no user namespace to forbid namespaces in: {text}");
        return;
    }
    assert!(output.status.success(), "in tier copied:\n{text}");
}
