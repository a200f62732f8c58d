"""Designs and executions as tests write them."""

from collections.abc import Sequence
from pathlib import Path

from assay.config import Home
from assay.config.run import Run
from assay.executors.base import Conducted, Listener, Planned, Start, Wave, Work
from assay.executors.local import Local
from assay.records.study import Cell
from assay.studies.kinds.comparison import ComparisonStudy


def design(base: Run, treatments: Sequence[str], seeds: int, processes: int = 1) -> tuple[Cell, ...]:
    """The cells of a comparison."""
    return ComparisonStudy(treatments=tuple(treatments), seeds=seeds, processes=processes).cells(base)


def conduct(waves: Sequence[Wave], start: Start, blocks: int, tell: Listener) -> Conducted:
    """Run the waves on this machine."""
    tell(Planned(tuple(waves), blocks))
    return Local().run(Work(list(enumerate(waves)), start, blocks, tell, Home("nowhere"), Path("nowhere")))
