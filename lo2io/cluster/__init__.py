"""Many nodes: which files of a recording are whose, and how the nodes' clocks are aligned."""
