"""The cost of a training as text: a sentence, then FLOPs by convention, hours, energy and money."""

from collections.abc import Iterator
from typing import Any

from assay.estimator.cost import TrainingCost
from assay.report.inference import describe_model
from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.report.predictions import (
    batch_words,
    count_of_tokens,
    fit_words,
    hours_words,
    money_words,
    span,
    training_words,
)
from assay.units import format_count, format_flops, format_seconds


class CostView(Shown[TrainingCost]):
    """The cost of a training, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield what the training takes in a sentence, its FLOPs by convention, and its hours, energy and money."""
        found = self.found
        yield _headline(found)
        rows = [("device", f"{found.devices} × {describe_model(found.device)}"), ("tokens", format_count(found.tokens))]
        rows += [(f"FLOPs, {name}", format_flops(count)) for name, count in found.flops.items()]
        rows += [] if found.fit is None else [("does it fit?", fit_words(found.fit))]
        rows += _at_pace(found) if found.training is not None else _at_mfu(found)
        if found.kilowatt_hours is not None:
            low, high = (f"{found.kilowatt_hours * one * 3600 / found.seconds:,.4g}" for one in found.hours)
            rows.append(("energy of the boards", f"{span(low, high)} kWh at their largest power"))
        yield Table.of(("cost of a training", ""), rows)
        yield (
            "Kaplan counts 6 FLOPs a weight without embeddings and attention; PaLM, all weights and attention; "
            "Chinchilla, every product. MFU is PaLM's."
        )

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        found, names = self.found, ("flops", "seconds", "device_hours", "kilowatt_hours", "money")
        asked = found.model_dump(mode="json", exclude={"model", "training", "batch", "fit"})
        further = {
            "training": None if found.training is None else found.training.to_dict(),
            "batch": None if found.batch is None else found.batch.to_dict(),
            "fit": None if found.fit is None else found.fit.to_dict(),
            "mfu_between": list(found.mfu_between),
        }
        return asked | further | {name: getattr(found, name) for name in names}


def _headline(found: TrainingCost) -> str:
    training = found.training
    unfit = found.fit is not None and found.fit.verdict == "does not fit"
    without = "A step does not fit its device; without that limit, "
    if training is None or found.batch is None:
        basis = "an assumed" if found.assumed else "the given"
        begins = f"{without}at" if unfit else "At"
        return f"{begins} {basis} {found.mfu:.0%} of the peak (MFU), {_taken(found)}."
    turned = f"with {found.stack}" if found.stack else "with nothing turned on"
    devices = f"{found.devices} × {found.device.name}"
    begins = f"{without}on" if unfit else "On"
    return f"{begins} {devices} {turned}, {batch_words(found.batch)} a step on each, {training_words(training)}."


def _taken(found: TrainingCost) -> str:
    cost = "" if found.money is None else f" and cost {found.money:,.0f}"
    take = "takes" if found.tokens == 1 else "take"
    return f"{count_of_tokens(found.tokens)} {take} {format_seconds(found.seconds)}{cost}"


def _at_pace(found: TrainingCost) -> list[tuple[str, str]]:
    training = found.training
    assert training is not None
    low, high = found.mfu_between
    several = "; devices wait for nothing, so several take longer" if found.devices > 1 else ""
    rows = [
        ("time", f"{hours_words(training)}, by the predicted step of this stack{several}"),
        ("MFU of the stack", f"{span(f'{low:.0%}', f'{high:.0%}')} of the 16-bit peak"),
        ("device hours", " to ".join(f"{one:,.4g}" for one in training.device_hours)),
    ]
    if training.price is not None:
        rows.append(("money", f"{money_words(training)}, at {training.price:g} for a device hour"))
    return rows


def _at_mfu(found: TrainingCost) -> list[tuple[str, str]]:
    basis = "assumed, because no step is predicted for this device" if found.assumed else "as given"
    rows = [
        ("time", f"{format_seconds(found.seconds)} at {found.mfu:.0%} of the peak (MFU), {basis}"),
        ("device hours", f"{found.device_hours:,.4g}"),
    ]
    if found.money is not None:
        rows.append(("money", f"{found.money:,.0f}, at {found.price:g} for a device hour"))
    return rows
