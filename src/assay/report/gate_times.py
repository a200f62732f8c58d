"""Times of steps beside those of a base commit, as a reader is shown them: a sentence each, with ratio and interval."""

from collections.abc import Iterator
from typing import Any

from assay.analysis.step_ratio import GateTimes, StepRatio
from assay.report.kit.blocks import Block
from assay.report.kit.view import Shown


class GateTimesView(Shown[GateTimes]):
    """Times of steps beside those of a base commit, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield a sentence for each step, and what disturbed it."""
        for one in self.found.ratios:
            yield f"{_sentence(self.found, one)} {_verdict(self.found, one)}".strip()
            disturbed, rounds = one.disturbed
            if 2 * disturbed > rounds:
                yield f"Other programs disturbed {disturbed} of {rounds} rounds, which makes the interval wide."

    def values(self) -> dict[str, Any]:
        """Return the answer as plain values; times themselves mean little elsewhere, and are left out."""
        found = self.found
        return {
            "base": found.base,
            "at_most": found.at_most,
            "exit_code": int(found.exit_code),
            "steps": [_values(found, one) for one in found.ratios],
        }


def _sentence(found: GateTimes, one: StepRatio) -> str:
    low, high = one.interval
    return (
        f"{one.step} on {one.pairs[0].device} takes {one.ratio:.3f} times as long as at {found.base}, 95 % interval "
        f"{low:.3f} to {high:.3f}."
    )


def _verdict(found: GateTimes, one: StepRatio) -> str:
    """Return what follows from the interval."""
    low, high = one.interval
    if found.at_most is None:
        return "No difference is shown, because the interval contains 1." if low <= 1 <= high else ""
    if found.exceeds(one):
        return f"All of it is above {found.at_most:g}."
    if high > found.at_most:
        return f"It contains {found.at_most:g}, so this does not fail; more --pairs make it narrower."
    return f"It is not above {found.at_most:g}."


def _values(found: GateTimes, one: StepRatio) -> dict[str, Any]:
    disturbed, rounds = one.disturbed
    return {
        "step": one.step,
        "device": one.pairs[0].device,
        "ratio": one.ratio,
        "interval": list(one.interval),
        "failed": found.exceeds(one),
        "pairs": list(one.by_pair),
        "rounds": rounds,
        "disturbed_rounds": disturbed,
    }
