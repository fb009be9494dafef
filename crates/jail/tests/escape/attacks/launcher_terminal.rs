//! The launcher sits at a terminal; the program inside types into it.

use crate::arena::{Arena, PYTHON};
use crate::harness::launcher;
use std::process::{Command, Stdio};

/// Gives its arguments a terminal, and prints what was typed into it and what
/// the terminal shows.
const TERMINAL: &str = r#"
import os, pty, select, sys, termios, time
pid, master = pty.fork()
if pid == 0:
    settings = termios.tcgetattr(0)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(0, termios.TCSANOW, settings)
    child = os.fork()
    if child == 0:
        os.execv(sys.argv[1], sys.argv[1:])
    os.waitpid(child, 0)
    ready, _, _ = select.select([0], [], [], 0.1)
    os.write(1, b"typed: " + (os.read(0, 100) if ready else b"nothing") + b"\n")
    os._exit(0)
while True:
    try:
        data = os.read(master, 65536)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
os.waitpid(pid, 0)
"#;

const TYPE: &str = r#"
for name in ("/dev/tty", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2", "/dev/console"):
    try:
        fd = os.open(name, os.O_RDWR | os.O_NOCTTY)
        note(f"{name} is a terminal: {os.isatty(fd)}")
        for request in (0x5412, 0x5412 | 1 << 32):
            call(SYS_ioctl, fd, request, ctypes.create_string_buffer(b"X"))
    except OSError as error:
        note(f"{name}: {error}")
for fd in range(3):
    if os.isatty(fd):
        note(f"descriptor {fd} is a terminal")
    try:
        call(SYS_ioctl, fd, 0x5412, ctypes.create_string_buffer(b"X"))
    except OSError as error:
        note(f"{fd}: {error}")
"#;

trial!(the_launchers_terminal_cannot_be_typed_into, |tier| {
    let arena = Arena::new();
    let at_terminal = |command: &Command| {
        let output = Command::new(PYTHON)
            .args(["-c", TERMINAL])
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    let output = at_terminal(&launcher(&arena, tier, TYPE));
    assert!(output.contains("HELD:"), "{output}");
    assert!(output.contains("typed: nothing"), "{output}");
    assert!(!output.contains("is a terminal: True"), "{output}");
    let mut outside = Command::new(PYTHON);
    outside.args(["-S", "-c", &crate::harness::script(TYPE)]);
    outside.env("ARENA", arena.path(""));
    let output = at_terminal(&outside);
    assert!(output.contains("typed: X"), "the attack fails even without a jail: {output}");
});
