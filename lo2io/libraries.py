"""How NumPy and Arrow behave in a short-lived process. To be called before their first import."""

from __future__ import annotations

import os


def prepare_libraries() -> None:
    """Choose what both libraries read from the environment at their import. The user's own choice stands.

    NumPy's linear algebra starts a thread per CPU, which spins for a while: lo2io needs none. Arrow's own allocator
    gives memory back after each batch and faults it in again, and keeps more than glibc's. It also starts a
    thread, which would keep the rights that :mod:`lo2io.rights` gives up.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
