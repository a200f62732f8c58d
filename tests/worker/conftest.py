"""Children of runs are forked in tests that ask for `forked`."""

from support.forked import forked

__all__ = ["forked"]
