//! The supervisor's descriptors lead to the launcher.

use crate::harness::Attack;

attack!(
    the_descriptors_of_the_supervisor_cannot_be_taken,
    Attack::python(
        r#"
parent = os.getppid()
def listed():
    return [os.readlink(f"/proc/{parent}/fd/{n}") for n in os.listdir(f"/proc/{parent}/fd")]
def taken():
    pidfd = os.pidfd_open(parent)
    for number in range(64):
        try:
            return call(SYS_pidfd_getfd, pidfd, number, 0)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
    raise OSError(0, "none open")
escaped(tries(taken, listed))
"#
    )
);
