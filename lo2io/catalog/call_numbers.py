"""System calls' numbers, by the names that tracepoints give them: no file of the kernel tells them to programs.

They never change once a kernel with them is released. What is not listed is seen through perf events, which cost more.

Facts: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, Linux 6.18; those of x86-64 were
compared with ``syscall_metadata`` of a running one.
"""

from __future__ import annotations

import platform
from functools import cache

_COLUMN = {"x86_64": 1, "aarch64": 2}
_NUMBERS = """
accept 43 202
accept4 288 242
access 21 -
acct 163 89
bind 49 200
bpf 321 280
cachestat 451 451
chdir 80 49
chmod 90 -
chown 92 -
chroot 161 51
clone 56 220
clone3 435 435
close 3 57
close_range 436 436
connect 42 203
copy_file_range 326 285
creat 85 -
dup 32 23
dup2 33 -
dup3 292 24
epoll_create 213 -
epoll_create1 291 20
epoll_ctl 233 21
epoll_pwait 281 22
epoll_pwait2 441 441
epoll_wait 232 -
eventfd 284 -
eventfd2 290 19
execve 59 221
execveat 322 281
exit 60 93
exit_group 231 94
faccessat 269 48
faccessat2 439 439
fadvise64 221 -
fallocate 285 47
fanotify_init 300 262
fanotify_mark 301 263
fchdir 81 50
fchmod 91 52
fchmodat 268 53
fchmodat2 452 452
fchown 93 55
fchownat 260 54
fcntl 72 25
fdatasync 75 83
fgetxattr 193 10
file_getattr 468 468
file_setattr 469 469
flistxattr 196 13
flock 73 32
fork 57 -
fremovexattr 199 16
fsconfig 431 431
fsetxattr 190 7
fsmount 432 432
fsopen 430 430
fspick 433 433
fstatfs 138 44
fsync 74 82
ftruncate 77 46
futimesat 261 -
getcwd 79 17
getdents 78 -
getdents64 217 61
getxattr 191 8
getxattrat 464 464
inotify_add_watch 254 27
inotify_init 253 -
inotify_init1 294 26
io_cancel 210 3
io_destroy 207 1
io_getevents 208 4
io_pgetevents 333 292
io_setup 206 0
io_submit 209 2
io_uring_enter 426 426
io_uring_register 427 427
io_uring_setup 425 425
ioctl 16 29
ioprio_get 252 31
ioprio_set 251 30
lchown 94 -
lgetxattr 192 9
link 86 -
linkat 265 37
listen 50 201
listmount 458 458
listxattr 194 11
listxattrat 465 465
llistxattr 195 12
lremovexattr 198 15
lseek 8 62
lsetxattr 189 6
madvise 28 233
memfd_create 319 279
memfd_secret 447 447
mincore 27 232
mkdir 83 -
mkdirat 258 34
mknod 133 -
mknodat 259 33
mlock 149 228
mlock2 325 284
mlockall 151 230
mmap 9 -
mount 165 40
mount_setattr 442 442
move_mount 429 429
mprotect 10 226
mq_open 240 180
mq_timedreceive 243 183
mq_timedsend 242 182
mq_unlink 241 181
mremap 25 216
msync 26 227
munmap 11 215
name_to_handle_at 303 -
newfstat 5 80
newfstatat 262 79
newlstat 6 -
newstat 4 -
open 2 -
open_by_handle_at 304 -
open_tree 428 428
open_tree_attr 467 467
openat 257 56
openat2 437 437
perf_event_open 298 241
pidfd_getfd 438 438
pidfd_open 434 434
pipe 22 -
pipe2 293 59
pivot_root 155 41
poll 7 -
ppoll 271 73
pread64 17 67
preadv 295 69
preadv2 327 286
process_madvise 440 440
process_vm_readv 310 270
process_vm_writev 311 271
pselect6 270 72
pwrite64 18 68
pwritev 296 70
pwritev2 328 287
quotactl 179 60
quotactl_fd 443 443
read 0 63
readahead 187 213
readlink 89 -
readlinkat 267 78
readv 19 65
recvfrom 45 207
recvmmsg 299 243
recvmsg 47 212
remap_file_pages 216 234
removexattr 197 14
removexattrat 466 466
rename 82 -
renameat 264 -
renameat2 316 276
rmdir 84 -
select 23 -
sendfile64 40 71
sendmmsg 307 269
sendmsg 46 211
sendto 44 206
setxattr 188 5
setxattrat 463 463
shutdown 48 210
signalfd 282 -
signalfd4 289 74
socket 41 198
socketpair 53 199
splice 275 76
statfs 137 43
statmount 457 457
statx 332 291
swapoff 168 225
swapon 167 224
symlink 88 -
symlinkat 266 36
sync 162 81
sync_file_range 277 84
syncfs 306 267
tee 276 77
timerfd_create 283 85
truncate 76 45
umask 95 166
umount 166 39
unlink 87 -
unlinkat 263 35
unshare 272 97
userfaultfd 323 282
ustat 136 -
utime 132 -
utimensat 280 88
utimes 235 -
vfork 58 -
vmsplice 278 75
write 1 64
writev 20 66
"""
"""A line: name, number on x86-64, on arm64; -: it has none there, or is not seen by this name."""


def call_number(name: str, machine: str | None = None) -> int:
    """The number of the call whose tracepoints are ``sys_enter_NAME`` and ``sys_exit_NAME``; -1: not known.

    Args:
        name: Such as ``newfstat``.
        machine: As ``uname -m`` says; by default this one.
    """
    return _read_numbers(platform.machine() if machine is None else machine).get(name, -1)


@cache
def _read_numbers(machine: str) -> dict[str, int]:
    column = _COLUMN.get(machine)
    if column is None:
        return {}
    rows = [line.split() for line in _NUMBERS.split("\n") if line]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}
