//! What hides a secret is unmounted.

use crate::harness::Attack;

attack!(
    masks_cannot_be_unmounted,
    Attack::python(
        r#"
for flags in (0, 1, 2, 8):
    for place in (target, os.path.dirname(target), f"{arena}/state", "/proc/sys", "/proc", "/tmp"):
        try:
            libc.umount2(place.encode(), flags) if inside else None
        except OSError as error:
            note(error)
leak(slurp(target))
"#
    )
    .prepare(|arena| drop(arena.secret_file("home/.ssh/id_rsa")))
    .spec(|spec, arena| spec.hidden.push(arena.path("home/.ssh")))
);
