"""Batches of a user's own, beside a model: a function of the step, the seed and the number of rows, and nothing else.

So a resumed run, a value check and every rank get equal rows. Nothing can prove that of a user's function, but its
first batch is made twice and compared. Torch's generator is set to a seed of (seed, step) around each call, so draws
from it are right by construction. That seed is a big-endian number, the first four bytes of the SHA-256 of the run's
seed in digits, plus the step, modulo 2³². Different steps of a run thus have different seeds.

Rows are copied to memory that is not torch's, as those of a corpus are. Their bytes are then no part of a step's peak,
and a model that writes into its inputs does not change the user's data.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.config.run import OwnRows, ResolvedRun
from assay.errors import UsageError, first_line

Pair = tuple[Tensor, Tensor]
"""Inputs and targets, each with rows first."""
MakeBatches = Callable[[int, int, int], Pair]
"""(step, seed, rows) → the batch of a step, on the CPU."""
MakeValidation = Callable[[int], Iterable[Pair]]
"""(rows) → all held-out batches, of about so many rows each, the same at every call."""

_END = object()
"""Stands for the end of the held-out batches."""

_SEEDS = 2**32
"""Number of seeds that a CPU's generator tells apart."""


@dataclass(frozen=True)
class OwnBatches:
    """The batches of one run. A fault of the user's functions raises `UsageError` with one sentence."""

    name: str
    """The user's function, as it is named in the configuration."""
    make: MakeBatches
    held_out: MakeValidation | None
    run: ResolvedRun
    _readings: list[int] = field(default_factory=list, compare=False, repr=False)
    """Checksum of the held-out batches, once all of them have been read."""

    def at(self, step: int, share: tuple[int, int] = (0, 1)) -> Pair:
        """Return the batch of a step; `share=(index, count)` selects every count-th row, from the index-th on."""
        index, count = share
        rows, seed = self.run.training.batch_size, self.run.seed
        if rows % count:
            raise UsageError(f"a batch of {rows} rows cannot be cut into {count} equal shares")
        what = f"batches({step}, {seed}, {rows}) of {self.name}"
        with _drawing(_state(seed, step)):
            made = _called(what, lambda: self.make(step, seed, rows))
        inputs, targets = _pair(what, made)
        for kind, one in (("inputs", inputs), ("targets", targets)):
            if len(one) != rows:
                raise UsageError(f"{what} returned {len(one)} rows of {kind} instead of {rows}")
        known = self.run.own_rows
        if known is not None and targets.numel() != rows * known.targets:
            raise UsageError(f"{what} returned {targets.numel()} targets; step 0 has {rows * known.targets}")
        return _copied(inputs[index::count]), _copied(targets[index::count])

    def validation(self) -> Iterator[Pair]:
        """Yield the held-out batches one after the other; none if the user gives none.

        Whoever reads all of them twice in a process is told with `UsageError` if the two readings differ.
        """
        if self.held_out is None:
            return
        digest = 0
        for inputs, targets in self._read(*self._opened()):
            digest = zlib.crc32(targets.numpy().tobytes(), zlib.crc32(inputs.numpy().tobytes(), digest))
            yield inputs, targets
        if self._readings and self._readings[0] != digest:
            raise self._not_repeated()
        self._readings[:] = [digest]

    def _opened(self) -> tuple[Iterator[Any], Tensor]:
        """Call the user's function → its batches, and the state of the generator after the call."""
        assert self.held_out is not None
        make, rows = self.held_out, self.run.training.batch_size
        with _drawing(_state(0, 0)):
            made = iter(_called(self._held_out, lambda: _iterable(self._held_out, make(rows))))
            return made, torch.get_rng_state()

    def _read(self, made: Iterator[Any], state: Tensor) -> Iterator[Pair]:
        while True:
            with _drawing(state):
                found = _called(self._held_out, lambda: next(made, _END))
                state = torch.get_rng_state()
            if found is _END:
                return
            inputs, targets = _pair(self._held_out, found)
            yield _copied(inputs), _copied(targets)

    @property
    def _held_out(self) -> str:
        return f"validation({self.run.training.batch_size}) of {self.name}"

    def _not_repeated(self) -> UsageError:
        return UsageError(f"validation of {self.name} yields other batches at each call; it must repeat them")

    def checked(self) -> OwnRows:
        """Make the first batches twice, and return what a row has. Raises `UsageError` if the two differ."""
        first, again = self.at(0), self.at(0)
        if not _equal(first, again):
            raise UsageError(
                f"batches of {self.name} returned two different batches for step 0; it must depend on its arguments "
                "and torch's generator only"
            )
        if self.held_out is not None:
            opened, again_opened = self._opened(), self._opened()
            if opened[0] is again_opened[0]:
                raise UsageError(f"{self._held_out} returned one iterator twice; return a list, or a new one each time")
            one, other = next(self._read(*opened), None), next(self._read(*again_opened), None)
            if one is None or other is None:
                raise UsageError(f"validation of {self.name} yields no batch; leave it out")
            if not _equal(one, other):
                raise self._not_repeated()
        return OwnRows(targets=first[1][0].numel(), validation=self.held_out is not None)


def _state(seed: int, step: int) -> Tensor:
    """Return the state of a CPU's generator at the seed of (seed, step)."""
    of_run = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:4], "big")
    return torch.Generator().manual_seed((of_run + step) % _SEEDS).get_state()


@contextmanager
def _drawing(state: Tensor) -> Iterator[None]:
    """Context in which the CPU's generator has a state of its own, and after which it has its former one."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield


def _called(what: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{what} failed: {type(error).__name__}: {first_line(error)}") from error


def _iterable(what: str, made: Any) -> Iterable[Any]:
    if not isinstance(made, Iterable):
        raise UsageError(f"{what} returned a {type(made).__name__} instead of an iterable of (inputs, targets)")
    return made


def _pair(what: str, made: Any) -> Pair:
    """Return inputs and targets. Raises `UsageError` if they are none, or cannot be rows of a batch."""
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise UsageError(f"{what} returned a {type(made).__name__} instead of a pair (inputs, targets)")
    for kind, one in zip(("inputs", "targets"), made, strict=True):
        if not isinstance(one, Tensor):
            raise UsageError(f"the {kind} of {what} are a {type(one).__name__}, no tensor")
        if one.device.type != "cpu":
            raise UsageError(f"the {kind} of {what} are on {one.device}; return them on the CPU")
        if one.dim() == 0 or one.layout is not torch.strided:
            raise UsageError(f"the {kind} of {what} have no rows; return a dense tensor with rows first")
        if not _has_numpys_format(one):
            found = str(one.dtype).removeprefix("torch.")
            raise UsageError(f"the {kind} of {what} are {found}; return float32, which is cast as the weights are")
    inputs, targets = made
    if len(inputs) != len(targets):
        raise UsageError(f"{what} returned {len(inputs)} rows of inputs and {len(targets)} of targets")
    if targets.numel() == 0:
        raise UsageError(f"{what} returned no targets; a loss needs at least one in each row")
    return inputs, targets


def _has_numpys_format(rows: Tensor) -> bool:
    """False for formats such as bfloat16 and float8, and for quantized tensors."""
    try:
        torch.empty(0, dtype=rows.dtype).numpy()
    except (TypeError, RuntimeError):
        return False
    return not rows.is_quantized


def _copied(rows: Tensor) -> Tensor:
    """Return rows in memory that is not torch's; those that are conjugate or negative lazily are so in values."""
    return torch.from_numpy(rows.detach().resolve_conj().resolve_neg().numpy().copy())


def _equal(one: Pair, other: Pair) -> bool:
    """True if two batches are equal bit for bit; values that are not numbers equal themselves."""
    return all(
        (a.dtype, a.shape) == (b.dtype, b.shape) and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(one, other, strict=True)
    )
