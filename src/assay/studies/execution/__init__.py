"""Running a study: cells that can start, limits of time, the waves of one process, and what has come of them."""
