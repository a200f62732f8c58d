"""Children that are forked from a process that has imported torch, as their parent sees them."""
