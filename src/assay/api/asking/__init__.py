"""Questions to scaling laws: the best size and data, how they grow, and how large a batch helps."""
