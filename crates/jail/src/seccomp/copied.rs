//! More rules for the tier `copied`, where no namespace separates a program
//! from the rest of the machine and landlock does not govern everything.

use super::{Rule, When, deny, missing};
use serde::{Deserialize, Serialize};

/// What differs between machines and runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Whether the host's network was asked for.
    pub network: bool,
    /// The kernel's landlock version.
    pub landlock: u32,
}

const fn refuse(call: libc::c_long, when: When, errno: i32) -> Rule {
    Rule { call, when, errno }
}

/// Refused unless it is about the caller itself.
const fn only_self(call: libc::c_long) -> Rule {
    refuse(call, When::NoneOf { arg: 0, values: &[0] }, libc::EPERM)
}

/// Not in libc yet; the same numbers on all architectures.
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const SYS_FILE_SETATTR: libc::c_long = 469;

/// Calls that change modes, owners and times. Landlock does not see them, and
/// a filter does not see paths: init carries them out, inside the copy only.
pub(crate) const ATTRIBUTES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
];

/// Calls that send signals, where landlock cannot keep them inside: init looks
/// whom they are for.
pub(crate) const SIGNALS: &[libc::c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

const RULES: &[Rule] = &[
    // Shared memory, semaphores and queues of the whole machine.
    missing(libc::SYS_shmget),
    missing(libc::SYS_shmat),
    missing(libc::SYS_shmctl),
    missing(libc::SYS_semget),
    missing(libc::SYS_semop),
    missing(libc::SYS_semtimedop),
    missing(libc::SYS_semctl),
    missing(libc::SYS_msgget),
    missing(libc::SYS_msgsnd),
    missing(libc::SYS_msgrcv),
    missing(libc::SYS_msgctl),
    missing(libc::SYS_mq_open),
    missing(libc::SYS_mq_unlink),
    // Tells the names of files that others use, wherever they are.
    #[cfg(target_arch = "x86_64")]
    missing(libc::SYS_inotify_init),
    missing(libc::SYS_inotify_init1),
    // Attributes of the user's other files; and no program may forge the marks
    // of its layer.
    refuse(libc::SYS_setxattr, When::Always, libc::EOPNOTSUPP),
    refuse(libc::SYS_lsetxattr, When::Always, libc::EOPNOTSUPP),
    refuse(libc::SYS_fsetxattr, When::Always, libc::EOPNOTSUPP),
    refuse(SYS_SETXATTRAT, When::Always, libc::EOPNOTSUPP),
    refuse(libc::SYS_removexattr, When::Always, libc::EOPNOTSUPP),
    refuse(libc::SYS_lremovexattr, When::Always, libc::EOPNOTSUPP),
    refuse(libc::SYS_fremovexattr, When::Always, libc::EOPNOTSUPP),
    refuse(SYS_REMOVEXATTRAT, When::Always, libc::EOPNOTSUPP),
    missing(SYS_FILE_SETATTR),
    refuse(
        libc::SYS_ioctl,
        // FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR.
        When::OneOf { arg: 1, values: &[0x4008_6602, 0x401C_5820] },
        libc::EPERM,
    ),
    // Limits, priorities and processors of the user's other processes.
    only_self(libc::SYS_prlimit64),
    only_self(libc::SYS_sched_setaffinity),
    only_self(libc::SYS_sched_setscheduler),
    only_self(libc::SYS_sched_setparam),
    only_self(libc::SYS_sched_setattr),
    only_self(libc::SYS_move_pages),
    only_self(libc::SYS_migrate_pages),
    missing(libc::SYS_process_madvise),
    only_self(libc::SYS_setpriority),
    refuse(libc::SYS_setpriority, When::NoneOf { arg: 1, values: &[0] }, libc::EPERM),
    refuse(libc::SYS_ioprio_set, When::NoneOf { arg: 0, values: &[1] }, libc::EPERM),
    refuse(libc::SYS_ioprio_set, When::NoneOf { arg: 1, values: &[0] }, libc::EPERM),
    deny(libc::SYS_ptrace),
    // One end of a datagram pair can send to any socket of the host by name.
    refuse(
        libc::SYS_socketpair,
        When::MaskedNoneOf {
            arg: 1,
            mask: 0xF,
            values: &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32],
        },
        libc::EPROTONOSUPPORT,
    ),
];

/// Unix sockets lead to services of the host whatever landlock says, so there
/// are none but pairs.
const NO_NETWORK: &[Rule] = &[refuse(libc::SYS_socket, When::Always, libc::EACCES)];
const HOST_NETWORK: &[Rule] = &[refuse(
    libc::SYS_socket,
    When::NoneOf {
        arg: 0,
        values: &[libc::AF_INET as u32, libc::AF_INET6 as u32, libc::AF_NETLINK as u32],
    },
    libc::EACCES,
)];

/// Before version 3 landlock does not see truncation, so nothing may truncate
/// what it may only read.
const NO_TRUNCATION: &[Rule] = &[
    deny(libc::SYS_truncate),
    missing(libc::SYS_openat2),
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_open, When::TruncatesReadOnly { arg: 1 }, libc::EACCES),
    refuse(libc::SYS_openat, When::TruncatesReadOnly { arg: 2 }, libc::EACCES),
];

/// Before version 6 landlock does not see signals. A descriptor's owner gets
/// one when data arrives, whoever it is.
const NO_SIGNALS: &[Rule] = &[
    refuse(
        libc::SYS_fcntl,
        When::OneOf { arg: 1, values: &[libc::F_SETOWN as u32, 15] }, // and F_SETOWN_EX
        libc::EPERM,
    ),
    // FIOSETOWN and SIOCSPGRP.
    refuse(libc::SYS_ioctl, When::OneOf { arg: 1, values: &[0x8901, 0x8902] }, libc::EPERM),
    missing(libc::SYS_pidfd_send_signal),
];

/// From this version on landlock keeps signals inside.
pub(crate) const LANDLOCK_SCOPES: u32 = 6;
const LANDLOCK_TRUNCATES: u32 = 3;

impl Copied {
    /// Rules beside those for everybody.
    pub(super) fn rules(self) -> impl Iterator<Item = &'static Rule> {
        let none: &[Rule] = &[];
        let network = if self.network { HOST_NETWORK } else { NO_NETWORK };
        let truncation = if self.landlock < LANDLOCK_TRUNCATES { NO_TRUNCATION } else { none };
        let signals = if self.landlock < LANDLOCK_SCOPES { NO_SIGNALS } else { none };
        RULES.iter().chain(network).chain(truncation).chain(signals)
    }

    /// Calls that init answers.
    pub(super) fn asked(self) -> impl Iterator<Item = libc::c_long> {
        let signals = if self.landlock < LANDLOCK_SCOPES { SIGNALS } else { &[] };
        ATTRIBUTES.iter().chain(signals).copied()
    }
}
