"""Answer of a study of scaling: its points, the law of the small runs, and how it predicted the largest one."""
