"""What a person reads: the table, the figures and the page."""
