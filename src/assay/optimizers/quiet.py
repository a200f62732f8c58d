"""Import torchao without its warnings on extensions for other processors, and without torch's on enumerations.

Both use `logging`, whichever part of torchao is imported, and concern nothing that is used here. Errors still show.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("torchao", "torch.utils._pytree")


@contextmanager
def importing_torchao() -> Iterator[None]:
    """Hide warnings of torchao's import inside the context."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
