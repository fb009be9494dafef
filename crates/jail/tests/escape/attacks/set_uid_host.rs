//! Set-uid programs of the host, `su` among them, run inside.

use crate::harness::{Attack, Control};

attack!(
    set_uid_programs_of_the_host_give_nothing,
    Attack::python(
        r#"
if os.getuid() == 0:
    os.setgid(1)
    os.setuid(1)
before = os.geteuid()
child = subprocess.Popen(["/usr/bin/su"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
seen = set()
end_time = time.time() + 0.3
while time.time() < end_time and child.poll() is None:
    status = slurp(f"/proc/{child.pid}/status").decode()
    seen.add(int(status.split("Uid:")[1].split()[1]))
child.kill()
note(f"effective ids of su: {seen}")
if seen - {before}:
    escaped("su runs as somebody else")
"#
    )
    .control(Control::Users)
);
