"""Two traces beside each other: what changed from one to the other."""
