"""The end of a run's record: a text of its model, and the reasons why figures are missing."""
