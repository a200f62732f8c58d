"""Sentences on measured memory and communication that are not what the ledger predicted.

A technique may pass its proof and still not save what it promises: its tensors live too long, or it communicates too
often. The ledger of a rare stack may be wrong, too, so such a difference is a warning and not a failure. A traced
prediction follows the very program that runs, so a difference from it has other causes.

On a GPU the blocks of both peaks are known, and those that differ are named, however small they are. Blocks are
compared by their bytes. Who made a block is no part of the comparison, because a measurement knows a line and a
prediction a part of memory.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from assay.records.prediction import PeakBlock, PredictedRank
from assay.records.ranks import RankResult, Sent
from assay.records.run import RunResult
from assay.units import format_bytes

_NAMED = 3
"""Most sizes that a sentence names."""


def differing_blocks(measured: Sequence[PeakBlock], predicted: Sequence[PeakBlock]) -> tuple[PeakBlock, ...]:
    """Return the blocks by which a measured peak differs, the most bytes first. Missing ones have a negative count.

    `made` names everything that made a block of this size, on the side that has more of them.
    """
    more = _by_size(measured)
    more.subtract(_by_size(predicted))
    found = (
        PeakBlock(nbytes=nbytes, count=count, made=_makers(nbytes, measured if count > 0 else predicted))
        for nbytes, count in more.items()
        if count
    )
    return tuple(sorted(found, key=lambda one: (-one.nbytes * abs(one.count), -one.nbytes)))


def differing_text(measured: Sequence[PeakBlock], predicted: Sequence[PeakBlock]) -> str:
    """Name the blocks by which a measured peak differs; empty if none does, or if either peak has no known blocks."""
    differing = differing_blocks(measured, predicted) if measured and predicted else ()
    others = len(differing) - _NAMED
    parts = [*map(_text, differing[:_NAMED]), *([f"blocks of {others} other sizes"] if others > 0 else [])]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _text(one: PeakBlock) -> str:
    count = abs(one.count)
    blocks = f"{'one block' if count == 1 else f'{count} blocks'} of {one.nbytes:,} bytes"
    return f"{blocks} {'more' if one.count > 0 else 'less'} ({one.made})"


def _by_size(blocks: Iterable[PeakBlock]) -> Counter[int]:
    found: Counter[int] = Counter()
    for one in blocks:
        found[one.nbytes] += one.count
    return found


def _makers(nbytes: int, blocks: Iterable[PeakBlock]) -> str:
    return " or ".join(dict.fromkeys(one.made for one in blocks if one.nbytes == nbytes))


TOLERANCE = 0.02
"""Relative difference from which memory on one rank is mentioned; honest figures are within 0.1 %."""
_TOLERANCE_OVER_RANKS = 0.05
"""Relative difference of a peak on several ranks, where threads of a backend may free a tensor late."""
_SENT_TOLERANCE = 0.01
"""Relative difference of a payload; all payloads but those of experts are predicted exactly."""
_UNSEEN_BYTES = 32 * 1024
"""Bytes per thread that are never mentioned: a kernel's own buffers, which no ledger has."""
_UNSEEN_SENT_BYTES = 1024
_ROUTED = "all_to_all"
"""The collective whose bytes routers decide."""

_MORE = "the optimizations may not save what they promise, or the prediction of this stack is wrong"
_LESS = "the step may leave out some of its work, or the prediction of this stack is wrong"
_TRACED = "kernels take memory that no operator returns, or the step does other work with real values than in a trace"


class _Pair(NamedTuple):
    """A figure of one rank, measured and predicted; None: unknown."""

    rank: int | None
    measured: int | None
    predicted: int | None

    def differs(self, tolerance: float, unseen: int) -> bool:
        """True if both are known and their difference exceeds a share of the prediction and a number of bytes."""
        if self.measured is None or self.predicted is None:
            return False
        return abs(self.measured - self.predicted) > max(tolerance * self.predicted, unseen)


def mispredictions(result: RunResult) -> list[str]:
    """Return a sentence for each kind of figure whose measurement is not its prediction, about the worst rank."""
    predicted = result.predicted
    if predicted is None:
        return []
    if not predicted.ranks:
        memory = result.memory
        saved = sum(memory.saved_bytes.values()) if memory.saved_bytes else None
        peak = _Pair(None, memory.tensors_peak_bytes, predicted.tensors_peak_bytes)
        kept = [_Pair(None, saved, predicted.saved_bytes)]
        meaning = _TRACED if predicted.traced else None
        found = [*_memory([peak], kept, TOLERANCE, _unseen(result), meaning)]
        if blocks := differing_text(memory.peak_blocks, predicted.peak_blocks):
            found.append(f"against the prediction, the measured peak has {blocks}")
        return found
    exchanged = any(one.collective == _ROUTED for said in predicted.ranks for one in said.sent)
    routed = exchanged and result.config.model.n_expert is not None
    both = [(one, predicted.ranks[one.rank]) for one in result.ranks]
    peaks = [_Pair(one.rank, one.tensors_peak_bytes, said.tensors_peak_bytes) for one, said in both]
    kept = [_Pair(one.rank, one.saved_bytes, said.saved_bytes) for one, said in both]
    # Routers decide how many rows each rank of an expert gets, and the prediction is of balanced ones.
    held = [] if routed else _memory(peaks, kept, _TOLERANCE_OVER_RANKS, _unseen(result))
    return [*held, *_communication(both, routed=routed)]


def _unseen(result: RunResult) -> int:
    threads = result.provenance.environment.threads if result.provenance.environment else 1
    return _UNSEEN_BYTES * max(1, threads // max(1, len(result.ranks)))


def _memory(
    peaks: Sequence[_Pair], saved: Sequence[_Pair], tolerance: float, unseen: int, meaning: str | None = None
) -> Iterator[str]:
    if worst := _worst([one for one in peaks if one.differs(tolerance, unseen)]):
        yield f"the peak of tensors{_compared(worst, meaning)}"
    if worst := _worst([one for one in saved if one.differs(TOLERANCE, 0)]):
        yield f"the memory saved for backward{_compared(worst)}"


def _worst(pairs: Sequence[_Pair]) -> _Pair | None:
    return max(pairs, key=lambda one: abs((one.measured or 0) - (one.predicted or 0)), default=None)


def _compared(one: _Pair, meaning: str | None = None) -> str:
    where = "" if one.rank is None else f" on rank {one.rank}"
    measured, predicted = one.measured or 0, one.predicted or 0
    why = meaning or (_MORE if measured > predicted else _LESS)
    return f"{where} is {format_bytes(measured)}, but {format_bytes(predicted)} was predicted: {why}"


def _communication(both: Sequence[tuple[RankResult, PredictedRank]], *, routed: bool) -> Iterator[str]:
    """Yield a sentence for each collective and axis, about the first rank that differs."""
    mentioned: set[tuple[str, str]] = set()
    for one, said in both:
        if not one.sent or not said.sent:
            continue
        measured, predicted = _by_axis(one.sent), _by_axis(said.sent)
        for key in sorted({*measured, *predicted} - mentioned):
            here, there = (of.get(key, Sent(collective=key[0], axis=key[1])) for of in (measured, predicted))
            if _sent_differs(here, there, calls_only=routed and key[0] == _ROUTED):
                mentioned.add(key)
                yield _sent(one.rank, here, there)


def _by_axis(sent: Sequence[Sent]) -> Mapping[tuple[str, str], Sent]:
    return {(one.collective, one.axis): one for one in sent}


def _sent_differs(here: Sent, there: Sent, *, calls_only: bool) -> bool:
    if here.count != there.count or calls_only:
        return here.count != there.count
    most = max(_SENT_TOLERANCE * there.payload_bytes, _UNSEEN_SENT_BYTES)
    return abs(here.payload_bytes - there.payload_bytes) > most


def _sent(rank: int, here: Sent, there: Sent) -> str:
    more = (here.payload_bytes, here.count) > (there.payload_bytes, there.count)
    measured, predicted = (f"{format_bytes(one.payload_bytes)} in {one.count} calls" for one in (here, there))
    meaning = "a rank may communicate more than it needs to" if more else "some communication may be left out"
    return (
        f"{here.collective} over {here.axis} has a payload of {measured} on rank {rank}, but {predicted} was predicted"
        f": {meaning}, or the prediction of this stack is wrong"
    )
