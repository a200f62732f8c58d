"""The values that a run must compute, described without torch: the reference of the value check."""
