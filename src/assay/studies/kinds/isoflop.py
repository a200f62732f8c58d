"""Sizes of a model at several budgets of FLOPs, for a law of loss, and one run of ten times the compute to test it.

At each budget several sizes train on as many tokens as they can pay for. Small ones run out of weights, and large ones
out of tokens. So the losses of a budget are a parabola in log N (Hoffmann et al. 2022, approach 2). All runs together
determine L(N, D). The held-out run spends at least ten times the largest budget. It is no part of the fit, and the law
has to predict it.

The learning rate follows a rule, and the rule is tested. At one budget, the smallest and the largest size also train at
half and at twice the rate. The held-out run is the longest, so it starts first and the others run beside it. It trains
at the first seed only. Further seeds are for the fitted runs, whose losses scatter by about a percent.

With `branches`, the fitted runs of a width are decay branches of the longest one. The control's second run trains all
of its steps itself. So every such study shows whether a branch is the run that never branched. Runs at other rates
share no first steps, and the held-out run neither.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from assay.config.base import Setting
from assay.config.run import ResolvedRun, Run, TrainingConfig
from assay.errors import UsageError
from assay.records.study import AGAIN, BASELINE, Cell, CellBranch
from assay.studies.base import Study
from assay.studies.design import Treatment
from assay.studies.factors import Factor
from assay.studies.isoflop_sizes import Count, check_base, run_at_width, run_of_size, steps_for, warmup_steps
from assay.training.learning_rate import decay_start

SCHEDULE = "wsd"


@dataclass(frozen=True)
class SharedSteps:
    """Runs of one size at several lengths, whose first steps are the same."""

    base: TrainingConfig
    lengths: tuple[int, ...]
    """Steps of each run."""

    @property
    def middle(self) -> float:
        """Steps for which the common learning rate is made: the geometric mean."""
        return float(math.prod(self.lengths) ** (1 / len(self.lengths)))

    @property
    def warmup(self) -> int:
        """Steps of the common warm-up."""
        return warmup_steps(self.base, min(self.lengths))

    def branch_step(self, steps: int) -> int:
        """Return the steps that a run of this length shares with the longest; 0 if it is the longest itself."""
        if steps >= max(self.lengths):
            return 0
        changes = {"schedule": SCHEDULE, "warmup_steps": self.warmup, "steps": steps}
        return decay_start(self.base.model_copy(update=changes))

    def settings(self, steps: int, *, whole: bool) -> dict[str, object]:
        """Return the settings of a run of this length; the longest keeps checkpoints, unless all train as a whole."""
        trunk = steps == max(self.lengths) and not whole
        kept = sorted({self.branch_step(one) for one in self.lengths} - {0}) if trunk else []
        return {
            "training.schedule": SCHEDULE,
            "training.warmup_steps": self.warmup,
            "training.keep_steps": kept,
        }


BUDGET, WIDTH, RATE, COUNT = "budget", "width", "rate", "count"
"""Factors: the FLOPs of a run as the file writes them, the width, the factor of the learning rate, how N is counted."""
_KEYS = (BUDGET, WIDTH, RATE, COUNT)
AS_RULED = "1"
RATES: Mapping[str, float] = {AS_RULED: 1.0, "1/2": 0.5, "2": 2.0}
"""Factors of the learning rate by which the rule is tested."""
WIDTH_EXPONENT, STEPS_EXPONENT = -0.6, -0.35
"""Exponents of the best learning rate, as measured on small models (docs/decisions/0029)."""
LEAST_STEPS = 500
"""Shorter runs are still in the noise of their first steps, and far from any law."""
HELD_OUT_TIMES = 10.0
"""The held-out run spends at least so many times the FLOPs of every fitted run."""


_ON_BRANCHES = (
    "The runs of a width are decay branches of the longest one at each seed: they share its first steps, and "
    "the learning rate of the geometric mean of their steps. The control's second run trains all of its steps itself."
)


class HeldOutRun(Setting):
    """The run that the law has to predict."""

    flops: Annotated[float, Field(strict=False, gt=0, allow_inf_nan=False)]
    width: int


class Isoflop(Study):
    """Sizes of the base's model at several budgets of FLOPs, and a larger run held out. It measures losses only."""

    kind: ClassVar[str] = "isoflop"
    losses_only: ClassVar[bool] = True
    example: ClassVar[Mapping[str, str]] = {
        "runs": "\n  3e9: [16, 32]\n  1e10: [16, 32, 48]",
        "held_out": "{flops: 1e11, width: 64}",
        "check_rate_at": "3e9",
    }

    seeds: int = 1
    """Number of seeds of every row but the held-out one."""
    runs: dict[str, tuple[int, ...]] = Field(min_length=1)
    """Widths that train at each budget of FLOPs, such as ``{1e12: [32, 48, 64]}``."""
    held_out: HeldOutRun
    """The run that is not fitted: its flops, at least ten times every budget, and its width."""
    count: Count = "total"
    """N counts every weight (total), or all but embeddings (non_embedding); FLOPs are 6·N·D."""
    width_exponent: float = WIDTH_EXPONENT
    """The learning rate of a run is the base's × (width / base's width)^width_exponent × the factor of its steps."""
    steps_exponent: float = STEPS_EXPONENT
    """The factor of a run's steps is (steps / base's steps)^steps_exponent."""
    check_rate_at: Annotated[str, WithJsonSchema({"type": ["string", "number"]}, "validation")] | None = None
    """Budget at which the smallest and the largest width also train at half and at twice the rate."""
    branches: bool = False
    """The runs of a width are decay branches of the longest one (training.schedule=wsd), in place of whole runs."""
    step_seconds: dict[int, Annotated[float, Field(strict=False, gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Predicted seconds of a step of each width, by which the answer says what branches were to save."""

    @field_validator("runs", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        for key in value:
            _flops(key)
        return {str(key): tuple(widths) if isinstance(widths, list) else widths for key, widths in value.items()}

    @field_validator("check_rate_at", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return None if value is None else str(value)

    @model_validator(mode="after")
    def _is_possible(self) -> "Isoflop":
        most = max(map(_flops, self.runs))
        if not self.held_out.flops >= HELD_OUT_TIMES * most * (1 - 1e-9):
            raise ValueError(
                f"held_out has {self.held_out.flops:.4g} FLOPs; it needs at least ten times the largest budget, "
                f"{HELD_OUT_TIMES * most:.4g}"
            )
        if self.check_rate_at is not None and self.check_rate_at not in self.runs:
            raise ValueError(f"check_rate_at is {self.check_rate_at}, which is no budget of runs")
        if self.constant is not None:
            raise ValueError("constant is not possible here, because budgets decide the steps; leave it out")
        if not all(widths and len(set(widths)) == len(widths) for widths in self.runs.values()):
            raise ValueError("each budget of runs needs a list of widths, each of them once")
        return self

    def factors(self) -> tuple[Factor, ...]:
        """Return budgets, widths and factors of the rate, in the order of the rows."""
        rows = list(self.combinations())
        return tuple(Factor(key, tuple(dict.fromkeys(row[key] for row in rows))) for key in _KEYS)

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the cheapest row as the control, the held-out run, the fitted rows from the longest, the rates."""
        fitted = [
            self._levels(budget, width)
            for budget in sorted(self.runs, key=_flops)
            for width in sorted(self.runs[budget])
        ]
        yield fitted[0]
        yield self._levels(f"{self.held_out.flops:g}".replace("e+", "e"), self.held_out.width)
        yield from reversed(fitted[1:])
        if self.check_rate_at is not None:
            widths = self.runs[self.check_rate_at]
            for width in dict.fromkeys((max(widths), min(widths))):
                for rate in (one for one in RATES if one != AS_RULED):
                    yield self._levels(self.check_rate_at, width, rate)

    def label(self, levels: Mapping[str, str]) -> str:
        """Return the budget and the width, and the factor of the rate if there is one."""
        rate = "" if levels[RATE] == AS_RULED else f", {levels[RATE]} × rate"
        return f"{levels[BUDGET]} FLOPs, width {levels[WIDTH]}{rate}"

    def row(
        self, base: Run, levels: Mapping[str, str], factors: Mapping[str, Factor], earlier: Sequence[Treatment]
    ) -> Treatment:
        """Return the run of a width that spends a budget. Raises `UsageError` if it cannot."""
        check_base(base)
        width = int(levels[WIDTH])
        size = run_at_width(base, width)
        steps = self.steps(size, levels[BUDGET])
        if steps < 1:
            raise UsageError(f"{levels[BUDGET]} FLOPs are less than one step of the width {width}; give more")
        shared, whole = self.shared(size, levels[BUDGET]), levels[RATE] != AS_RULED
        of_width = (width / base.model.n_embd) ** self.width_exponent
        rate = RATES[levels[RATE]] * of_width * (shared.middle / base.training.steps) ** self.steps_exponent
        run = run_of_size(size, base, steps, rate, shared.settings(steps, whole=whole) if self.branches else {})
        return Treatment(self.label(levels) if earlier else BASELINE, levels, run)

    def cells(self, base: Run) -> tuple[Cell, ...]:
        """Return the cells of every row at each seed; the held-out run has the first seed only."""
        every = super().cells(base)
        found = tuple(
            one for one in every if one.seed == self.seeds_from(base.seed)[0] or one.levels[BUDGET] in self.runs
        )
        sizes = {width: run_at_width(base, int(width)) for width in {one.levels[WIDTH] for one in found}}
        trunks = {(one.levels[WIDTH], one.group): one.name for one in found if one.run.training.keep_steps}
        steps = (
            0 if one.treatment == AGAIN else self.branch_step(sizes[one.levels[WIDTH]], one.levels) for one in found
        )
        return tuple(
            one if not step else self._branched(one, trunks[one.levels[WIDTH], one.group], step)
            for one, step in zip(found, steps, strict=True)
        )

    def _branched(self, cell: Cell, trunk: str, step: int) -> Cell:
        """Return a cell that branches from a trunk."""
        each = self.step_seconds.get(int(cell.levels[WIDTH]))
        branch = CellBranch(cell=trunk, step=step, seconds=None if each is None else step * each)
        return cell.model_copy(update={"branch": branch})

    def shared(self, size: ResolvedRun, budget: str) -> SharedSteps:
        """Return the lengths at which a size trains at the rates that it has at a budget: with branches, several."""
        among = self.runs if self.branches and budget in self.runs else {budget: (size.model.n_embd,)}
        budgets = (one for one, widths in among.items() if size.model.n_embd in widths)
        return SharedSteps(size.training, tuple(self.steps(size, one) for one in budgets))

    def branch_step(self, size: ResolvedRun, levels: Mapping[str, str]) -> int:
        """Return the steps of a row that its trunk has done; 0 if it trains all of them itself."""
        if levels[RATE] != AS_RULED:
            return 0
        return self.shared(size, levels[BUDGET]).branch_step(self.steps(size, levels[BUDGET]))

    def steps(self, size: ResolvedRun, budget: str) -> int:
        """Return the steps of a size: a fitted run spends at most its budget, and the held-out run at least its own."""
        exact = steps_for(size, _flops(budget), self.count)
        return int(exact * (1 + 1e-9)) if budget in self.runs else math.ceil(exact * (1 - 1e-9))

    def notes(self) -> tuple[str, ...]:
        """Return sentences on the fit and its test, and on branches."""
        fitted = sum(map(len, self.runs.values()))
        seeds = "" if self.seeds == 1 else f", each with {self.seeds} seeds"
        times = self.held_out.flops / max(map(_flops, self.runs))
        return (
            f"{fitted} runs at {len(self.runs)} budgets are fitted{seeds}. The law is tested on one run of {times:.3g} "
            f"times the largest budget. N is counted as {self.count.replace('_', '-')}, and FLOPs as 6·N·D.",
            *((_ON_BRANCHES,) if self.branches else ()),
        )

    def _levels(self, budget: str, width: int, rate: str = AS_RULED) -> Mapping[str, str]:
        return dict(zip(_KEYS, (budget, str(width), rate, self.count), strict=True))


def _flops(text: Any) -> float:
    """Return a budget as a number. Raises `ValueError` if it is none."""
    try:
        found = float(text)
    except (TypeError, ValueError):
        raise ValueError(f"runs has the budget {text!r}; write FLOPs such as 1e12") from None
    if not 0 < found < float("inf"):
        raise ValueError(f"runs has the budget {text!r}; FLOPs are positive")
    return found
