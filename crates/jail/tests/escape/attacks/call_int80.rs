//! 32-bit system calls have numbers of their own.

use crate::harness::Attack;

#[cfg(target_arch = "x86_64")]
attack!(
    calls_by_int_0x80_do_not_pass_the_filter,
    Attack::python(
        r#"
# mov eax, 310 (unshare); mov ebx, CLONE_NEWUSER; int 0x80; ret, with rbx kept
code = b"\x53\xb8\x36\x01\x00\x00\xbb\x00\x00\x00\x10\xcd\x80\x5b\x48\x98\xc3"
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(code)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
value = ctypes.CFUNCTYPE(ctypes.c_long)(address)()
if value == -errno.ENOSYS and not inside:
    absent("32-bit calls")
if value < 0:
    raise OSError(-value, os.strerror(-value))
escaped("have a user namespace")
"#
    )
);
