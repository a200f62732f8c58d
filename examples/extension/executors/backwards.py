"""An executor: the waves of a study on this machine, the last one first."""

from dataclasses import replace
from typing import ClassVar

from assay.executors.base import Conducted, Executor, Work
from assay.executors.local import Local


class Backwards(Executor):
    """Runs the waves in the opposite order. Their numbers stay with them."""

    name: ClassVar[str] = "backwards"

    def run(self, work: Work) -> Conducted:
        """Run every wave, and return what came of its cells."""
        return Local().run(replace(work, waves=reversed(list(work.waves))))
