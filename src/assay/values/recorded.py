"""The records of all ranks of a run, put together: whole batches, whole gradients, whole weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.values.masks import MaskCount, Noise, unpack_mask
from assay.values.tensor_file import CPU, Key, TensorReader, record_of


@dataclass(frozen=True)
class RecordedStep:
    """Figures of one step, as reported by the run."""

    index: int
    loss: float
    """Loss in nats per token, over all ranks."""
    log_norm: float
    """Natural logarithm of the gradients' global norm before clipping."""
    rate: float
    """Learning rate of the step."""
    groups: dict[str, dict[str, Any]]
    """Options of the optimizer's group, by parameter; empty where the update was skipped."""

    @property
    def updated(self) -> bool:
        """True if the optimizer made its update."""
        return bool(self.groups)


@dataclass(frozen=True)
class _Drawing:
    """A rank that draws dropout masks. Ranks of one place compute the same activations."""

    rank: int
    place: tuple[int, ...]


class _Tensors(Mapping[str, Tensor]):
    """Recorded tensors by name, each brought to a device when it is asked for, so that few are there at once."""

    def __init__(self, places: Mapping[str, tuple[TensorReader, Key]], device: torch.device) -> None:
        self._places, self._device = places, device

    def __getitem__(self, name: str) -> Tensor:
        reader, key = self._places[name]
        found = reader.get(key)
        return found if found.device == self._device else found.to(self._device)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Recorded:
    """All ranks' records, whose weights, gradients, states and masks are given on `device`.

    Raises `OSError` or `ValueError` where a record is missing or torn.
    """

    def __init__(self, folder: Path, ranks: int = 1, device: torch.device = CPU) -> None:
        self._device = device
        self.ranks = [TensorReader(record_of(folder, rank), device) for rank in range(ranks)]
        self.part: str = self.ranks[0].about["part"]
        """Part of the run: `beginning`, `middle`, `evaluation` or `end`."""
        self.first = int(self.ranks[0].about["first"])
        self.padded_rows: dict[str, int] = dict(self.ranks[0].about.get("padded_rows", {}))
        """Number of rows, padding included, of weights whose last rows stand for no token, by name."""
        self.probe_loss: float | None = self.ranks[0].about.get("probe_loss")
        groups = self.ranks[0].about.get("evaluated", {})
        self.evaluated: dict[int, tuple[float, float]] = {int(number): tuple(sums) for number, sums in groups.items()}
        """Summed loss and targets of groups of an evaluation at the weights of the first recorded step, by number."""
        self.steps = [self._step(int(index)) for index in self.ranks[0].about["steps"]]
        self._found: dict[tuple[str, int], dict[str, tuple[TensorReader, Key]]] = {}

    def _step(self, index: int) -> RecordedStep:
        everyone = [one.about["steps"][str(index)] for one in self.ranks]
        groups = {name: options for one in everyone for name, options in one["groups"].items()}
        own = everyone[0]
        return RecordedStep(index, own["loss"], own["log_norm"], own["rate"], groups)

    def close(self) -> None:
        """Let go of the GPU's memory in which records lie. Their tensors must not be used any more."""
        for one in self.ranks:
            one.close()

    def tensors(self, kind: str, step: int, device: torch.device | None = None) -> Mapping[str, Tensor]:
        """Return the tensors of one kind in one step by name, each from the first rank that stored it."""
        if (kind, step) not in self._found:
            found = self._found[kind, step] = {}
            for one in self.ranks:
                for key in one.stored_keys(kind, step):
                    found.setdefault(key.name, (one, key))
        return _Tensors(self._found[kind, step], device or self._device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Token ids and targets of the whole batch, `[rows, T]` each: share i of n has rows i, i + n, …"""
        parts = self.micro_batches(step)
        if len(parts) == 1:
            return parts[0]
        return torch.cat([ids for ids, _ in parts]), torch.cat([targets for _, targets in parts])

    def micro_batches(self, step: int) -> list[tuple[Tensor, Tensor]]:
        """Token ids and targets of every micro-batch, over all ranks; concatenated they are the batch, in order."""
        names = self.ranks[0].keys("ids", step)
        return [(self._rows("ids", step, name), self._rows("targets", step, name)) for name in names]

    def windows(self, number: int) -> list[tuple[Tensor, Tensor]]:
        """Copies of the token ids and targets of the batches of one evaluated group: a model may change its inputs."""
        ids, targets = (self.tensors(f"window {what} {number}", self.first, CPU) for what in ("ids", "targets"))
        return [(ids[place].clone(), targets[place].clone()) for place in ids]

    def noise(self, step: int) -> Noise:
        """Random state of rank 0 before the step, with the masks that were kept."""
        own, about = self.ranks[0], self.ranks[0].about["steps"].get(str(step), {})
        shapes = about.get("masks", {}).get("shapes")
        bits = [own.get(Key("mask", step, str(place))).to(self._device) for place in range(len(shapes or ()))]
        masks = shapes and [unpack_mask(one, shape) for one, shape in zip(bits, shapes, strict=True)]
        # Torch's generators read a state from the beginning of its storage.
        return Noise({name: one.clone() for name, one in self.tensors("noise", step, CPU).items()}, masks)

    def mask_counts(self) -> list[MaskCount]:
        """Return the elements of the masks of each step whose masks were kept."""
        steps = self.ranks[0].about["steps"].items()
        return [MaskCount(int(index), **one["masks"]["count"]) for index, one in steps if "masks" in one]

    def noise_pairs(self, step: int) -> Iterator[tuple["_Drawing", "_Drawing", bool]]:
        """Yield each pair of ranks, and whether both had the same random state in a step."""
        ranks = [_Drawing(one.about["rank"], tuple(one.about["place"])) for one in self.ranks]
        device = "cuda" if "cuda" in self.ranks[0].keys("noise", step) else "cpu"
        states = [one.digest(Key("noise", step, device)) for one in self.ranks]
        for one, other in combinations(range(len(ranks)), 2):
            yield ranks[one], ranks[other], states[one] == states[other]

    def differing_replicas(self, kind: str, step: int) -> list[str]:
        """Names of tensors that are not equal, bit for bit, on all ranks that have them."""
        if len(self.ranks) == 1:
            return []
        seen: dict[str, set[str]] = {}
        for one in self.ranks:
            for name in one.keys(kind, step):
                seen.setdefault(name, set()).add(one.digest(Key(kind, step, name)))
        return [name for name, digests in seen.items() if len(digests) > 1]

    def missing_shares(self) -> list[int]:
        """Shares of the batch that no rank trained on."""
        count = int(self.ranks[0].about["share"][1])
        return sorted(set(range(count)) - {int(one.about["share"][0]) for one in self.ranks})

    def differing_shares(self, step: int) -> bool:
        """True if ranks of one share of the batch have different rows."""
        if len(self.ranks) == 1:
            return False
        return any(not torch.equal(one, other) for pair in self._shares("ids", step).values() for one, other in pair)

    def _rows(self, kind: str, step: int, name: str) -> Tensor:
        count = int(self.ranks[0].about["share"][1])
        shares = {int(one.about["share"][0]): one.get(Key(kind, step, name)).cpu() for one in self.ranks}
        rows = sum(len(one) for one in shares.values())
        whole = torch.empty(rows, *shares[0].shape[1:], dtype=shares[0].dtype)
        for index, own in shares.items():
            whole[index::count] = own
        return whole

    def _shares(self, kind: str, step: int) -> dict[int, Sequence[tuple[Tensor, Tensor]]]:
        firsts: dict[int, Tensor] = {}
        pairs: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for one in self.ranks:
            share, rows = int(one.about["share"][0]), self._of_rank(one, kind, step)
            pairs.setdefault(share, []).append((firsts.setdefault(share, rows), rows))
        return dict(pairs)

    @staticmethod
    def _of_rank(one: TensorReader, kind: str, step: int) -> Tensor:
        return torch.cat([one.get(Key(kind, step, name)).cpu() for name in one.keys(kind, step)])
