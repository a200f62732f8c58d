"""The simulation of a step on its tape: what an allocator holds at each instant."""
