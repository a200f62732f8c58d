"""The view *Runs*: the table of all runs, and the page of one with its live curves."""
