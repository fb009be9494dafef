//! Root inside writes to `/etc`; the host's `/etc` must not notice.

use crate::harness::{Attack, Control};

attack!(
    the_real_etc_cannot_be_written,
    Attack::python(
        r#"
name = f"/etc/{os.path.basename(arena.rstrip('/'))}"
for path in [name, f"/proc/self/root{name}", f"/proc/1/root{name}"]:
    try:
        spill(path, "planted")
    except OSError as error:
        note(error)
try:
    os.chmod("/etc/hosts", 0o666)
    os.rename("/etc/hosts", "/etc/hosts.gone")
except OSError as error:
    note(error)
"#
    )
    .verdict(|arena| {
        let planted = std::path::Path::new("/etc").join(arena.path("").file_name().unwrap());
        match planted.exists() || !std::path::Path::new("/etc/hosts").exists() {
            true => Err("the host's /etc changed".to_owned()),
            false => Ok(()),
        }
    })
    .control(Control::Never("it would write to the real /etc"))
);
