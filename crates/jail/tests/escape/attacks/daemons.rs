//! Children that became daemons outlive their parent, elsewhere.

use crate::arena::{Arena, PYTHON};
use crate::harness::{marked_processes, run, script, spec, text_of};

trial!(daemons_die_with_the_run, |tier| {
    let text = script(
        r#"
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            null = os.open("/dev/null", os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            time.sleep(30)
        os._exit(0)
time.sleep(0.1)
note("left them behind")
"#,
    );
    let mut arena = Arena::new();
    let spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
    let report = run(&mut arena, &spec);
    assert!(text_of(&report).contains("left them behind"), "{}", text_of(&report));
    fractal_jail::settle();
    assert_eq!(marked_processes(&arena), Vec::<String>::new());
});
