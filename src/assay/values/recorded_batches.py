"""Check of a run's batches: a slow reference determines every row of a step, and the recorded rows must equal it.

A prepared corpus: row i holds T tokens of the text that `texts` selects, and its targets are the tokens that follow.

Batches of a user's own: their function is called here as well, with the seed that the run states. Torch's generator is
at the first four bytes of the SHA-256 of the seed's digits, plus the step. A smaller batch has every n-th row.

A stream of documents: all rows of all steps, one after the other, are one text without gaps or repetitions.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.own_batches import OwnBatches
from assay.model.own_model import own_batches
from assay.reference.expected import Expected, Stream
from assay.values.read_rows import texts_of_step
from assay.values.recorded import Recorded

_MOST_TOKENS = 2_000_000
"""Largest number of tokens that are read to find a step's position in a stream; later steps need only be one text."""


def batch_failures(recorded: Recorded, expected: Expected, run: ResolvedRun, data: Prepared) -> list[str]:
    """Return sentences on batches that differ from those of the run's seed, or of its documents; empty if none do."""
    steps = [step.index for step in recorded.steps]
    found = [
        f"ranks with the same share of the batch had different rows in step {step}"
        for step in steps
        if _unlike(recorded, step)
    ]
    batches = {step: recorded.batch(step) for step in steps}
    own = None if run.own_rows is None else own_batches(run)
    if own is not None:
        for step, (inputs, targets) in batches.items():
            found += _of_own(step, inputs, targets, own, expected.batch_divisor)
        return found
    if not steps:
        return []
    if expected.stream is None:
        for step, (ids, targets) in batches.items():
            found += _of_corpus(step, ids, targets, run, data, expected.batch_divisor)
        return found
    return found + _of_stream(batches, recorded.first, expected.stream, run, data)


def _unlike(recorded: Recorded, step: int) -> bool:
    return recorded.differing_shares(step)


def _of_corpus(step: int, ids: Tensor, targets: Tensor, run: ResolvedRun, data: Prepared, divisor: int) -> list[str]:
    texts, length = texts_of_step(step, run, data, divisor), run.model.context_length
    if ids.shape != (len(texts), length) or targets.shape != ids.shape:
        return [f"the batch of step {step} has shape {list(ids.shape)} instead of {[len(texts), length]}"]
    wanted = torch.from_numpy(np.stack(texts))
    if torch.equal(ids.cpu(), wanted[:, :-1]) and torch.equal(targets.cpu(), wanted[:, 1:]):
        return []
    for row, text in enumerate(wanted):
        if not torch.equal(ids[row].cpu(), text[:-1]):
            return [f"row {row} of step {step} is not the text that seed {run.seed} selects"]
        if not torch.equal(targets[row].cpu(), text[1:]):
            return [f"the targets of row {row} in step {step} are not the tokens that follow its inputs"]
    return []


def _of_own(step: int, inputs: Tensor, targets: Tensor, own: OwnBatches, divisor: int) -> list[str]:
    seed, rows = own.run.seed, own.run.training.batch_size
    of_run = int(hashlib.sha256(str(seed).encode()).hexdigest()[:8], 16)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed((of_run + step) % 2**32)
        given = own.make(step, seed, rows)
    for kind, found, whole in zip(("inputs", "targets"), (inputs, targets), given, strict=True):
        wanted = [whole[row] for row in range(0, rows, divisor)]
        if (found.dtype, len(found)) != (whole.dtype, len(wanted)) or found.shape[1:] != whole.shape[1:]:
            shape = (
                f"{list(found.shape)} in {found.dtype} instead of {[len(wanted), *whole.shape[1:]]} in {whole.dtype}"
            )
            return [f"the {kind} of step {step} are {shape}"]
        for row, one in enumerate(wanted):
            if not torch.equal(found[row].cpu(), one):
                return [
                    f"the {kind} of row {row} in step {step} are not those that batches({step}, {seed}, {rows}) gives"
                ]
    return []


def _of_stream(
    batches: dict[int, tuple[Tensor, Tensor]], first: int, stream: Stream, run: ResolvedRun, data: Prepared
) -> list[str]:
    ids = torch.cat([rows.flatten() for rows, _ in batches.values()])
    targets = torch.cat([rows.flatten() for _, rows in batches.values()])
    if not torch.equal(targets[:-1], ids[1:]):
        return ["the rows of a stream are not consecutive text, or targets are not the tokens that follow"]
    before = first * run.training.batch_size * run.model.context_length
    if before > _MOST_TOKENS:
        return []
    if list(islice(_tokens(stream, run, data), before, before + len(ids))) != ids.tolist():
        return [f"step {first} of the stream does not contain the documents' tokens from number {before} on"]
    return []


def _tokens(stream: Stream, run: ResolvedRun, data: Prepared) -> Iterator[int]:
    from assay.data.documents import DatasetDocuments, Documents, FileDocuments

    read: Documents
    if stream.path is not None:
        read = FileDocuments(stream.path, run.data)
    else:
        read = DatasetDocuments(stream.dataset or "", stream.split, run.data.text_field)
    while True:
        for text in read(0):
            if text.strip():
                ended = text if text.endswith("\n") else text + "\n"
                for piece in data.tokenizer.encode_long(ended):
                    yield from piece.ids.tolist()
