"""Reports of many nodes: sums of each node that add up, and what they add up to."""
