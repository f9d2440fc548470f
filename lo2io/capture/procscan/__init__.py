"""What ``/proc`` tells of threads and open files while recording."""
