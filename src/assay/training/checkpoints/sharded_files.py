"""Checkpoint files of a model that is sharded over ranks: one whole safetensors file, independent of the mesh.

Every rank writes its own shards, and one rank joins them on disk, tensor by tensor; no rank ever holds the whole model.
A checkpoint has the same form from every mesh and can be read on any other; each rank reads only its shards. Reading
and writing use torch's distributed checkpoints in their Hugging Face format, without pickle. They are imported at first
use, since a run on one device does not need them. An error on one rank is raised on all.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import _getdtype
from torch import Tensor

from assay.errors import START_AGAIN, UsageError
from assay.parallel.process_rank import Ranks

_JOINED = "model-00001-of-00001.safetensors"
"""Torch's name for the only file of a consolidated checkpoint."""


def write_spread(tensors: Mapping[str, Tensor], path: Path, ranks: Ranks) -> None:
    """Write the shards of all ranks into one safetensors file; all ranks must call it. Raises `OSError`."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    pieces = path.with_name(f"{path.name}.pieces")
    writer = HuggingFaceStorageWriter(str(pieces), save_distributed=True, enable_consolidation=True)
    # Consolidation leaves scalars zero (torch 2.13), so they are written as vectors of one element.
    with _in_its_own_words():
        save({name: _vector(tensor.detach()) for name, tensor in tensors.items()}, storage_writer=writer)
    if ranks.rank == 0:
        (pieces / _JOINED).rename(path)
        shutil.rmtree(pieces)
    ranks.meet()


@contextmanager
def _in_its_own_words() -> Iterator[None]:
    """Raise the first rank's own error instead of torch's `CheckpointException`, which is no `Exception`."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as account:
        _, (error, _) = min(account.failures.items(), key=lambda failure: failure[0])
        raise error from account


def _vector(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim else tensor.reshape(1)


def read_spread(tensors: dict[str, Tensor], path: Path) -> None:
    """Fill each tensor, by name, with this rank's shard from the file. Raises `UsageError` if the file lacks one."""
    missing = next((name for name in tensors if name not in _names(path)), None)
    if missing is not None:
        raise UsageError(f"{path} has no tensor {missing!r}; restore the model's code, or {START_AGAIN}")
    _load(tensors, path.parent)


def read_spread_state(parameters: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Read this rank's shards of the optimizer's state, `state.<parameter>.<key>`, and all other tensors whole."""
    found: dict[str, Tensor] = {}
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  (it is no mapping)
            owner = name.removeprefix("state.").rpartition(".")[0]
            piece = file.get_slice(name)
            if not name.startswith("state."):
                found[name] = torch.empty(piece.get_shape(), dtype=_getdtype(piece.get_dtype()))
            elif owner in parameters:
                like, shape = parameters[owner], tuple(piece.get_shape())
                dtype = _getdtype(piece.get_dtype())
                spread = shape == tuple(like.shape)
                found[name] = torch.empty_like(like, dtype=dtype) if spread else torch.empty(shape, dtype=dtype)
    _load(found, path.parent)
    return found


def _load(tensors: dict[str, Tensor], folder: Path) -> None:
    """Fill each tensor with this rank's shard, by torch's distributed checkpoints."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with _in_its_own_words():
        load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)))


def _names(path: Path) -> set[str]:
    with safe_open(path, framework="pt") as file:
        return set(file.keys())
