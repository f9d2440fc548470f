"""File systems and folders whose files hold no data of anybody's: the kernel makes them up while they are read."""

from typing import Final

KERNEL_FILE_SYSTEMS: Final = frozenset(
    (
        *("proc", "sysfs", "tracefs", "debugfs", "cgroup", "cgroup2", "securityfs", "configfs", "bpf", "pstore"),
        *("efivarfs", "mqueue", "fusectl", "binfmt_misc", "devpts", "nsfs", "selinuxfs", "rpc_pipefs", "hugetlbfs"),
    )
)
"""By the name that mountinfo has (filesystems(5), Documentation/filesystems)."""
KERNEL_FOLDERS: Final = ("/proc/", "/sys/", "/dev/")
"""Where they lie, for files of which only a name is known."""
