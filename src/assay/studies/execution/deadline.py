"""A limit on the time of a study: no wave begins that would probably end after it.

The time of a wave is that of the waves before it, by cells. The first wave always begins, because nothing is known
before it. Waves are taken seed by seed, so that an early end leaves every row with the same seeds. The rest is not
lost: `assay study resume` runs it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from assay.executors.base import Wave


class Deadline:
    """Waves that can end in time."""

    def __init__(self, hours: float | None, slots: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = None if hours is None else 3600 * hours
        self.reached = False
        """True once a wave was held back."""
        self._slots = slots
        self._clock = clock
        self._began: float | None = None
        self._cells = 0

    def before(self, waves: Iterable[tuple[int, Wave]]) -> Iterator[tuple[int, Wave]]:
        """Yield the waves while there is time; the next one is requested when it can begin.

        Waves of a second call count on from those of the first.
        """
        self._began = self._clock() if self._began is None else self._began
        for number, wave in waves:
            spent = self._clock() - self._began
            ended = self._cells - (self._slots - 1)  # the others still run
            if self.seconds is not None and ended > 0:
                expected = spent * self._slots / ended * len(wave)
                if spent + expected > self.seconds:
                    self.reached = True
                    return
            self._cells += len(wave)
            yield number, wave


def by_seed(waves: Sequence[tuple[int, Wave]]) -> list[tuple[int, Wave]]:
    """Return the waves seed by seed, in the order of the seeds; without a limit, nudged cells would be the last."""
    seeds = list(dict.fromkeys(wave[0].seed for _, wave in waves))
    return sorted(waves, key=lambda one: seeds.index(one[1][0].seed))
