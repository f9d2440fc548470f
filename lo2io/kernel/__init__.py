"""The kernel as files: tracefs, ``/proc``, ``/sys``; and the rights that it grants to this process."""
