"""All mutants by kind and by name."""

from collections.abc import Mapping

from mutants import counters, evaluation, exact, losses, masks, midrun, neighbours, traces
from mutants.mutant import Mutant

KINDS: Mapping[str, tuple[Mutant, ...]] = {
    "mid-run": midrun.MUTANTS,
    "evaluation": evaluation.MUTANTS,
    "masks": masks.MUTANTS,
    "traces": traces.MUTANTS,
    "neighbours": neighbours.MUTANTS,
    "counters": counters.MUTANTS,
    "gradients": exact.MUTANTS,
    "losses": losses.MUTANTS,
}


def named(name: str) -> Mutant:
    """Return the mutant of a name. Raises `KeyError` if there is none."""
    return {one.name: one for mutants in KINDS.values() for one in mutants}[name]
