"""One run as text: its ending, its results, its measured and predicted figures, and its proof."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.config.home import Home
from assay.report.gradients import agreement_line
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table, amount, figure, leaves, spell_value, stack_summary
from assay.report.kit.view import Shown, plain_record
from assay.report.run_answer import closing, headline, utilization
from assay.units import (
    format_count,
    format_flops,
    format_seconds,
    format_steps,
    with_factor,
    with_margin,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.records.evidence import Evidence
    from assay.records.prediction import Predicted
    from assay.records.run import RunResult

_MEMORY = {
    "tensors_peak_bytes": "tensors, requested from torch's allocator in one step",
    "reserved_peak_bytes": "reserved by torch's caching allocator",
    "process_peak_bytes": "process, anonymous resident memory in a settled step",
    "heap_peak_bytes": "heap, without memory maps",
    "device_peak_bytes": "device, used by all processes",
}


class RunView(Shown["RunResult"]):
    """One run, as a reader is shown it; its folder is in a home, by default that of the environment."""

    def __init__(self, found: "RunResult", home: Home | None = None, *, whole: bool = False) -> None:
        super().__init__(found)
        self._home, self._whole = home or Home(), whole

    def blocks(self) -> Iterator[Block]:
        """Yield a run's summary, or with `whole` all that is recorded of it."""
        from assay.store.run_folder import RunFolder

        result, folder = self.found, self._home.runs / self.found.run
        yield headline(result)
        yield Facts.of(lines(result))
        yield ""
        yield Table.of(("memory", "measured", "predicted"), _memory_rows(result), ("measured", "predicted"))
        if result.missing:
            yield Table.of(("not measured", "because"), result.missing.items())
        if result.ranks:
            yield from _by_rank(result)
        if self._whole:
            yield from _the_rest(result)
        saved = RunFolder(folder).newest_checkpoint() is not None
        yield Facts.of((("folder", str(folder)), *closing(result, saved=saved)))

    def values(self) -> Any:
        """Return the record for programs."""
        return plain_record(self.found)

    def frame(self) -> "pandas.DataFrame":
        """Return a row per optimizer step, indexed by `step`. Raises `UsageError` if the run was removed."""
        from assay.report.kit.curves import step_frame
        from assay.store.lookup import find

        return step_frame(find(self._home, self.found.run).events())

    def figure(self, name: str = "") -> "Figure | None":
        """Return the figure of training loss, validation loss and learning rate by step; None without a step."""
        from assay.report.comparison.wording import unit_of_loss
        from assay.report.kit.curves import losses

        return losses(self.frame(), unit_of_loss(self.found.config)) if self.found.steps else None


def _by_rank(result: "RunResult") -> Iterator[Block]:
    names = ("by rank", "tensors", "predicted", "process", "weights", "state", "payload", "predicted", "communicating")
    yield Table.of(names, _rank_rows(result), names[1:])
    if any(one.spent for one in result.ranks):
        figures = ("calls", "running", "waiting", "transfer")
        yield Table.of(("by rank", "collective", "axis", *figures), _spent_rows(result), figures)
    if any(one.idle for one in result.ranks):
        shares = ("idle", "simulated", "equal stages", "CPU time")
        yield Table.of(("pipeline", *shares, ""), _idle_rows(result), shares)


def lines(result: "RunResult") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of each line of a run's summary."""
    parameters = "" if result.parameters is None else f", {format_count(result.parameters)} parameters"
    data, model = result.config.data, result.config.model
    ours = f"{model.n_layer} layers, {model.n_head} heads, width {model.n_embd}"
    shape = f"{ours if model.own is None else model.own}, context {model.context_length}"
    corpus = f"{data.path or data.corpus} in {data.tokenizer} tokens"
    if result.config.own_rows is not None:
        shape, corpus = str(model.own), "batches of its own"
    yield "run", result.run
    yield "status", _status(result)
    yield "model", f"{shape}{parameters}; {corpus}"
    yield "with", stack_summary(result.config)
    spread = (
        "" if result.loss.loss_spread is None else f" (last tenth ± {figure(result.loss.loss_spread)} about its line)"
    )
    trained = f"{format_steps(result.steps)}, {format_count(result.tokens)} {result.config.counted}"
    yield "trained", f"{trained}, loss {figure(result.loss.train_loss)}{spread}"
    loss = result.loss
    if loss.val_loss is not None:
        more = f" (perplexity {figure(loss.val_perplexity, 2)}, {figure(loss.val_bits_per_byte)} bits per byte)"
        more = more if result.loss.val_perplexity is not None else ""
        name = "test" if result.config.data.evaluate_on == "test" else "validation"
        yield name, f"loss {figure(result.loss.val_loss)}{sample_error(result)}{more}"
    yield from _speed(result)
    if scale := result.loss.loss_scale:
        yield "loss scale", f"{scale:g} at the end, {result.loss.skipped_steps} updates skipped"
    if layers := result.loss.routers:
        balance = " ".join(figure(layer.balance, 3) for layer in layers)
        busiest = max(max(layer.tokens) * len(layer.tokens) / sum(layer.tokens) for layer in layers)
        dropped = max(layer.dropped or 0.0 for layer in layers)
        yield "routers", f"balance by layer {balance}; busiest {busiest:.2f} times an even share, {dropped:.1%} dropped"
    yield from _proven(result)
    if result.loss.gradient_probe is not None:
        yield "gradients", agreement_line(result.loss.gradient_probe)
    if result.loss.sample is not None:
        yield "text", repr(result.loss.sample.text)
    for note in result.notes:
        yield "note", note


def _status(result: "RunResult") -> str:
    """Return how a run ended, and first of all whether something of it was not proven."""
    unproven = result.unproven
    ended = result.status + (f": {result.reason}" if result.reason else "")
    return f"{ended}, NOT PROVEN: {unproven}" if unproven else ended


def _proven(result: "RunResult") -> Iterator[tuple[str, str]]:
    from assay.report.comparison.wording import value_check

    for evidence in result.proof.evidence:
        yield "evidence", proof(evidence)
    if result.proof.values is not None:
        yield "values", value_check(result.proof.values)


def sample_error(result: "RunResult") -> str:
    """Standard error of a validation loss and the size of its sample; empty in records that lack them."""
    seen, of, error = result.loss.val_targets, result.loss.val_split_targets, result.loss.val_standard_error
    what = f"held-out {result.config.counted}"
    if not seen or not of:
        return ""
    if seen == of:
        return f" on all {format_count(of)} {what}"
    return f"{'' if error is None else f' ± {error:.4f}'} on {format_count(seen)} of {format_count(of)} {what}"


def proof(evidence: "Evidence") -> str:
    """Format an item of evidence: whether the optimization took effect, and what was observed."""
    return f"{evidence.optimization}: {'proven' if evidence.verdict else 'NO EFFECT'}, {evidence.observed}"


def _speed(result: "RunResult") -> Iterator[tuple[str, str]]:
    step = result.speed.step_seconds
    if step is not None:
        ends = f"quartiles {format_seconds(step.lower)} and {format_seconds(step.upper)} of {step.count} steady steps"
        spread = ends if step.count > 1 else "one steady step"
        rate = result.speed.tokens_per_second
        speed = "" if rate is None else f", {format_count(rate)} {result.config.counted}/s"
        speed += "".join(f", {share}" for share in utilization(result))
        speed += (
            "" if result.speed.epoch_seconds is None else f", an epoch in {format_seconds(result.speed.epoch_seconds)}"
        )
        yield "step", f"{format_seconds(step.median)} ({spread}){speed}"
    if result.speed.data_wait_share is not None:
        yield "data wait", f"{result.speed.data_wait_share:.2%} of the time of steady steps"
    predicted = result.predicted
    if predicted is not None and predicted.step_flops is not None:
        seconds = "" if predicted.step_seconds is None else f"{_predicted_step(predicted)} and "
        yield "predicted", f"{seconds}{format_flops(predicted.step_flops)} per step"
    if predicted is not None and predicted.refused:
        yield "predicted", f"nothing: {predicted.refused}"
    if result.speed.phase_seconds:
        parts = " · ".join(
            f"{name} {format_seconds(spent)}" for name, spent in result.speed.phase_seconds.items() if spent
        )
        yield "time", f"{format_seconds(sum(result.speed.phase_seconds.values()))} = {parts}"


def _predicted_step(predicted: "Predicted") -> str:
    """Format the predicted step time with its margin, and with the load under which steps were timed."""
    seconds, margin = predicted.step_seconds or 0.0, predicted.step_seconds_margin
    if margin is None:
        return f"{with_factor(seconds, predicted.roofline_factor)} by a roofline"
    load = " (timed while other programs worked)" if predicted.under_load else ""
    return f"{with_margin(seconds, margin)}{load}"


def _memory_rows(result: "RunResult") -> Iterator[tuple[str, str, str]]:
    scratch = result.memory.library_scratch_bytes, getattr(result.predicted, "library_scratch_bytes", None)
    for name, meaning in _MEMORY.items():
        measured, predicted = getattr(result.memory, name), getattr(result.predicted, name, None)
        if measured is not None or predicted is not None:
            traced = ", traced" if predicted is not None and result.predicted and result.predicted.traced else ""
            yield meaning, amount(measured), f"{amount(predicted)}{traced}"
    if any(scratch):
        bound = UNKNOWN if scratch[1] is None else f"0 to {amount(scratch[1])}"
        yield "library scratch, in addition to the tensors", amount(scratch[0]), bound
    if result.memory.waiting_peak_bytes:
        yield "freed, waiting for another stream", amount(result.memory.waiting_peak_bytes), UNKNOWN
    instants = result.memory.tensors_peak_instant, getattr(result.predicted, "tensors_peak_instant", None)
    if any(instants):
        yield "instant of the tensors' peak", instants[0] or UNKNOWN, instants[1] or UNKNOWN
    if result.memory.saved_bytes or getattr(result.predicted, "saved_bytes", None):
        saved = sum(result.memory.saved_bytes.values()) if result.memory.saved_bytes else None
        yield "saved for backward", amount(saved), amount(getattr(result.predicted, "saved_bytes", None))
    if result.memory.allocations is not None:
        yield "allocations in one step", format_count(result.memory.allocations), UNKNOWN


def _rank_rows(result: "RunResult") -> Iterator[tuple[str, ...]]:
    """Yield a row per rank: memory, payload of a step, and the share of a step with communication running."""
    predicted = result.predicted.ranks if result.predicted else ()
    for one in result.ranks:
        said = predicted[one.rank] if predicted else None
        share = one.communication_share
        place = " ".join(f"{axis}={index}" for axis, index in one.place.items())
        yield (
            f"{one.rank}: {place}",
            amount(one.tensors_peak_bytes),
            amount(said.tensors_peak_bytes if said else None),
            amount(one.process_peak_bytes),
            amount(one.parameter_bytes),
            amount(one.optimizer_state_bytes),
            amount(one.sent_bytes),
            amount(said.sent_bytes if said else None),
            UNKNOWN if share is None else f"{share:.0%}",
        )


def _spent_rows(result: "RunResult") -> Iterator[tuple[str, ...]]:
    """Yield a row per collective of each rank: its seconds in a step, and how many of them it waited for late ranks."""
    for rank in result.ranks:
        for one in rank.spent:
            parts = (None, None) if one.wait_seconds is None else (one.wait_seconds, one.seconds - one.wait_seconds)
            said = (UNKNOWN if part is None else format_seconds(part) for part in (one.seconds, *parts))
            yield str(rank.rank), one.collective, one.axis, str(one.count), *said


def _idle_rows(result: "RunResult") -> Iterator[tuple[str, ...]]:
    """Yield a row per rank of a pipeline: measured idle share, simulated share, and the formula for equal stages."""
    predicted = result.predicted
    formula = predicted.bubble_share if predicted else None
    for one in result.ranks:
        if one.idle is not None:
            played = predicted.ranks[one.rank].idle_share if predicted and predicted.ranks else None
            shares = (one.idle.share, played, formula, one.idle.processor_share)
            yield (str(one.rank), *(UNKNOWN if share is None else f"{share:.1%}" for share in shares), one.idle.caveat)


def _the_rest(result: "RunResult") -> Iterator[Block]:
    phases = [
        (name, amount(one.process_peak_bytes), amount(one.anonymous_bytes), amount(one.file_bytes))
        for name, one in result.memory.phases.items()
    ]
    if phases:
        columns = ("by phase", "process peak", "anonymous", "files")
        yield Table.of(columns, phases, columns[1:])
    if result.loss.gradients:
        from assay.report.gradients import modules_table

        yield modules_table("gradients of one more step", result.loss.gradients)
    yield Table.of(("configuration", "value"), flat(result.config.model_dump(mode="json")).items())
    if result.provenance.environment is not None:
        yield Table.of(("environment", "value"), flat(result.provenance.environment.model_dump(mode="json")).items())


def flat(values: object) -> dict[str, str]:
    """Flatten nested values to ``key.key`` → text."""
    return {key: spell_value(value) for key, value in leaves(values).items()}
