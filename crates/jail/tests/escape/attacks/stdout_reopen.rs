//! A log given as standard output is opened again to erase what it says.

use crate::harness::Attack;
use std::io::Write;

attack!(
    the_file_behind_standard_output_cannot_be_erased,
    Attack::python(
        r#"
for attempt in (
    lambda: os.ftruncate(1, 0),
    lambda: os.truncate("/proc/self/fd/1", 0),
    lambda: os.close(os.open("/proc/self/fd/1", os.O_RDWR | os.O_TRUNC)),
    lambda: leak(slurp("/proc/self/fd/1")),
):
    try:
        attempt()
    except OSError as error:
        note(error)
    # A pipe without data would make reading it wait.
    if not stat.S_ISREG(os.fstat(1).st_mode):
        held("not a file")
"#
    )
    .prepare(|arena| {
        let path = arena.path("outside/log");
        let mut log = std::fs::File::create(path).unwrap();
        writeln!(log, "first line").unwrap();
        arena.stdout = Some(log);
    })
    .verdict(|arena| {
        let log = std::fs::read_to_string(arena.path("outside/log")).unwrap();
        log.starts_with("first line").then_some(()).ok_or("the log was erased".to_owned())
    })
);
