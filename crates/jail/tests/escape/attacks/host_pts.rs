//! Somebody sits at a terminal of the host; text is written on their screen.

use crate::harness::Attack;

attack!(
    terminals_of_the_host_cannot_be_opened,
    Attack::python(
        r#"
fd = os.open(answer, os.O_RDWR | os.O_NOCTTY)
os.write(fd, b"owned\n")
time.sleep(0.2)
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
# Enough terminals that no small number inside is taken for this one.
pairs = [os.openpty() for _ in range(12)]
master, slave = max(pairs, key=lambda pair: int(os.ttyname(pair[1]).split("/")[-1]))
answer = os.ttyname(slave)
def watch():
    os.read(master, 1)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
"#,
        );
    })
);
