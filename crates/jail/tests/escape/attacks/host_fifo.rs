//! A process of the host reads commands from a named pipe.

use crate::harness::Attack;

attack!(
    a_named_pipe_of_the_host_cannot_be_written,
    Attack::python(
        r#"
fd = os.open(f"{arena}/outside/fifo", os.O_WRONLY | os.O_NONBLOCK)
os.write(fd, b"command")
time.sleep(0.2)
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
os.mkfifo(f"{arena}/outside/fifo")
fifo = os.open(f"{arena}/outside/fifo", os.O_RDWR)
def obey():
    os.read(fifo, 1)
    os._exit(1)
threading.Thread(target=obey, daemon=True).start()
"#,
        );
    })
);
