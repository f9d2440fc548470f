"""File systems and folders without stored data: the kernel makes their files up while they are read."""

from typing import Final

KERNEL_FILE_SYSTEMS: Final = frozenset(
    (
        *("proc", "sysfs", "tracefs", "debugfs", "cgroup", "cgroup2", "securityfs", "configfs", "bpf", "pstore"),
        *("efivarfs", "mqueue", "fusectl", "binfmt_misc", "devpts", "nsfs", "selinuxfs", "rpc_pipefs", "hugetlbfs"),
    )
)
"""Names of such file systems in mountinfo (filesystems(5), Documentation/filesystems)."""
KERNEL_FOLDERS: Final = ("/proc/", "/sys/", "/dev/")
"""Folders of such files, for files with a known name and nothing else."""
