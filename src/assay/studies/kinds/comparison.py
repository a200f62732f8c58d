"""A comparison: a baseline without any optimization, against stacks of optimizations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from assay.config.loading import validate
from assay.config.run import ResolvedRun, Run
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.hardware import Machine, detect
from assay.optimizations import catalogue, check, check_divided, resolve_run
from assay.records.study import BASELINE
from assay.studies.base import Study
from assay.studies.design import Treatment
from assay.studies.factors import NONE, OPTIMIZATIONS, Factor

_MOST_USUAL = 3
"""Most techniques of a comparison for which none was named."""


class ComparisonStudy(Study):
    """One factor, the stack of optimizations; its control has none."""

    kind: ClassVar[str] = "comparison"
    example: ClassVar[Mapping[str, str]] = {"treatments": "[sdpa_attention, sdpa_attention+bf16_mixed]"}

    treatments: tuple[str, ...] = ()
    """Stacks such as ``"sdpa_attention+bf16_mixed"``, one row each."""

    def factors(self) -> tuple[Factor, ...]:
        """Return the one factor."""
        return (Factor(OPTIMIZATIONS, (NONE, *self.treatments)),)

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield no optimization, then each treatment."""
        yield from ({OPTIMIZATIONS: level} for level in self.factors()[0].levels)

    def rows(self, base: Run) -> tuple[Treatment, ...]:
        """Return the baseline and every treatment. Raises `UsageError` as `treatments`."""
        found = treatments(base, self.treatments)
        control = Treatment(BASELINE, {OPTIMIZATIONS: NONE}, resolve_run(base))
        held = ((text, self.held(run, control.run)) for text, run in found.items())
        return (control, *(Treatment(text, {OPTIMIZATIONS: text}, run) for text, run in held))


def treatments(base: Run, texts: Sequence[str]) -> dict[str, ResolvedRun]:
    """The run of each ``NAME[:field=value,…][+NAME…]``, by that text.

    Raises `UsageError` if there is none, if two are the same run, or if one cannot be read. Raises it as well if the
    baseline lists optimizations.
    """
    if base.optimizations:
        listed = "+".join(map(str, base.optimizations))
        raise UsageError(
            f"the baseline of a comparison has every optimization off, and this configuration lists {listed}; "
            f"remove it there and compare it as --with {listed}"
        )
    if not texts:
        raise UsageError("there is nothing to compare with the baseline; name at least one treatment as --with NAME")
    found: dict[str, ResolvedRun] = {}
    for text in texts:
        label = "+".join(part.strip() for part in text.split("+"))
        run = resolve_run(validate({**base.model_dump(exclude_unset=True), "optimizations": label}))
        if not run.optimizations:
            raise UsageError("an empty --with names no treatment; write --with NAME, or NAME+NAME for a stack")
        same = next((other for other, known in found.items() if known == run), None)
        if same is not None:
            raise UsageError(
                f"the treatment {label!r} is listed twice, because {same!r} is the same run; leave one out"
            )
        found[label] = run
    return found


def usual(base: Run, tell: Progress, machine: Machine | None = None) -> tuple[str, ...]:
    """Return the first well-known techniques that a configuration can have on a machine, by default this one.

    `tell` receives their names. There are none if the baseline lists optimizations, which `treatments` refuses.
    """
    machine = machine or detect()
    known = (name for name, kind in catalogue().items() if kind.usual)
    able = () if base.optimizations else tuple(name for name in known if _applies(base, name, machine))[:_MOST_USUAL]
    if able:
        tell(f"No technique was named, so these are compared: {', '.join(able)}.", None)
    return able


def _applies(base: Run, name: str, machine: Machine) -> bool:
    run = validate({**base.model_dump(exclude_unset=True), "optimizations": name})
    try:
        check_divided(run)
        check(resolve_run(run), machine)
    except UsageError:
        return False
    return True
