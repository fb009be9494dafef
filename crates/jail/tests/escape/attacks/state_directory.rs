//! The state directory holds other sandboxes and keys.

use crate::harness::Attack;

attack!(
    the_state_directory_is_not_visible,
    Attack::python(
        r#"
state = f"{arena}/state"
note(os.listdir(state))
for attempt in (
    lambda: spill(f"{state}/planted", "x"),
    lambda: os.rename(state, f"{arena}/moved"),
    lambda: leak(slurp(f"{arena}/moved/keys/secret")),
    lambda: leak(slurp(target)),
):
    try:
        attempt()
    except OSError as error:
        note(error)
for entry in os.listdir(state):
    leak(entry)
"#
    )
    .prepare(|arena| drop(arena.secret_file("state/keys/secret")))
    .verdict(|arena| match arena.path("state/planted").exists() {
        true => Err("a file was planted in the state directory".to_owned()),
        false => Ok(()),
    })
);
