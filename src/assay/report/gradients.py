"""The gradients of a trained run as text: a table by module, and sentences on agreement and scale."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assay.records.gradients import GradientProbe
from assay.report.kit.blocks import Block, Facts, Table, figure
from assay.report.kit.view import Shown, plain_record
from assay.units import format_count, format_steps

if TYPE_CHECKING:
    from assay.records.gradients import ModuleGradient, NoiseScale


class GradientsView(Shown[GradientProbe]):
    """The gradients of a trained run, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield the facts, a table of modules, and what the noise scale means."""
        found = self.found
        yield Facts.of(_facts(found))
        yield modules_table("module", found.modules)
        yield from found.notes
        if found.noise_scale is None:
            yield (
                "The noise hides the gradient, so there is no noise scale: the micro-batches agree too little. Give "
                "more --micro-batches, or larger ones."
            )
            return
        yield (
            "The noise scale is about the batch size from which larger batches help little (McCandlish et al. 2018). "
            "It grows while a model trains."
        )

    def values(self) -> Any:
        """Return the record for programs."""
        return plain_record(self.found)


def modules_table(title: str, modules: "Sequence[ModuleGradient]") -> Table:
    """Return a table with the scale of each module's gradient and weights."""
    columns = (title, "parameters", "gradient, RMS", "gradient, norm", "weights, RMS")
    return Table.of(columns, map(_row, modules), columns[1:])


def _facts(found: GradientProbe) -> Iterator[tuple[str, str]]:
    size = f"{found.micro_batches} micro-batches of {found.sequences} sequences"
    yield "run", f"{found.run}, after {format_steps(found.steps)}"
    yield "measured", f"{size} of {found.tokens_per_sequence} tokens, without dropout, nothing updated"
    yield "loss", figure(found.loss)
    yield "norm", f"{found.gradient_norm:.3g} of the mean gradient, {found.micro_batch_norm:.3g} of a micro-batch's"
    yield "cosine", f"{figure(found.mean_cosine, 3)} between two micro-batches"
    if found.noise_scale is not None:
        tokens = format_count(found.noise_scale.sequences * found.tokens_per_sequence)
        yield "noise scale", f"{_scale(found.noise_scale)}, {tokens} tokens"


def agreement_line(found: GradientProbe) -> str:
    """Return the agreement of micro-batches and their noise scale in one line."""
    told = "hidden by the noise" if found.noise_scale is None else _scale(found.noise_scale)
    compared = f"{found.micro_batches} micro-batches of {found.sequences} sequences, plain model"
    return f"cosine {figure(found.mean_cosine, 3)} between two of {compared}; noise scale {told}"


def _scale(found: "NoiseScale") -> str:
    error = "" if found.standard_error is None else f" ± {found.standard_error:.2g}"
    return f"{found.sequences:.3g}{error} sequences"


def _row(one: "ModuleGradient") -> tuple[str, ...]:
    scales = (one.gradient_rms, one.gradient_norm, one.weight_rms)
    return one.module, format_count(one.parameters), *(f"{value:.3g}" for value in scales)
