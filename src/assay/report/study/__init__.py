"""Content about a study beside its comparison: its plan, and what was expected of it."""
