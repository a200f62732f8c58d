"""AdamW in one kernel, wrong."""

from typing import Any

from assay.config import Run
from assay.step.program import OptimizerLike
from optimizations.mutations.mutant import LATE, Mutant
from optimizations.mutations.rules import around, at_peak, decays_vectors, made, only, scaled, stops_late, tuned


def _plain_late(optimizer: OptimizerLike, run: Run) -> None:
    states = list(optimizer.state.values())
    if states and float(states[0]["step"]) >= LATE:
        for group in optimizer.param_groups:
            group["fused"] = False


def _rounded(optimizer: OptimizerLike, run: Run) -> None:
    for state in optimizer.state.values():
        state["exp_avg_sq"].copy_(state["exp_avg_sq"].bfloat16())


def _amsgrad(optimizer: Any, run: Run) -> None:
    for group in optimizer.param_groups:
        group["amsgrad"] = True


MUTANTS = (
    Mutant(
        "every second weight",
        "The kernel is given every second weight only.",
        only("fused_adamw", lambda n, name: n % 2 == 0),
    ),
    Mutant(
        "last weight forgotten",
        "The list of weights ends one too early.",
        only("fused_adamw", lambda n, name: n != 51),
    ),
    Mutant("torch's betas", "The second moment decays by torch's 0.999.", tuned("fused_adamw", betas=(0.9, 0.999))),
    Mutant("no decay", "Nothing decays.", scaled("fused_adamw", "weight_decay", 0.0)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("fused_adamw")),
    Mutant("AMSGrad", "The denominator is the largest second moment so far.", made("fused_adamw", _amsgrad)),
    Mutant("no schedule", "The learning rate is always the largest.", at_peak("fused_adamw")),
    Mutant("state in 16 bits", "The second moment is rounded to bfloat16.", around("fused_adamw", after=_rounded)),
    Mutant(
        "plain late",
        "Late in the run the update is torch's plain loop.",
        around("fused_adamw", before=_plain_late),
        late=True,
    ),
    Mutant(
        "stops late",
        "Late in the run every second weight stands still.",
        stops_late("fused_adamw", lambda n: n % 2 == 0),
        late=True,
    ),
)
