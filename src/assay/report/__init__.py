"""Reports for a reader: the table, the figures and the page."""
