"""Curves of one run and of one estimate, as a table and as figures: losses by step, and live memory by instant."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from assay.report.kit.drawing import PAPER, SOFT, canvas, marker, series, smooth, with_print_colours

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.cost.simulation.allocator import Moment
    from assay.records.events import LogEvent

_WIDTH = 9.6


def step_frame(events: "Iterable[LogEvent]") -> "pandas.DataFrame":
    """Return a row per optimizer step, indexed by `step`, with `val_loss` where an evaluation followed a step."""
    import pandas

    from assay.store import history

    events = list(events)
    steps = [step.model_dump(exclude={"event"}) for step in history.steps(events)]
    evaluated = {one.step - 1: one.loss for one in history.evaluations(events)}
    frame = pandas.DataFrame(steps, columns=None if steps else ["step", "loss", "learning_rate"]).set_index("step")
    return frame.assign(val_loss=frame.index.map(evaluated).astype(float)) if evaluated else frame


def losses(steps: "pandas.DataFrame", unit: str) -> "Figure | None":
    """Draw the training loss, the validation losses as points, and the learning rate by step; None without a step.

    `unit` is that of the losses.
    """
    if steps.empty:
        return None
    with canvas(_WIDTH, 3.4, 2) as (figure, (left, right)):
        left.plot(steps.index, steps["loss"], color=series(0), alpha=0.35, linewidth=0.8)
        known = steps["loss"].dropna()
        alone = marker(1) if len(known) < 2 else ""
        left.plot(*smooth(steps["loss"].tolist()), color=series(1), marker=alone)
        if "val_loss" in steps:
            seen = steps["val_loss"].dropna()
            left.plot(seen.index, seen, color=series(2), marker=marker(2), markeredgecolor=PAPER, linestyle="none")
        left.set(title="training loss, and smoothed; validation as points", ylabel=unit)
        if "learning_rate" in steps:
            right.plot(steps.index, steps["learning_rate"], color=series(1))
        right.set(title="learning rate")
        for axis in (left, right):
            axis.set_xlabel("optimizer step")
            axis.xaxis.get_major_locator().set_params(integer=True)
        return with_print_colours(figure)


def stage_memory(stages: "pandas.DataFrame") -> "Figure":
    """Draw the planned bytes of a rank by pipeline stage, divided by kind; a column of the frame is a kind."""
    with canvas(_WIDTH, 1.6 + 0.3 * len(stages)) as (figure, (axis,)):
        start = [0.0] * len(stages)
        for number, kind in enumerate(stages.columns):
            widths = (stages[kind] / 2**30).tolist()
            axis.barh(range(len(stages)), widths, left=start, color=series(number + 1), label=kind)
            start = [before + width for before, width in zip(start, widths, strict=True)]
        axis.set_yticks(range(len(stages)), [f"stage {stage}" for stage in stages.index])
        axis.set(title="planned memory of a rank, by pipeline stage", xlabel="GiB")
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=len(stages.columns), frameon=False)
        return with_print_colours(figure)


def memory(instants: "Sequence[Moment]") -> "Figure":
    """Draw the live bytes of a step at the highest instant of each part, in order; the peak is marked."""
    heights = [moment.nbytes / 2**20 for moment in instants]
    top = max(range(len(heights)), key=heights.__getitem__)
    with canvas(_WIDTH, 3.4) as (figure, (axis,)):
        axis.fill_between(range(len(heights)), heights, step="mid", color=series(1), alpha=0.25, linewidth=0)
        axis.step(range(len(heights)), heights, where="mid", color=series(1))
        axis.plot(top, heights[top], color=series(2), marker=marker(2), markeredgecolor=PAPER)
        axis.annotate(f"{instants[top]}: {heights[top]:,.1f} MiB", (top, heights[top]), (0, 8),
                      textcoords="offset points", ha="center", fontsize=8, color=SOFT)  # fmt: skip
        axis.set_title("predicted live tensors of one step")
        axis.set(xlabel="highest instant of each part, in order", ylabel="MiB")
        axis.set_ylim(0, 1.15 * heights[top])
        return with_print_colours(figure)
