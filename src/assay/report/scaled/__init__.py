"""Studies of scaling as plain rows: the plan before one runs, and its answer."""
