"""Questions to laws: the best size and data for a budget, how far a law reaches, and what else an answer costs."""
