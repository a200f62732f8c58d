"""The answer of one run: its sentence, and its last lines, which say what came out, against what, and what to run."""

from collections.abc import Iterator
from math import log
from typing import TYPE_CHECKING

from assay.report.kit.blocks import arguments, figure, stack
from assay.units import format_bytes, format_count, format_percent, format_seconds, format_steps

if TYPE_CHECKING:
    from assay.records.run import RunResult

_ENDED = {
    "done": "It trained",
    "running": "It still trains",
    "budget_reached": "It trained until its budget ended",
    "out_of_memory": "It ran out of memory",
    "no_effect": "Do not use it: an optimization took no effect",
    "wrong_values": "Do not use it: its values are wrong",
}
"""Begin of the sentence, by the status of a run; other endings have their status there."""


def headline(result: "RunResult") -> str:
    """Return the answer in one sentence: how the run ended, its loss and its pace, and whether it is proven."""
    status = result.status.value
    said = _ENDED.get(status, f"It ended early ({status.replace('_', ' ')})")
    if not result.status.finished:
        return f"{said}."
    loss, kind = (
        (result.loss.val_loss, "validation")
        if result.loss.val_loss is not None
        else (result.loss.train_loss, "training")
    )
    reached = "" if loss is None else f" to a {kind} loss of {loss:.4g}"
    pace = (
        "" if result.speed.step_seconds is None else f", at {format_seconds(result.speed.step_seconds.median)} a step"
    )
    unproven = result.unproven
    proven = (
        f"; {unproven}, so it is not proven"
        if unproven
        else "; each optimization is proven" * bool(result.proof.evidence)
    )
    return f"{said}{reached}{pace}{proven}."


def closing(result: "RunResult", *, saved: bool) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the last lines. `saved` is true if the run has a checkpoint."""
    ending = "" if result.status == "done" else result.status.value.replace("_", " ")
    unproven = f"not proven, {said}" if (said := result.unproven) else ""
    yield (
        "result",
        "; ".join(filter(None, (unproven, ending, _loss(result), _pace(result), _memory(result)))) or "nothing",
    )
    compared = "; ".join(filter(None, (_guess(result), _predicted(result))))
    if compared:
        yield "against", compared
    yield from (("next", hint) for hint in _hints(result, saved))


def utilization(result: "RunResult") -> list[str]:
    """Return the MFU of the median step, and its HFU if that differs; empty if the peak of the device is unknown."""
    if result.predicted is None or result.speed.step_seconds is None:
        return []
    shares = result.predicted.utilization(result.speed.step_seconds.median)
    told = {name: f"{share:.1%}" for name, share in shares.items()}
    return [f"{name} {share}" for name, share in told.items() if name == "MFU" or share != told.get("MFU")]


def _loss(result: "RunResult") -> str:
    if result.loss.val_loss is not None:
        return f"validation loss {figure(result.loss.val_loss)} after {format_steps(result.steps)}"
    return (
        ""
        if result.loss.train_loss is None
        else f"training loss {figure(result.loss.train_loss)} after {format_steps(result.steps)}"
    )


def _pace(result: "RunResult") -> str:
    if result.speed.step_seconds is None:
        return ""
    told = [f"{format_seconds(result.speed.step_seconds.median)} a step"]
    told += (
        []
        if result.speed.tokens_per_second is None
        else [f"{format_count(result.speed.tokens_per_second)} {result.config.counted}/s"]
    )
    return ", ".join([*told, *utilization(result), *waits(result)])


def waits(result: "RunResult") -> list[str]:
    """Return whether the steps of a GPU wait for the host or for the device; empty if it is not known."""
    from assay.records.timing import host_share
    from assay.report.comparison.wording import waits_for

    return waits_for(host_share(result.speed.blocks))


def _memory(result: "RunResult") -> str:
    peak = result.memory.tensors_peak_bytes
    return "" if peak is None else f"peak of tensors {format_bytes(peak)}"


def _guess(result: "RunResult") -> str:
    """Return the loss of a uniform guess among all tokens, ln V, if the run has a loss and trains on text."""
    size = result.config.model.vocab_size
    told = size and _loss(result) and result.config.own_rows is None
    return f"a uniform guess has a loss of {log(size):.4f}" if size and told else ""


def _predicted(result: "RunResult") -> str:
    """Return the predicted step and peak, with the measured ones relative to them."""
    said, told = result.predicted, []
    if said is not None and said.step_seconds and result.speed.step_seconds is not None:
        change = format_percent(result.speed.step_seconds.median / said.step_seconds - 1)
        told.append(f"{format_seconds(said.step_seconds)} a step (measured {change})")
    if said is not None and said.tensors_peak_bytes and result.memory.tensors_peak_bytes is not None:
        change = format_percent(result.memory.tensors_peak_bytes / said.tensors_peak_bytes - 1)
        peak = "a traced peak" if said.traced else "a peak"
        told.append(f"{peak} of {format_bytes(said.tensors_peak_bytes)} (measured {change})")
    return f"predicted {', '.join(told)}" if told else ""


def _hints(result: "RunResult", saved: bool) -> Iterator[str]:
    from assay.errors import START_AGAIN
    from assay.records.status import Status

    # A fault that ends a run before its first step is one of the configuration or its files, and would end it again.
    faulty = result.status in {Status.FAILED, Status.UNAVAILABLE} and not result.steps and not saved
    if START_AGAIN in (result.reason or "") or faulty:
        written = arguments(result.config, result.provenance.preset)
        again = "PRESET|FILE" if written is None else f"{written} {stack(result.config)}".rstrip()
        why = "once the fault is corrected" if faulty else "because this one cannot go on"
        yield f"assay train {again}    starts a new run, {why}"
    elif result.status == "budget_reached":
        yield f"assay train --resume {result.run} KEY=VALUE    continues with more training.tokens or training.seconds"
    elif result.status.resumable:
        how = "continues from the newest checkpoint" if saved else "starts again, because nothing was saved"
        yield f"assay train --resume {result.run}    {how}"
    elif result.status == "done":
        if result.config.model.own is None:
            yield f"assay sample {result.run} --prompt TEXT    continues a text"
        yield from _compared(result)


def _compared(result: "RunResult") -> Iterator[str]:
    """Yield the comparison that tells what the stack of a run changes, or which stacks would help."""
    written = arguments(result.config, result.provenance.preset)
    if written is None:
        return
    if result.config.optimizations:
        yield f"assay compare {written} {stack(result.config)}    measures what the stack changes"
    else:
        yield f"assay recommend {written} {_place(result)}"


def _place(result: "RunResult") -> str:
    """Return the memory and the machine for which a recommendation is asked: those of a run on a processor."""
    here = result.provenance.environment
    if here is None or here.device != "cpu":
        return "--device NAME    ranks what to turn on"
    return f"--memory {max(1, here.memory_bytes // 2**30)}GiB --calibrate 90    times what to turn on"
