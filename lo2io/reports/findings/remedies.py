"""What to do about each finding, in one sentence. docs/reference/findings.md explains the rules."""

from __future__ import annotations

from typing import Final

REMEDIES: Final = {
    "many-small-reads": "read larger blocks, such as 64 KiB at a time (setvbuf, BufferedReader, dd bs=64k)",
    "many-small-writes": "collect what is written in a buffer of 64 KiB, and write that (setvbuf, BufferedWriter)",
    "random-reads-of-whole-file": "read the file once from its start to its end, so that the kernel reads ahead",
    "sync-per-write": "write several records before each sync (group commit); fdatasync spares the file's times",
    "one-at-a-time": "keep several accesses under way: threads, io_uring, or posix_fadvise(POSIX_FADV_WILLNEED)",
    "misaligned-direct": "make offset, size and memory multiples of the device's block (BLKSSZGET: 512 B or 4 KiB)",
    "mixed-direct": "use either O_DIRECT or the page cache for a file, not both",
    "uncached-rereads": "give the page cache more memory, or keep in the program what it reads again",
    "lock-storm": "take the lock once for several changes",
    "file-lock-wait": "hold the lock for less time, lock only the bytes that are used, or use several files",
    "short-writes": "look for a full file system, a quota or a limit on the file's size, and write the rest again",
    "sync-bound": "write several files before each sync, or sync them together (syncfs)",
    "metadata-storm": "keep files open and remember what was looked up; pack many small files into few",
    "missing-files": "shorten the search path, or remember which files are missing",
    "interrupted-calls": "send the signal less often, or block it during I/O (pthread_sigmask)",
    "queue-saturation": "ask for less at a time, or spread the reads over several devices",
    "lock-contention": "let one thread write the file, or give each thread a file of its own",
    "journal-bound": "give the file system a larger journal (mkfs.ext4 -J size=), and sync less often, whoever does it",
    "throttled-writer": "write less at a time, or start write-back earlier (sync_file_range, dirty_background_bytes)",
    "wasted-read-ahead": "say that reads jump: posix_fadvise(POSIX_FADV_RANDOM); or lower the disk's read_ahead_kb",
    "no-read-ahead": "do not turn read-ahead off (POSIX_FADV_RANDOM, read_ahead_kb); for reads with gaps: readahead(2)",
    "faults-one-by-one": "ask for pages before they are touched: madvise(MADV_POPULATE_READ), or read(2)",
    "swapping": "give it more memory (memory.high of its cgroup, fewer programs beside it), or let it use less",
    "write-back-storm": "let the writer write a little at a time (sync_file_range, io.max of its cgroup), or elsewhere",
    "double-caching": "let the loop device bypass the page cache: losetup --direct-io=on DEVICE",
    "one-request-batches": "prepare several requests, and submit them by one call",
    "punted-requests": "remove the reason why they go to workers: docs/reference/io_uring.md explains each",
    "completion-overflow": "collect completions more often, or ask for a larger queue (IORING_SETUP_CQSIZE)",
}
"""Rule → what helps."""
