"""Predictions without garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage meanwhile, as a context or a decorator.

    Ledgers have no cycles. Looking through them takes a tenth of the time of an estimate, and half of that of a search.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
