"""Studies of scaling: sizes of one model, the FLOPs of a run, and a design that ends in time."""
