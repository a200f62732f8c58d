"""The end of a run's record: memory, the documents it read, a text of its model, and the agreement of gradients.

The text is the beginning of what `assay sample RUN` writes from the same checkpoint. It is written when all that is
measured and proven is recorded, from the weights on disk. The draws come from a generator of their own, so nothing else
of the run depends on them.
"""

from collections.abc import Callable, Iterable
from itertools import count

import numpy as np
import torch

from assay.config.home import Home
from assay.config.sampling import PROMPT, SEED, TEMPERATURE, TOKENS
from assay.data import Tokenizer
from assay.data.streaming import DocumentBatches
from assay.errors import UsageError, first_line
from assay.instruments.gradient_statistics import agreement
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass, steps_of_the_pass
from assay.model import GPT
from assay.model.generate import generate, pieces
from assay.parallel.process_rank import Ranks
from assay.records.prediction import Memory
from assay.records.run import SampledText
from assay.step.graphs import StepGraphs
from assay.store.run_folder import RunFolder
from assay.store.trained_model import find_trained
from assay.training.loop import Loop
from assay.training.stops import Interrupted, Unread, is_out_of_memory
from assay.worker.phases import Phases
from assay.worker.processes.channel import Channel
from assay.worker.result import RunFindings

LONGEST = 200
"""Most characters of the text."""


def sample(model: GPT, tokenizer: Tokenizer) -> SampledText:
    """Continue a line break by at most 200 characters, on the CPU.

    Raises `UsageError` if the model's outputs are not finite.
    """
    given = tokenizer.encode(PROMPT).tolist()
    drawn = generate(model, given, TOKENS, TEMPERATURE, seed=SEED)
    text = pieces(lambda ids: tokenizer.decode(np.asarray(ids, dtype=np.int64)), given, drawn)
    return SampledText(prompt=PROMPT, text=_beginning(text), temperature=TEMPERATURE, seed=SEED)


def _beginning(text: Iterable[str]) -> str:
    """Take pieces until there are enough characters; later ones are never drawn."""
    found = ""
    for piece in text:
        found += piece
        if len(found) >= LONGEST:
            break
    return found[:LONGEST]


def count_tensors(phases: Phases, device: torch.device) -> None:
    """Read a CUDA device's peak counter at the end of every phase; a CPU's allocator has no such counter."""
    if device.type != "cuda":
        return

    def peak() -> int:
        highest = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return highest

    phases.tensors_peak = peak


def measure_memory(loop: Loop, findings: RunFindings, tell: Callable[[int, int], None], *, heap: bool) -> Memory:
    """Measure one more step, which is discarded. If memory or data run out, add a note, because the run itself is done.

    The heap is counted if `heap` says so.

    A step precedes it on several ranks, because an evaluation may leave gathered weights, which only the next backward
    frees. With a loss scale, steps precede it until one makes its update: a skipped update leaves no optimizer state.
    `tell` receives the number of measured steps so far, and their total.
    """
    device, graphs, ranks = loop.step.program.device, loop.step.program.witness(StepGraphs), loop.ranks.world
    try:
        if ranks > 1 or loop.step.program.precision.loss_scale.skips:
            loop.discard_until_updated()
        idle = 0 if graphs is None else graphs.idle_bytes()
        done, total = count(1), steps_of_the_pass(device, ranks, heap=heap)

        def one_step() -> None:
            loop.discard_step()
            tell(next(done), total)

        measured = memory_pass(device, one_step, live_tensor_bytes(device), ranks, idle, heap=heap)
    except Unread as stop:
        findings.notes.append(f"the memory pass had no step to measure, so its figures are missing: {stop}")
        return Memory()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        findings.notes.append("the memory pass itself ran out of memory, so its figures are missing")
        return Memory()
    return Memory.model_validate(vars(measured))


def documents_seen(loop: Loop) -> int | None:
    """Return the documents of which training has read a token.

    None if the text is no stream, or if worker processes read it: only they know.
    """
    source = _stream(loop)
    return None if source is None else source.begun(loop.position.step)


def documents_left_out(loop: Loop) -> list[str]:
    """Return a sentence for each reason why parts of a stream are not read; empty if the text is no stream."""
    source = _stream(loop)
    return [] if source is None else list(map(str, source.remarks()))


def _stream(loop: Loop) -> DocumentBatches | None:
    source = loop.step.program.stateful.get("documents")
    return source if isinstance(source, DocumentBatches) else None


MOST_PARAMETERS = 20_000_000
"""Size up to which a text takes about a second on one core."""


def add_sample(findings: RunFindings, folder: RunFolder) -> None:
    """Add a text to the findings, unless the model is a user's own or has more than 20 million parameters.

    A text that cannot be had is a note, because the run itself is done.
    """
    if findings.spec.config.model.own is not None or (findings.parameters or 0) > MOST_PARAMETERS:
        return
    try:
        found = find_trained(Home(folder.path.parent.parent), folder.id)
        findings.sample = sample(found.model(), found.tokenizer())
    except (UsageError, RuntimeError, MemoryError) as error:
        findings.notes.append(f"no text was sampled: {first_line(error)}")


_STOPPED = "interrupted while gradients were compared, after all steps; its last checkpoint is kept"


def add_gradient_probe(findings: RunFindings, folder: RunFolder, ranks: Ranks, channel: Channel) -> None:
    """Add the comparison of as many micro-batches as the run asks for.

    One that cannot be had is a note, because the run itself is done. Raises `Interrupted`, on every rank.
    """

    def tell(done: int, total: int) -> None:
        findings.phases.progressed(done, total)
        if channel.interrupted:
            raise Interrupted(_STOPPED)

    stopped = ""
    if ranks.rank == 0:
        try:
            _add(findings, folder, tell)
        except Interrupted as stop:
            stopped = str(stop)
        except (UsageError, RuntimeError, MemoryError) as error:
            findings.notes.append(f"gradients of micro-batches were not compared: {first_line(error)}")
    if any(ranks.gather(stopped)):
        raise Interrupted(_STOPPED)


def _add(findings: RunFindings, folder: RunFolder, tell: Callable[[int, int], None]) -> None:
    run = findings.spec.config
    found = find_trained(Home(folder.path.parent.parent), folder.id)
    findings.gradient_probe = agreement(
        found.model(),
        found.data_folder,
        run=found.run,
        seed=run.seed,
        steps=found.steps,
        micro_batches=run.training.gradient_probe,
        sequences=run.training.batch_size,
        tell=tell,
    )
