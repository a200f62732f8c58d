"""The terminal: the table of a comparison, and the progress of long work."""
