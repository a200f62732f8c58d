"""The recorded updates of a run: weights before and after, gradients, and the optimizer's state of each tensor."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.reference.expected import Expected
from assay.reference.rules import Rule, State
from assay.values.rate_rule import rate
from assay.values.recorded import Recorded

States = Mapping[tuple[int, str], Mapping[str, tuple[Mapping[str, Tensor], str]]]
"""The optimizer's entries by step and parameter: tensors of that step, and the name of the entry there."""


@dataclass(frozen=True)
class UpdateStep:
    """Tensors by name around the update of one step."""

    index: int
    rate: float
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]

    @classmethod
    def of(cls, recorded: Recorded, index: int, run: ResolvedRun, expected: Expected) -> "UpdateStep":
        """Return the tensors of a recorded step, at the learning rate that the run's schedule has there."""
        before, after = (recorded.tensors("weight", place) for place in (index, index + 1))
        now = rate(run.training, index) * expected.rate_factor
        return cls(index, now, before, after, recorded.tensors("gradient", index))


def states_of(recorded: Recorded) -> States:
    """Return the optimizer's recorded entries."""
    found: dict[tuple[int, str], dict[str, tuple[Mapping[str, Tensor], str]]] = defaultdict(dict)
    for step in range(recorded.first, recorded.first + len(recorded.steps) + 1):
        entries = recorded.tensors("state", step)
        for entry in entries:
            name, _, key = entry.rpartition("|")
            found[step, name][key] = entries, entry
    return found


def kept_state(states: States, rule: Rule, name: str, step: int) -> State:
    """Return the optimizer's state of one parameter before a step, in the replay's form; empty if it has none."""
    found = states.get((step, name), {})
    return rule.adopt({key: tensors[entry] for key, (tensors, entry) in found.items()}) if found else {}


def is_coarse(rule: Rule, dtype: torch.dtype, moment: str) -> bool:
    """Return whether fewer than 32 bits decide a moment of a weight of this dtype."""
    return rule.rounds_state or dtype.itemsize < 4 or moment in rule.coarse_moments
