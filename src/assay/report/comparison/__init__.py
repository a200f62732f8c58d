"""The table of a comparison, its figures, its page, and its progress."""
