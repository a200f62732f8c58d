"""A study: its answer in sections, its plan and state, one on several machines, and the library."""
