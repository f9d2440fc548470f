"""Arguments and effects of system calls, on descriptor tables like the kernel's: the work in histories' calls."""

from __future__ import annotations

from dataclasses import dataclass

EBADF, EINTR, EIO, EINVAL = 9, 4, 5, 22
O_APPEND, O_CLOEXEC = 0o2000, 0o2000000
NR_FDS = 6


@dataclass(eq=False)
class File:
    """An open file description, with the values that /proc would show."""

    inode: int
    flags: int
    position: int = 0


@dataclass(eq=False)
class Call:
    """A call under way in the kernel."""

    name: str
    args: dict[str, int]
    salt: int
    done: bool = False
    ret: int = 0


@dataclass(eq=False)
class Thread:
    """A thread of the machine."""

    pid: int
    tid: int
    cpu: int
    table: dict[int, File]
    cloexec: set[int]
    call: Call | None = None
    runs: bool = True
    """It has a CPU."""


@dataclass(kw_only=True)
class Kernel:
    """Makes files, and does the work of calls."""

    inodes: int = 1
    nr_fds: int = NR_FDS

    def _file(self, flags: int) -> File:
        self.inodes += 1
        return File(self.inodes, flags)

    def _args(self, name: str, pick: int, salt: int) -> dict[str, int]:
        fd, other, count = pick % self.nr_fds, salt % self.nr_fds, (10, 100, 4096)[salt % 3]
        offset = (0, 512, -1)[pick % 3]
        table: dict[str, dict[str, int]] = {
            "read": {"fd": fd, "count": count},
            "write": {"fd": fd, "count": count},
            "pread64": {"fd": fd, "count": count, "pos": offset},
            "pwrite64": {"fd": fd, "count": count, "pos": offset},
            "preadv2": {"fd": fd, "vlen": 2, "pos_l": offset, "flags": 0},
            "writev": {"fd": fd, "vlen": 2},
            "lseek": {"fd": fd, "offset": 100 * other, "whence": pick % 3},
            "openat": {"dfd": -100, "flags": (2, 2 | O_APPEND, 2 | O_CLOEXEC)[salt % 3]},
            "dup": {"fildes": fd},
            "dup2": {"oldfd": fd, "newfd": other},
            "dup3": {"oldfd": fd, "newfd": other, "flags": (0, O_CLOEXEC)[salt % 2]},
            "fcntl": {"fd": fd, "cmd": (0, 1030, 2, 4, 1)[salt % 5], "arg": (0, 1, O_APPEND, 3)[pick % 4]},
            "ioctl": {"fd": fd, "cmd": (0x5450, 0x5451, 0x5401)[salt % 3]},
            "close_range": {"fd": fd, "max_fd": (other, 0xFFFFFFFF)[pick % 2], "flags": (0, 0, 2, 4, 6)[salt % 5]},
            "copy_file_range": {"fd_in": fd, "fd_out": other, "len": count, "flags": 0},
            "sendfile64": {"in_fd": fd, "out_fd": other, "count": count},
            "unshare": {"unshare_flags": (0x400, 0x200)[salt % 2]},
            "memfd_create": {"flags": 0},
        }
        if name in ("close", "fsync", "newfstat"):
            return {"fd": fd}
        return table.get(name, {})

    def _do(self, thread: Thread, call: Call) -> int:
        """The call's result, which is an error now and then."""
        name, args, salt = call.name, call.args, call.salt
        table = thread.table
        fd = args.get("fd", args.get("fildes", args.get("oldfd", args.get("fd_in", args.get("in_fd", -1)))))
        if name in ("openat", "openat2", "creat", "socket", "memfd_create"):
            return self._new_fd(thread, args.get("flags", 0o1101 if name == "creat" else 2), failing=salt % 7 == 6)
        if name == "close_range":
            return self._close_range(thread, args)
        if name == "unshare":
            if args["unshare_flags"] & 0x400:
                thread.table, thread.cloexec = dict(table), set(thread.cloexec)
            return 0
        if name == "sync":
            return 0
        if fd not in table:
            return -EBADF
        return self._do_with(thread, call, fd, table[fd])

    def _do_with(  # noqa: C901, PLR0911 - one case per call
        self, thread: Thread, call: Call, fd: int, file: File
    ) -> int:
        name, args, salt = call.name, call.args, call.salt
        table = thread.table
        if name == "close":
            del table[fd]
            thread.cloexec.discard(fd)
            return (0, 0, 0, -EIO, -EINTR)[salt % 5]
        if name == "copy_file_range" and args["fd_out"] not in table:
            return -EBADF  # looks both up before it does anything; sendfile looks the second one up late
        if salt % 11 == 10:
            return -(EINTR, EIO, 512)[salt % 3]
        if name == "dup" or (name == "fcntl" and args["cmd"] in (0, 1030)):
            return self._put(thread, file, cloexec=args.get("cmd") == 1030)
        if name in ("dup2", "dup3"):
            return self._dup_to(thread, fd, args)
        if name == "fcntl":
            return self._fcntl(thread, fd, file, args)
        if name == "ioctl":
            (thread.cloexec.add if args["cmd"] == 0x5451 else thread.cloexec.discard)(fd)
            return 0
        if name == "lseek":
            file.position = args["offset"]
            return file.position
        if name == "sendfile64" and args["out_fd"] not in table:
            return -EBADF
        if name in ("fsync", "newfstat"):
            return 0
        size = (args.get("count", 64), 7, 0)[salt % 3]
        if args.get("pos", args.get("pos_l", -1)) == -1:
            file.position += size
        return size

    def _fcntl(self, thread: Thread, fd: int, file: File, args: dict[str, int]) -> int:
        if args["cmd"] == 2:
            (thread.cloexec.add if args["arg"] & 1 else thread.cloexec.discard)(fd)
        elif args["cmd"] == 4:
            file.flags = file.flags & ~O_APPEND | args["arg"] & O_APPEND
        return 0

    def _new_fd(self, thread: Thread, flags: int, *, failing: bool) -> int:
        if failing:
            return -2
        return self._put(thread, self._file(flags & ~O_CLOEXEC), cloexec=bool(flags & O_CLOEXEC))

    @staticmethod
    def _put(thread: Thread, file: File, *, cloexec: bool) -> int:
        fd = next(fd for fd in range(100) if fd not in thread.table)
        thread.table[fd] = file
        (thread.cloexec.add if cloexec else thread.cloexec.discard)(fd)
        return fd

    @staticmethod
    def _dup_to(thread: Thread, fd: int, args: dict[str, int]) -> int:
        new = args["newfd"]
        if new == fd:
            return -EINVAL if "flags" in args else fd
        thread.table[new] = thread.table[fd]
        (thread.cloexec.add if args.get("flags") else thread.cloexec.discard)(new)
        return new

    @staticmethod
    def _close_range(thread: Thread, args: dict[str, int]) -> int:
        if args["fd"] > args["max_fd"]:
            return -EINVAL
        if args["flags"] & 2:
            thread.table, thread.cloexec = dict(thread.table), set(thread.cloexec)
        for fd in [fd for fd in thread.table if args["fd"] <= fd <= args["max_fd"]]:
            if args["flags"] & 4:
                thread.cloexec.add(fd)
            else:
                del thread.table[fd]
        return 0
