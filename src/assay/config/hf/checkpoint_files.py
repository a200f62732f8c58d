"""The files of a Hugging Face checkpoint: JSON, and safetensors in one file or in the shards that an index lists."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.config.loading import LONGEST_BYTES, read_bytes
from assay.errors import UsageError


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a checkpoint's JSON file. Raises `UsageError` if it is missing, unreadable or no object."""
    try:
        raw = read_bytes(path, LONGEST_BYTES)
        if raw is None:
            raise UsageError(f"{path} is longer than 1 MiB, so it is no configuration of a checkpoint")
        values = json.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; name a folder with a Hugging Face checkpoint") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}; download it again") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a JSON object; download it again")
    return values


WEIGHTS = "model.safetensors"


def shard_of(folder: Path) -> Mapping[str, str] | None:
    """Return the file of each tensor by an index; None if there is one file, `model.safetensors`.

    Raises `UsageError` if a folder has neither, or if the index is damaged.
    """
    index = folder / f"{WEIGHTS}.index.json"
    if (folder / WEIGHTS).exists():
        return None
    if not index.exists():
        raise UsageError(f"{folder} has no {WEIGHTS}; {needed_files(folder)}")
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(Path(str(shard)).name == shard for shard in shards.values()):
        raise UsageError(f"{index} does not list shards of this folder; download it again")
    return shards


def is_adapter(folder: Path) -> bool:
    """True if a folder has an adapter, such as LoRA's, and not the model that it changes."""
    return (folder / "adapter_config.json").exists() and not (folder / WEIGHTS).exists()


def needed_files(folder: Path) -> str:
    """Return what a folder without a readable checkpoint needs."""
    if pickled := next(iter(sorted((*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")))), None):
        return (
            f"{pickled.name} is a pickle, which assay does not open; convert it to {WEIGHTS}: load it with transformers"
            " and call save_pretrained"
        )
    if gguf := next(iter(sorted(folder.glob("*.gguf"))), None):
        return (
            f"{gguf.name} is a GGUF file, whose weights are rounded for inference; name the model that it was made of"
        )
    if is_adapter(folder):
        return "it is an adapter; merge it into its model with merge_and_unload of peft, and save that"
    return f"the folder needs {WEIGHTS}"
