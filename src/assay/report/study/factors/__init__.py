"""Content on the factors of a study: effects, interactions, deviations from additivity, grids of percent changes."""
