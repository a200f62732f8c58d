"""The view *Studies*: the list of all studies, and the page of one with its live progress and its answer."""
