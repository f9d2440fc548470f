"""Facts from ``/proc`` about threads and open files while recording."""
