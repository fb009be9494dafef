//! System calls that a sandboxed program has no business with.
//!
//! A deny list: everything else is allowed, because real programs run here
//! and the other fences already bound what ordinary calls can reach. The
//! rules are data; a small assembler turns them into a BPF program.

use std::collections::BTreeMap;

pub(crate) mod copied;

pub use copied::Copied;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    BPF_W,
};

/// What to do with a call.
#[derive(Clone, Copy)]
enum When {
    /// Always refuse.
    Always,
    /// Refuse when any of these bits of argument `arg` is set (low 32 bits).
    AnyBit { arg: u32, bits: u32 },
    /// Refuse when argument `arg` (low 32 bits) is one of these.
    OneOf { arg: u32, values: &'static [u32] },
    /// Refuse when argument `arg` (low 32 bits) is none of these.
    NoneOf { arg: u32, values: &'static [u32] },
    /// Refuse when these bits of argument `arg` are none of these.
    MaskedNoneOf { arg: u32, mask: u32, values: &'static [u32] },
    /// Refuse when the flags in argument `arg` open for reading and truncate.
    TruncatesReadOnly { arg: u32 },
}

struct Rule {
    call: libc::c_long,
    when: When,
    errno: i32,
}

const NAMESPACE_BITS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32
    | 0x80; // CLONE_NEWTIME

const fn deny(call: libc::c_long) -> Rule {
    Rule { call, when: When::Always, errno: libc::EPERM }
}

const fn missing(call: libc::c_long) -> Rule {
    Rule { call, when: When::Always, errno: libc::ENOSYS }
}

/// Since Linux 6.15; not in libc yet, the same on all architectures.
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

const RULES: &[Rule] = &[
    // Mounts: the view of files is fixed before the program starts.
    deny(libc::SYS_mount),
    deny(libc::SYS_umount2),
    deny(libc::SYS_pivot_root),
    deny(libc::SYS_open_tree),
    deny(SYS_OPEN_TREE_ATTR),
    deny(libc::SYS_move_mount),
    deny(libc::SYS_fsopen),
    deny(libc::SYS_fsconfig),
    deny(libc::SYS_fsmount),
    deny(libc::SYS_fspick),
    deny(libc::SYS_mount_setattr),
    // New namespaces give back capabilities, and with them kernel code that
    // is rarely reached and often broken.
    deny(libc::SYS_setns),
    Rule {
        call: libc::SYS_unshare,
        when: When::AnyBit { arg: 0, bits: NAMESPACE_BITS },
        errno: libc::EPERM,
    },
    Rule {
        call: libc::SYS_clone,
        when: When::AnyBit { arg: 0, bits: NAMESPACE_BITS },
        errno: libc::EPERM,
    },
    // Its flags lie in memory where a filter cannot see them; the C library
    // falls back to clone when it is told that clone3 does not exist.
    missing(libc::SYS_clone3),
    // Keyrings are not fully separated by namespaces.
    deny(libc::SYS_keyctl),
    deny(libc::SYS_add_key),
    deny(libc::SYS_request_key),
    // Kernel programs, counters and rings: large attack surface.
    deny(libc::SYS_bpf),
    deny(libc::SYS_perf_event_open),
    missing(libc::SYS_io_uring_setup),
    missing(libc::SYS_io_uring_enter),
    missing(libc::SYS_io_uring_register),
    deny(libc::SYS_userfaultfd),
    deny(libc::SYS_fanotify_init),
    // The machine itself.
    deny(libc::SYS_kexec_load),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_kexec_file_load),
    deny(libc::SYS_init_module),
    deny(libc::SYS_finit_module),
    deny(libc::SYS_delete_module),
    deny(libc::SYS_reboot),
    deny(libc::SYS_swapon),
    deny(libc::SYS_swapoff),
    deny(libc::SYS_acct),
    deny(libc::SYS_quotactl),
    deny(libc::SYS_quotactl_fd),
    deny(libc::SYS_syslog),
    deny(libc::SYS_settimeofday),
    deny(libc::SYS_clock_settime),
    deny(libc::SYS_clock_adjtime),
    deny(libc::SYS_adjtimex),
    deny(libc::SYS_vhangup),
    deny(libc::SYS_nfsservctl),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_modify_ldt),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_uselib),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS__sysctl),
    // Opens files by handle, past every path check (the shocker escape).
    deny(libc::SYS_open_by_handle_at),
    deny(libc::SYS_lookup_dcookie),
    // Compares kernel pointers of two processes: an oracle for exploits.
    deny(libc::SYS_kcmp),
    // Types characters into the terminal, or pastes its selection. The kernel
    // looks at 32 bits of the request only, so the filter does too.
    Rule {
        call: libc::SYS_ioctl,
        when: When::OneOf { arg: 1, values: &[libc::TIOCSTI as u32, 0x541C] },
        errno: libc::EPERM,
    },
    // Unix, IPv4, IPv6 and netlink; no vsock, packet, bluetooth, crypto …
    Rule {
        call: libc::SYS_socket,
        when: When::NoneOf {
            arg: 0,
            values: &[
                libc::AF_UNIX as u32,
                libc::AF_INET as u32,
                libc::AF_INET6 as u32,
                libc::AF_NETLINK as u32,
            ],
        },
        errno: libc::EAFNOSUPPORT,
    },
    Rule {
        call: libc::SYS_socketpair,
        when: When::NoneOf { arg: 0, values: &[libc::AF_UNIX as u32] },
        errno: libc::EAFNOSUPPORT,
    },
];

/// How many rules there are, for `--explain`.
pub fn rule_count(copied: Option<Copied>) -> usize {
    RULES.len() + copied.map_or(0, |copied| copied.rules().count() + copied.asked().count())
}

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// x32 calls carry this bit and would pass every rule above.
const X32_BIT: u32 = 0x4000_0000;

/// The obsolete way to packet sockets.
const SOCK_PACKET: u32 = 10;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
/// Low half of argument `index`, on little-endian machines.
const fn offset_arg(index: u32) -> u32 {
    16 + 8 * index
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// The filter for programs inside; the tier `copied` has more rules.
pub fn program(copied: Option<Copied>) -> Vec<libc::sock_filter> {
    let mut code = vec![
        load(OFFSET_ARCH),
        // A 32-bit call (int 0x80) has numbers of its own: refuse them all.
        jump(BPF_JEQ, ARCH, 1, 0),
        ret(refuse(libc::ENOSYS)),
        load(OFFSET_NUMBER),
        jump(BPF_JGE, X32_BIT, 0, 1),
        ret(refuse(libc::ENOSYS)),
    ];
    let mut leaves = BTreeMap::<u32, Vec<libc::sock_filter>>::new();
    for rule in RULES.iter().chain(copied.into_iter().flat_map(Copied::rules)) {
        leaves.entry(rule.call as u32).or_default().extend(rule.assemble());
    }
    for call in copied.into_iter().flat_map(Copied::asked) {
        leaves.entry(call as u32).or_default().push(ret(libc::SECCOMP_RET_USER_NOTIF));
    }
    leaves.entry(libc::SYS_socket as u32).or_default().extend(raw_socket_rule());
    code.extend(search(&spans(leaves)));
    code
}

/// From which call on which instructions hold, sorted and without gaps.
type Span = (u32, Vec<libc::sock_filter>);

/// Neighbours with the same fate become one.
fn spans(leaves: BTreeMap<u32, Vec<libc::sock_filter>>) -> Vec<Span> {
    let same = |a: &[libc::sock_filter], b: &[libc::sock_filter]| {
        let plain = |op: &libc::sock_filter| (op.code, op.jt, op.jf, op.k);
        a.iter().map(plain).eq(b.iter().map(plain))
    };
    let mut spans: Vec<Span> = vec![(0, vec![ret(ALLOW)])];
    let mut push = |from: u32, body: Vec<libc::sock_filter>| match spans.last() {
        Some((_, last)) if same(last, &body) => {}
        Some((start, _)) if *start == from => {
            spans.pop();
            spans.push((from, body));
        }
        _ => spans.push((from, body)),
    };
    for (call, mut body) in leaves {
        if !matches!(body.as_slice(), [op] if u32::from(op.code) == BPF_RET | BPF_K) {
            body.push(ret(ALLOW));
        }
        push(call, body);
        push(call + 1, vec![ret(ALLOW)]);
    }
    spans
}

/// Looks a call up by halving. When a filter is installed, the kernel compiles
/// it and plays it through for every call there is: a long chain of
/// comparisons would cost more than all else a program does before `exec`.
fn search(spans: &[Span]) -> Vec<libc::sock_filter> {
    match spans {
        [] => vec![ret(ALLOW)],
        [(_, body)] => body.clone(),
        _ => {
            let (low, high) = spans.split_at(spans.len() / 2);
            let low = search(low);
            let mut code = match u8::try_from(low.len()) {
                Ok(past) => vec![jump(BPF_JGE, high[0].0, past, 0)],
                // Too far for a comparison to reach.
                Err(_) => vec![
                    jump(BPF_JGE, high[0].0, 0, 1),
                    statement(BPF_JMP | BPF_JA, low.len() as u32),
                ],
            };
            code.extend(low);
            code.extend(search(high));
            code
        }
    }
}

fn distance(instructions: usize) -> u8 {
    u8::try_from(instructions).expect("the rules are few enough for short jumps")
}

impl Rule {
    /// Falls through unless the call is refused.
    fn assemble(&self) -> Vec<libc::sock_filter> {
        let refusal = ret(refuse(self.errno));
        match self.when {
            When::Always => vec![refusal],
            When::AnyBit { arg, bits } => {
                vec![load(offset_arg(arg)), jump(BPF_JSET, bits, 0, 1), refusal]
            }
            When::OneOf { arg, values } => {
                let mut body = vec![load(offset_arg(arg))];
                for value in values {
                    body.push(jump(BPF_JEQ, *value, 0, 1));
                    body.push(refusal);
                }
                body
            }
            When::NoneOf { arg, values } => {
                let mut body = vec![load(offset_arg(arg))];
                body.extend(none_of(values, refusal));
                body
            }
            When::MaskedNoneOf { arg, mask, values } => {
                let mut body =
                    vec![load(offset_arg(arg)), statement(BPF_ALU | BPF_AND | BPF_K, mask)];
                body.extend(none_of(values, refusal));
                body
            }
            When::TruncatesReadOnly { arg } => vec![
                load(offset_arg(arg)),
                jump(BPF_JSET, libc::O_TRUNC as u32, 0, 3),
                statement(BPF_ALU | BPF_AND | BPF_K, libc::O_ACCMODE as u32),
                jump(BPF_JEQ, libc::O_RDONLY as u32, 0, 1),
                refusal,
            ],
        }
    }
}

fn none_of(values: &[u32], refusal: libc::sock_filter) -> Vec<libc::sock_filter> {
    // Past the remaining comparisons and the refusal.
    let past = |index: usize| distance(values.len() - index);
    let compare = |(index, value): (usize, &u32)| jump(BPF_JEQ, *value, past(index), 0);
    values.iter().enumerate().map(compare).chain([refusal]).collect()
}

/// Raw IPv4 and IPv6 sockets; netlink's type is "raw" too and harmless.
fn raw_socket_rule() -> Vec<libc::sock_filter> {
    vec![
        load(offset_arg(0)),
        jump(BPF_JEQ, libc::AF_INET as u32, 1, 0),
        jump(BPF_JEQ, libc::AF_INET6 as u32, 0, 5),
        load(offset_arg(1)),
        statement(BPF_ALU | BPF_AND | BPF_K, 0xF),
        jump(BPF_JEQ, libc::SOCK_RAW as u32, 1, 0),
        jump(BPF_JEQ, SOCK_PACKET, 0, 1),
        ret(refuse(libc::EPERM)),
    ]
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn ret(value: u32) -> libc::sock_filter {
    statement(BPF_RET | BPF_K, value)
}

/// Jumps count instructions after this one, if the comparison holds or not.
fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(arch: u32, number: u32, args: [u64; 3]) -> u32 {
        verdict_of(&program(None), arch, number, args)
    }

    /// Runs the program as the kernel would.
    fn verdict_of(code: &[libc::sock_filter], arch: u32, number: u32, args: [u64; 3]) -> u32 {
        let word = |offset: u32| match offset {
            OFFSET_NUMBER => number,
            OFFSET_ARCH => arch,
            other => args[((other - 16) / 8) as usize] as u32,
        };
        let (mut at, mut acc) = (0usize, 0u32);
        loop {
            let op = code[at];
            let class = u32::from(op.code);
            at += 1;
            let test = |holds: bool| if holds { op.jt } else { op.jf } as usize;
            match class {
                c if c == BPF_LD | BPF_W | BPF_ABS => acc = word(op.k),
                c if c == BPF_RET | BPF_K => return op.k,
                c if c == BPF_ALU | BPF_AND | BPF_K => acc &= op.k,
                c if c == BPF_JMP | BPF_JA => at += op.k as usize,
                c if c == BPF_JMP | BPF_JEQ | BPF_K => at += test(acc == op.k),
                c if c == BPF_JMP | BPF_JGE | BPF_K => at += test(acc >= op.k),
                c if c == BPF_JMP | BPF_JSET | BPF_K => at += test(acc & op.k != 0),
                other => panic!("unknown instruction {other}"),
            }
        }
    }

    /// Calls with an unconditional rule, and those that have none at all.
    #[test]
    fn the_search_finds_what_the_list_says_in_every_tier() {
        for copied in [
            None,
            Some(Copied { network: false, landlock: 7 }),
            Some(Copied { network: true, landlock: 1 }),
        ] {
            let code = program(copied);
            let rules: Vec<&Rule> =
                RULES.iter().chain(copied.into_iter().flat_map(Copied::rules)).collect();
            let asked: Vec<u32> =
                copied.into_iter().flat_map(Copied::asked).map(|call| call as u32).collect();
            for number in 0..600u32 {
                let got = verdict_of(&code, ARCH, number, [0; 3]);
                let of_call: Vec<&&Rule> =
                    rules.iter().filter(|rule| rule.call as u32 == number).collect();
                match of_call.first() {
                    None if asked.contains(&number) => {
                        assert_eq!(got, libc::SECCOMP_RET_USER_NOTIF, "call {number}");
                    }
                    None => assert_eq!(got, ALLOW, "call {number}"),
                    Some(Rule { when: When::Always, errno, .. }) => {
                        assert_eq!(got, refuse(*errno), "call {number}");
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn check(call: libc::c_long, args: [u64; 3], expect: u32) {
        assert_eq!(verdict(ARCH, call as u32, args), expect, "call {call} {args:?}");
    }

    #[test]
    fn ordinary_calls_pass_and_dangerous_ones_do_not() {
        check(libc::SYS_read, [0; 3], ALLOW);
        check(libc::SYS_execve, [0; 3], ALLOW);
        check(libc::SYS_mount, [0; 3], refuse(libc::EPERM));
        check(libc::SYS_clone3, [0; 3], refuse(libc::ENOSYS));
        check(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0], ALLOW);
        check(libc::SYS_clone, [libc::CLONE_NEWUSER as u64, 0, 0], refuse(libc::EPERM));
        check(libc::SYS_unshare, [libc::CLONE_FILES as u64, 0, 0], ALLOW);
        check(libc::SYS_unshare, [libc::CLONE_NEWNS as u64, 0, 0], refuse(libc::EPERM));
    }

    #[test]
    fn terminal_injection_is_refused_whatever_the_high_bits_say() {
        check(libc::SYS_ioctl, [0, libc::TIOCSTI, 0], refuse(libc::EPERM));
        check(libc::SYS_ioctl, [0, libc::TIOCSTI | 1 << 40, 0], refuse(libc::EPERM));
        check(libc::SYS_ioctl, [0, 0x541C, 0], refuse(libc::EPERM));
        check(libc::SYS_ioctl, [0, libc::TIOCGWINSZ, 0], ALLOW);
    }

    #[test]
    fn sockets_are_of_known_families_and_never_raw() {
        let stream = libc::SOCK_STREAM as u64;
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
            check(libc::SYS_socket, [family as u64, stream, 0], ALLOW);
        }
        let raw = (libc::SOCK_RAW | libc::SOCK_CLOEXEC) as u64;
        check(libc::SYS_socket, [libc::AF_INET as u64, raw, 0], refuse(libc::EPERM));
        check(libc::SYS_socket, [libc::AF_INET6 as u64, raw, 0], refuse(libc::EPERM));
        check(libc::SYS_socket, [libc::AF_INET as u64, 10, 0], refuse(libc::EPERM));
        check(libc::SYS_socket, [libc::AF_NETLINK as u64, raw, 0], ALLOW);
        for family in [libc::AF_VSOCK, libc::AF_PACKET, libc::AF_ALG, libc::AF_BLUETOOTH] {
            check(libc::SYS_socket, [family as u64, stream, 0], refuse(libc::EAFNOSUPPORT));
        }
        check(libc::SYS_socketpair, [libc::AF_UNIX as u64, stream, 0], ALLOW);
        check(libc::SYS_socketpair, [libc::AF_VSOCK as u64, stream, 0], refuse(libc::EAFNOSUPPORT));
    }

    fn check_copied(copied: Copied, call: libc::c_long, args: [u64; 3], expect: u32) {
        let got = verdict_of(&program(Some(copied)), ARCH, call as u32, args);
        assert_eq!(got, expect, "call {call} {args:?} {copied:?}");
    }

    #[test]
    fn without_namespaces_sockets_lead_nowhere() {
        let (none, host) =
            (Copied { network: false, landlock: 7 }, Copied { network: true, landlock: 7 });
        let stream = libc::SOCK_STREAM as u64;
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
            check_copied(none, libc::SYS_socket, [family as u64, stream, 0], refuse(libc::EACCES));
        }
        check_copied(host, libc::SYS_socket, [libc::AF_INET as u64, stream, 0], ALLOW);
        check_copied(
            host,
            libc::SYS_socket,
            [libc::AF_UNIX as u64, stream, 0],
            refuse(libc::EACCES),
        );
        let unix = libc::AF_UNIX as u64;
        let closing = stream | libc::SOCK_CLOEXEC as u64;
        check_copied(none, libc::SYS_socketpair, [unix, closing, 0], ALLOW);
        let datagram = libc::SOCK_DGRAM as u64;
        let refused = refuse(libc::EPROTONOSUPPORT);
        check_copied(none, libc::SYS_socketpair, [unix, datagram, 0], refused);
    }

    #[test]
    fn others_are_left_alone_and_attributes_are_asked_about() {
        let new = Copied { network: false, landlock: 7 };
        check_copied(new, libc::SYS_prlimit64, [0, 7, 0], ALLOW);
        check_copied(new, libc::SYS_prlimit64, [1234, 7, 0], refuse(libc::EPERM));
        check_copied(new, libc::SYS_setpriority, [0, 0, 5], ALLOW);
        check_copied(new, libc::SYS_setpriority, [2, 0, 5], refuse(libc::EPERM));
        check_copied(new, libc::SYS_shmget, [0; 3], refuse(libc::ENOSYS));
        check_copied(new, libc::SYS_fchmodat, [0; 3], libc::SECCOMP_RET_USER_NOTIF);
        check_copied(new, libc::SYS_kill, [1234, 9, 0], ALLOW);
        check_copied(new, libc::SYS_read, [0; 3], ALLOW);
    }

    #[test]
    fn an_older_landlock_is_made_up_for() {
        let old = Copied { network: false, landlock: 1 };
        check_copied(old, libc::SYS_kill, [1234, 9, 0], libc::SECCOMP_RET_USER_NOTIF);
        check_copied(old, libc::SYS_pidfd_send_signal, [3, 9, 0], refuse(libc::ENOSYS));
        check_copied(old, libc::SYS_truncate, [0; 3], refuse(libc::EPERM));
        let open = |flags: i32| [0, 0, flags as u64];
        check_copied(old, libc::SYS_openat, open(libc::O_TRUNC), refuse(libc::EACCES));
        check_copied(old, libc::SYS_openat, open(libc::O_TRUNC | libc::O_WRONLY), ALLOW);
        check_copied(old, libc::SYS_openat, open(libc::O_RDONLY), ALLOW);
    }

    #[test]
    fn other_call_tables_are_closed() {
        assert_eq!(verdict(0x4000_0003, 21, [0; 3]), refuse(libc::ENOSYS), "int 0x80");
        assert_eq!(verdict(ARCH, X32_BIT | 165, [0; 3]), refuse(libc::ENOSYS), "x32");
    }
}
