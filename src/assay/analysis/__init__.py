"""What the figures of a study say: changes with their intervals, and which of them are more than noise."""
