"""Stored findings of an absent GPU's observer, and scripts that run on one."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.launch import Launched
from assay.absent.observation import Observation
from assay.absent.ranks_answer import RanksAnswer, ranks_of
from assay.absent.script_answer import AbsentAnswer

PYTHON = os.environ.get("ASSAY_ABSENT_PYTHON", "")
"""Python of an environment with a CUDA build of torch; `make absent` makes one."""
needs_cuda_build = pytest.mark.skipif(
    not PYTHON, reason="ASSAY_ABSENT_PYTHON names no Python with a CUDA build of torch; run make absent"
)
COUNTS = {
    "launches": 10,
    "products": 2,
    "fills": 0,
    "copies_on_device": 0,
    "copies_to_device": 0,
    "synchronizations": 1,
    "reads": 1,
    "pageable_copies": 0,
    "copies_to_pinned": 0,
    "graph_nodes": 0,
}
GATHER = {"name": "all_gather", "bytes": 100, "ranks": (0, 1)}
SCATTER = {"name": "reduce_scatter", "bytes": 300, "ranks": (0, 1)}
PLACE = {"file": "/home/me/train.py", "line": 12, "caller": None}


def observation(**changes: Any) -> Observation:
    """Findings of a script that took three steps; changes replace fields."""
    peaks = {"requested_bytes": 900, "allocated_bytes": 1024, "reserved_bytes": 2**21, "given_out_bytes": 2**21}
    fields: dict[str, Any] = {
        "process": 1,
        "torch": "2.11.0+cu130",
        "devices": ({"device": 0, **peaks, "total_bytes": 2**36},),
        "counts": COUNTS,
        "steps": 3,
        "optimizers": 1,
        "by_step": ({**COUNTS, "launches": 15}, COUNTS, COUNTS),
        "reads": (),
        "unknown": (),
        "exhausted": (),
        "ended": {"how": "finished"},
        "refused": None,
    }
    return Observation.model_validate({**fields, **changes}, strict=False)


def answer(*found: Observation, returncode: int = 0, device: str = "h100") -> AbsentAnswer:
    """The answer that follows from findings."""
    return AbsentAnswer(ABSENT[device], 1, ("python", "train.py"), Launched(returncode, found))


def _peaks(reserved: int) -> tuple[dict[str, int], ...]:
    figures = {"requested_bytes": 1, "allocated_bytes": 1, "reserved_bytes": reserved, "given_out_bytes": reserved}
    return ({"device": 0, **figures, "total_bytes": 2**36},)


def over_two(**second: Any) -> RanksAnswer:
    """Two ranks, the second with more memory; changes are of its findings."""
    calls = {"calls": 3, "of_a_step": (GATHER, GATHER, SCATTER), "alike": True}
    first = answer(observation(devices=_peaks(2**30), collectives=calls))
    other = answer(observation(devices=_peaks(2**31), collectives=calls, **second), returncode=int(bool(second)))
    return RanksAnswer(ABSENT["h100"], ranks_of(4, None, (0, 3)), {0: first, 3: other})


def read(kind: str = "size", **changes: Any) -> dict[str, Any]:
    """A line that reads."""
    return {**PLACE, "operator": "index_Tensor", "kind": kind, "count": 3, "bytes": 12, "stated": False, **changes}


@dataclass
class Ran:
    """A script that ran on an absent GPU."""

    answer: AbsentAnswer
    printed: str

    @property
    def found(self) -> Observation:
        """Findings of its process."""
        assert self.answer.observation is not None
        return self.answer.observation


def script(folder: Path, text: str, name: str = "train.py") -> str:
    """Write a script, and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)
