"""Weights on disk: a folder with `model.safetensors`, by assay's parameter names, and the model made from it.

A tied weight is stored once, under its owner's name. Nothing is ever unpickled. Writes are atomic: the folder is made
under a hidden name, flushed to the disk and renamed.
"""

import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.hf import CONFIG
from assay.errors import StorageError, UsageError
from assay.files import write_file
from assay.model.gpt import GPT, TIED, tie

WEIGHTS = "model.safetensors"

Beside = Mapping[str, Mapping[str, Any] | bytes]
"""Files beside weights by name: objects of JSON, or bytes."""
NOTHING: Beside = {}

Settle = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Weights of a checkpoint → those of the model that was trained."""


def _as_they_are(weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return weights


def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """Return the shape of every distinct parameter by name, in the model's order, without allocating memory."""
    with torch.device("meta"):
        model = GPT(config)
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of one file, on the CPU. Raises `UsageError` if it is missing or not a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; name a folder that holds {path.name}") from None
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path} is not a readable safetensors file ({error}); write or download it again") from error


def check_state(state: Mapping[str, Tensor], config: ModelConfig, source: object) -> dict[str, Tensor]:
    """Return `state` in the model's order and without tied aliases.

    Raises `UsageError` for the first tensor that is missing, unknown or of another shape; `source` names the origin of
    the state in the message.
    """
    shapes = parameter_shapes(config)
    aliases = {alias for alias, _ in TIED} if config.tie_embeddings else set()
    for name in [*shapes, *state]:
        if name not in state:
            raise UsageError(f"{source} has no tensor {name!r}; use the checkpoint's own configuration")
        if name not in shapes and name not in aliases:
            raise UsageError(
                f"{source} has a tensor {name!r} that the configuration lacks; use the checkpoint's own configuration"
            )
        if name in shapes and state[name].shape != shapes[name]:
            raise UsageError(
                f"{source} has {name!r} of shape {list(state[name].shape)}, and the configuration needs "
                f"{list(shapes[name])}; use the checkpoint's own configuration"
            )
    return {name: state[name] for name in shapes}


def read_weights(folder: Path | str, config: ModelConfig, settle: Settle = _as_they_are) -> dict[str, Tensor]:
    """Read parameters by assay's names from the `model.safetensors` of a checkpoint or an export.

    `settle` makes the model's own weights of a checkpoint's. Raises `UsageError` if the file cannot be read or does not
    fit `config`.
    """
    path = Path(folder) / WEIGHTS
    return check_state(settle(read_safetensors(path)), config, path)


def load_model(folder: Path | str, config: ModelConfig, settle: Settle = _as_they_are) -> GPT:
    """Load the model with the weights of `folder`, on the CPU, in evaluation mode. Raises `UsageError`."""
    state = read_weights(folder, config, settle)
    with torch.device("meta"):
        model = GPT(config)
    model.load_state_dict(state, strict=False, assign=True)
    if config.tie_embeddings:
        tie(model, TIED)
    return model.eval()


def save_weights(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    folder: Path | str,
    beside: Beside = NOTHING,
) -> None:
    """Write `model.safetensors` by assay's names and `config.json`, a `ModelConfig`, into a new or empty folder.

    `beside` holds the tokenizer's JSON files, by name. `init_from` is left out: the weights do not depend on it.
    Raises `UsageError` if `state` and `config` disagree or the folder is not empty, and `StorageError` if the disk
    cannot be written.
    """
    weights = check_state(state, config, "the model")
    with new_folder(Path(folder)) as made:
        write_safetensors(weights, made / WEIGHTS)
        values = config.model_dump(mode="json", exclude={"init_from"})
        for name, content in {**beside, CONFIG: values}.items():
            write_beside(content, made / name)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder that is renamed to `folder` if the block succeeds, and removed if it fails.

    An existing empty folder is not replaced, since it may be a working directory or a mount. The files are then moved
    into it one by one, with `config.json`, for which readers look, last.
    Raises `UsageError` if `folder` is not empty or cannot be made, `StorageError` if the disk cannot be written.
    """
    folder = folder.absolute()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder} already exists and is not an empty folder; name a new one")
    inside = folder.is_dir()
    made = (folder if inside else folder.parent) / f".making-{uuid.uuid4().hex}"
    try:
        made.mkdir(parents=True)
        yield made
        if inside:
            for path in sorted(made.iterdir(), key=lambda path: path.name == CONFIG):
                path.replace(folder / path.name)
        else:
            made.replace(folder)
    except (NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}; name another folder") from error
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def write_safetensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, made contiguous, and flush them to the disk. Raises `OSError` if the disk cannot be written."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # as for any new file of the user's; the library would let only its owner read it
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})
    except SafetensorError as error:
        # the library reports the system's error number in its message only
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise OSError(errno.EIO, str(error)) from error
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
    path.chmod(mode)
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def write_beside(content: Mapping[str, object] | bytes, path: Path) -> None:
    """Write a file beside weights, or in a folder there."""
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        write_file(path, content)
    else:
        write_json(content, path)


def write_json(values: Mapping[str, object], path: Path) -> None:
    """Write indented JSON and flush it to the disk."""
    with path.open("w", encoding="utf-8") as stream:
        json.dump(values, stream, indent=2)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
