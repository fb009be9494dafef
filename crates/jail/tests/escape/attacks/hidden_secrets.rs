//! Hidden files and directories, by every name they might have.

use crate::harness::Attack;

attack!(
    hidden_secrets_cannot_be_read,
    Attack::python(
        r#"
import shutil
ssh, netrc = f"{arena}/home/.ssh", f"{arena}/home/.netrc"
def moved():
    os.rename(f"{arena}/home", f"{arena}/home2")
    leak(slurp(f"{arena}/home2/.netrc"))
    leak(slurp(f"{arena}/home2/.ssh/id_rsa"))
def linked(path):
    os.link(path, f"{arena}/project/link")
    leak(slurp(f"{arena}/project/link"))
def copied():
    shutil.copytree(f"{arena}/home", f"{arena}/copy")
    leak(slurp(f"{arena}/copy/.netrc"))
for attempt in (
    lambda: leak(slurp(f"{ssh}/id_rsa")),
    lambda: leak(slurp(netrc)),
    lambda: leak(slurp(f"/proc/self/root{netrc}")),
    lambda: leak(slurp(f"{arena}/project/../home/.ssh/id_rsa")),
    lambda: linked(netrc),
    lambda: linked(f"{ssh}/id_rsa"),
    lambda: os.rename(ssh, f"{arena}/ssh"),
    lambda: os.unlink(netrc),
    lambda: leak(slurp(netrc)),
    copied,
    moved,
):
    try:
        attempt()
    except (OSError, shutil.Error) as error:
        note(error)
"#
    )
    .prepare(|arena| {
        arena.secret_file("home/.ssh/id_rsa");
        arena.secret_file("home/.netrc");
    })
    .spec(|spec, arena| {
        spec.hidden = vec![arena.path("home/.ssh"), arena.path("home/.netrc")];
    })
);
