"""A study that is predicted on a GPU: figures of its rows, their changes, and deviations from additivity."""
