"""Checks that need no reference program: batches, replicas, masks, learning rates, options and gradient norms.

Each function gives sentences on what is wrong with a record; none if it is right.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.own_batches import OwnBatches
from assay.reference.expected import Expected, Stream
from assay.values.nearness import unit_roundoff
from assay.values.rate_rule import rate_fault
from assay.values.read_rows import texts_of_step
from assay.values.recorded import Recorded

_NORM_ERROR, _SUMMED_ERROR = 2e-4, 1e-2
"""Largest relative errors of a norm: of small tensors, and of long sums. Rounding of clipped gradients is added."""
_DEVIATIONS = 5
_SMALL = 2**12
"""Elements of a gradient, at most, that is summed together with others."""
_MOST_TOKENS = 2_000_000
"""Largest number of tokens that are read to find a step's position in a stream; later steps need only be one text."""


def plain_failures(
    recorded: Recorded, run: ResolvedRun, expected: Expected, data: Prepared, own: OwnBatches | None
) -> list[str]:
    """Return the sentences of all checks. `own` are batches of a user's own; None: they are those of the corpus."""
    return list(
        chain(
            _batches(recorded, expected, run, data, own),
            _replicas(recorded),
            _noises(recorded, run),
            _masks(recorded, run),
            _options(recorded, expected),
            _rates(recorded, run, expected),
            _norms(recorded, run),
        )
    )


def _batches(
    recorded: Recorded, expected: Expected, run: ResolvedRun, data: Prepared, own: OwnBatches | None
) -> list[str]:
    """Hold every row of a step against a slow reference, which determines them all.

    A prepared corpus: row i holds T tokens of the text that `texts_of_step` selects, and its targets are the tokens
    that follow. Batches of a user's own: their function is called here as well, with the seed that the run states.
    Torch's generator is at the first four bytes of the SHA-256 of the seed's digits, plus the step. A smaller batch has
    every n-th row. A stream of documents: all rows of all steps, one after the other, are one text without gaps or
    repetitions.
    """
    steps = [step.index for step in recorded.steps]
    found = [
        f"ranks with the same share of the batch had different rows in step {step}"
        for step in steps
        if recorded.differing_shares(step)
    ]
    batches = {step: recorded.batch(step) for step in steps}
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


def _replicas(recorded: Recorded) -> Iterator[str]:
    for kind in ("gradient", "weight"):
        for step in range(recorded.first, recorded.first + len(recorded.steps) + 1):
            for name in recorded.differing_replicas(kind, step)[:1]:
                yield f"the replicas of the {kind} of {name} differ in step {step}"
            for name, largest in recorded.tensors(f"{kind} padding", step).items():
                if float(largest) != 0.0:
                    yield f"rows of {name} that stand for no token are not zero in step {step} ({kind})"


def _noises(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Ranks of one place draw the same dropout masks; all others draw unlike ones."""
    for step in recorded.steps if run.model.dropout > 0 else ():
        for one, other, same in recorded.noise_pairs(step.index):
            if same is not (one.place == other.place):
                drawn = "the same dropout masks" if same else "different dropout masks"
                yield f"ranks {one.rank} and {other.rank} draw {drawn} in step {step.index}"
                return


def _masks(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Masks that were kept drop the share that the run asks for, up to five standard deviations and a kernel's own."""
    p = run.model.dropout
    for one in recorded.mask_counts():
        off = abs(one.zeros - one.due(p))
        if not one.elements or off > _DEVIATIONS * math.sqrt(one.elements * p * (1 - p)):
            share = one.zeros / one.elements if one.elements else 0.0
            yield f"dropout zeroed {share:.4f} of {one.elements} elements instead of {p:g} in step {one.step}"
            return


def _options(recorded: Recorded, expected: Expected) -> Iterator[str]:
    """Yield a sentence on a group whose betas, momentum or decay are not the rule's."""
    weights = recorded.tensors("weight", recorded.first)
    for step in recorded.steps:
        for name, options in step.groups.items():
            for option, wanted in expected.rule.options(name, weights[name]).items():
                if options.get(option, wanted) != wanted:
                    yield f"{option} of {name} is {options[option]} in step {step.index}; the update rule has {wanted}"
                    return


def _rates(recorded: Recorded, run: ResolvedRun, expected: Expected) -> Iterator[str]:
    for step in recorded.steps:
        own = {name: options["lr"] for name, options in step.groups.items() if "lr" in options}
        used = {step.rate, *(one / expected.rule.rate_factor(name) for name, one in own.items())}
        faults = (rate_fault(run.training, expected.rate_factor, step.index, one) for one in used)
        yield from filter(None, faults)


def _norms(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Compare the norm of each step's gradients at the optimizer with the reported norm, after clipping.

    A step without an update must have gradients that are not finite.
    """
    clip = run.training.gradient_clip
    for step in recorded.steps:
        gradients = list(recorded.tensors("gradient", step.index).values())
        if not step.updated:
            if math.isfinite(step.log_norm):
                yield f"step {step.index} made no update, although its gradients were finite"
            continue
        squares, fourth = _sums(gradients)
        found = squares**0.5
        norm = math.exp(step.log_norm)
        clipped = 0 < clip < norm
        wanted = clip * norm / (norm + 1e-6) if clipped else norm
        # A CPU rounds the factor of clipping to the gradients' dtype before it multiplies, and a GPU does not.
        also = norm * _rounded(wanted / norm, gradients) if clipped else wanted
        # On a CPU torch adds up the squares of a tensor in some 16 running sums of float32.
        summed = min(_SUMMED_ERROR, max(one.numel() for one in gradients) / 8 * unit_roundoff(torch.float32))
        allowed = (_NORM_ERROR + summed + 3 * fourth**0.5 / max(squares, 1e-300)) * wanted
        if min(abs(found - wanted), abs(found - also)) > allowed:
            yield (
                f"the optimizer receives gradients of norm {found:.6g} in step {step.index}, and "
                f"{wanted:.6g} follows from the reported norm"
            )


def _sums(gradients: list[Tensor]) -> tuple[float, float]:
    """Return the sum of all squares of gradients, and the variance of that sum if each element is rounded.

    Clipped gradients are rounded, and independent errors of the elements add up.
    """
    total = variance = 0.0
    for one in _in_few(gradients):
        squares = one.double().square()
        total += float(squares.sum())
        variance += unit_roundoff(one.dtype) ** 2 * float(torch.dot(squares.flatten(), squares.flatten()))
    return total, variance


def _in_few(tensors: list[Tensor]) -> Iterator[Tensor]:
    """Yield all elements in fewer tensors: small ones of one dtype are joined, as operators cost more than they do."""
    small: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for one in tensors:
        if one.numel() > _SMALL:
            yield one
        else:
            small[one.dtype].append(one.flatten())
    yield from map(torch.cat, small.values())


def _rounded(factor: float, gradients: list[Tensor]) -> float:
    """Return a factor as gradients of one dtype are multiplied by it; unchanged if they have several."""
    kinds = {one.dtype for one in gradients}
    return float(torch.tensor(factor, dtype=torch.float64).to(kinds.pop())) if len(kinds) == 1 else factor
