"""Analysis of a study's figures: changes with their intervals, and which of them are more than noise."""
