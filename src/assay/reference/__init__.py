"""What a run must compute, said without torch: the reference that values are held against."""
