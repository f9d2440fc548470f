"""System calls of 32 bit programs: their numbers and arguments, as the calls of 64 bit programs that do the same.

They enter the kernel through another table, under other numbers, with arguments of 32 bits in other registers. Offsets
come in two halves. The programs in the kernel put them together, so a record is that of a 64 bit call. Perf's
tracepoints of system calls leave these calls out (``kernel/trace/trace_syscalls.c``: ``trace_get_syscall_nr``).

Facts: arch/x86/entry/syscalls/syscall_32.tbl of Linux 6.18 and the functions it names: arch/x86/kernel/sys_ia32.c,
COMPAT_SYSCALL_DEFINE in fs/ and net/compat.c, ``socketcall`` in net/socket.c.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

MAX_ARGUMENTS = 6
HIGH_SHIFT = 4
SIGNED, PAGES, LOCK, RESULT = (1 << bit for bit in range(8, 12))
"""Of an argument: sign-extended; counts pages of 4 KiB; a command of fcntl64, whose locks have numbers of their own;
points to 64 bits that are the call's result. ``LO2_COMPAT_...`` in lo2io/bpf/programs/config.h."""
_FLAGS = {"s": SIGNED, "p": PAGES, "l": LOCK, "r": RESULT}
_PLAIN = tuple(range(1, MAX_ARGUMENTS + 1))
_CALLS = """
accept 517 @2 1 2 3
accept4 364
accept4 530 @2 1 2 3 4
access 33
acct 51
bind 361
bind 514 @2 1 2 3
bpf 357
cachestat 451
chdir 12
chmod 15
chown 182
chown 212
chroot 61
clone 120
clone3 435
close 6
close_range 436
connect 362
connect 515 @2 1 2 3
copy_file_range 377
creat 8
dup 41
dup2 63
dup3 330
epoll_create 254
epoll_create1 329
epoll_ctl 255
epoll_pwait 319
epoll_pwait2 441
epoll_wait 256
eventfd 323
eventfd2 328
execve 11
execveat 358
exit 1
exit_group 252
faccessat 307
faccessat2 439
fadvise64 250 1 2:3 4 5
fadvise64 272 1 2:3 4:5 6
fallocate 324 1 2 3:4 5:6
fanotify_init 338
fanotify_mark 339 1 2 3:4 5 6
fchdir 133
fchmod 94
fchmodat 306
fchmodat2 452
fchown 95
fchown 207
fchownat 298
fcntl 55
fcntl 221 1 l2 3
fdatasync 148
fgetxattr 231
file_getattr 468
file_setattr 469
flistxattr 234
flock 143
fork 2
fremovexattr 237
fsconfig 431
fsetxattr 228
fsmount 432
fsopen 430
fspick 433
fstatfs 100
fstatfs 269 1
fsync 118
ftruncate 93 1 s2
ftruncate 194 1 2:3
futimesat 299
getcwd 183
getdents 141
getdents64 220
getxattr 229
getxattrat 464
inotify_add_watch 292
inotify_init 291
inotify_init1 332
io_cancel 249
io_destroy 246
io_getevents 247 1 s2 s3 4 5
io_pgetevents 385 1 s2 s3 4 5 6
io_pgetevents 416 1 s2 s3 4 5 6
io_setup 245
io_submit 248 1 s2 3
io_uring_enter 426
io_uring_register 427
io_uring_setup 425
ioctl 54
ioprio_get 290
ioprio_set 289
lchown 16
lchown 198
lgetxattr 230
link 9
linkat 303
listen 363
listen 516 @2 1 2
listmount 458
listxattr 232
listxattrat 465
llistxattr 233
lremovexattr 236
lseek 19 1 s2 3
lseek 140 1 3:2 5 r4
lsetxattr 227
madvise 219
memfd_create 356
memfd_secret 447
mincore 218
mkdir 39
mkdirat 296
mknod 14
mknodat 297
mlock 150
mlock2 376
mlockall 152
mmap 90 @1 1 2 3 4 5 6
mmap 192 1 2 3 4 5 p6
mount 21
mount_setattr 442
move_mount 429
mprotect 125
mq_open 277
mq_timedreceive 280
mq_timedreceive 419
mq_timedsend 279
mq_timedsend 418
mq_unlink 278
mremap 163
msync 144
munmap 91
name_to_handle_at 341
newfstat 28
newfstat 108
newfstat 197
newfstatat 300
newlstat 84
newlstat 107
newlstat 196
newstat 18
newstat 106
newstat 195
open 5
open_by_handle_at 342
open_tree 428
open_tree_attr 467
openat 295
openat2 437
perf_event_open 336
pidfd_getfd 438
pidfd_open 434
pipe 42
pipe2 331
pivot_root 217
poll 168
ppoll 309
ppoll 414
pread64 180 1 2 3 4:5
preadv 333 1 2 3 4:5
preadv2 378 1 2 3 4:5 0 6
process_madvise 440
process_vm_readv 347
process_vm_writev 348
pselect6 308
pselect6 413
pwrite64 181 1 2 3 4:5
pwritev 334 1 2 3 4:5
pwritev2 379 1 2 3 4:5 0 6
quotactl 131
quotactl_fd 443
read 3
readahead 225 1 2:3 4
readlink 85
readlinkat 305
readv 145
recvfrom 371
recvfrom 522 @2 1 2 3 4
recvfrom 524 @2 1 2 3 4 5 6
recvmmsg 337
recvmmsg 417
recvmmsg 531 @2 1 2 3 4 5
recvmsg 372
recvmsg 529 @2 1 2 3
remap_file_pages 257
removexattr 235
removexattrat 466
rename 38
renameat 302
renameat2 353
rmdir 40
select 82 @1 1 2 3 4 5
select 142
sendfile64 187
sendfile64 239
sendmmsg 345
sendmmsg 532 @2 1 2 3 4
sendmsg 370
sendmsg 528 @2 1 2 3
sendto 369
sendto 521 @2 1 2 3 4
sendto 523 @2 1 2 3 4 5 6
setxattr 226
setxattrat 463
shutdown 373
shutdown 525 @2 1 2
signalfd 321
signalfd4 327
socket 359
socket 513 @2 1 2 3
socketpair 360
socketpair 520 @2 1 2 3 4
splice 313
statfs 99
statfs 268 1
statmount 457
statx 383
swapoff 115
swapon 87
symlink 83
symlinkat 304
sync 36
sync_file_range 314 1 2:3 4:5 6
syncfs 344
tee 315
timerfd_create 322
truncate 92 1 s2
truncate 193 1 2:3
umask 60
umount 22 1
umount 52
unlink 10
unlinkat 301
unshare 310
userfaultfd 374
ustat 62
utime 30
utimensat 320
utimensat 412
utimes 271
vfork 190
vmsplice 316
write 4
writev 146
"""
"""A line: name of the 64 bit call; number on i386, or 512 more than the first argument of a socketcall; and
where each 64 bit argument comes from, if not from the same place: a register from 1 (ebx) to 6 (ebp), or 0, nothing;
LOW:HIGH, two registers; s, p, l, r before it: the flags above. @N first: not registers, but 32 bit words in the
program's memory, where register N points."""


@dataclass(frozen=True, slots=True)
class CompatCall:
    """A call of 32 bit programs.

    Attributes:
        number: Its own.
        memory: Register that points to the arguments; 0: they are in registers.
        nr_given: So many words lie there.
        args: Of each 64 bit argument: low register, high register << 4, flags.
    """

    number: int
    memory: int
    nr_given: int
    args: tuple[int, ...]


def compat_calls(name: str, machine: str | None = None) -> tuple[CompatCall, ...]:
    """The 32 bit calls that do what the call with the tracepoints ``sys_enter_NAME`` and ``sys_exit_NAME`` does.

    Args:
        name: Such as ``newfstat``.
        machine: As ``uname -m`` says; by default this one. Only those of x86-64 are known.
    """
    return _read_calls().get(name, ()) if knows_compat(machine) else ()


def knows_compat(machine: str | None = None) -> bool:
    """Whether 32 bit calls of this kind of machine are known."""
    return (platform.machine() if machine is None else machine) == "x86_64"


@cache
def _read_calls() -> dict[str, tuple[CompatCall, ...]]:
    found: dict[str, tuple[CompatCall, ...]] = {}
    for name, number, *words in (line.split() for line in _CALLS.split("\n") if line):
        memory = int(words.pop(0)[1:]) if words and words[0].startswith("@") else 0
        args = tuple(map(_read_argument, words)) or _PLAIN
        args += (0,) * (MAX_ARGUMENTS - len(args))
        call = CompatCall(int(number), memory, len(words) if memory else 0, args)
        found[name] = (*found.get(name, ()), call)
    return found


def _read_argument(word: str) -> int:
    flags = _FLAGS.get(word[0], 0)
    low, _, high = word[bool(flags) :].partition(":")
    return int(low) | int(high or 0) << HIGH_SHIFT | flags
