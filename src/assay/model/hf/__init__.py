"""Import and export of Hugging Face checkpoints: `config.json` and safetensors, in one file or in shards.

GPT-2 and the family of Llama, Qwen2 and Qwen3 are read and written. `tensors` converts the tensors' names and layouts
by family; this module handles the files. Nothing is ever unpickled. If a checkpoint has more positions than the
configuration's context, the first ones are used: a causal decoder computes the same on shorter inputs. GPT-2 has three
dropouts; resid_pdrop is read, and training may change it.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from assay.config import ModelConfig
from assay.config.fit import check_fit
from assay.config.hf import CONFIG, config_from_hf, hf_config
from assay.config.hf.files import WEIGHTS, shard_of
from assay.config.hf.tensors import with_own_head
from assay.errors import UsageError
from assay.model.hf.tensors import from_hf, to_hf
from assay.model.weights import NOTHING, Beside, new_folder, read_safetensors, write_beside, write_safetensors


def load_hf(folder: Path | str, config: ModelConfig) -> dict[str, Tensor]:
    """Read the weights of a checkpoint folder, float32, by assay's names, without a tied output projection.

    Raises `UsageError` if a file is missing or unreadable, the model is of another kind, or the configuration does not
    fit the checkpoint's. It is also raised for a tensor that is missing, of another shape, or unknown.
    """
    folder = Path(folder)
    theirs, tensors = config_from_hf(folder), _read(folder)
    check_fit(config, with_own_head(theirs, config, tensors), folder, hugging_face=True)
    return from_hf(tensors, config, folder)


def save_hf(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    folder: Path | str,
    beside: Beside = NOTHING,
) -> None:
    """Write `config.json` and `model.safetensors` atomically, in the form of transformers' model.

    `beside` holds further files by name, such as the tokenizer's; a `config.json` among them takes the place of ours.

    Raises `UsageError` if no family can express `config`, `state` does not fit it or the folder is not empty, and
    `StorageError` if the disk cannot be written.
    """
    tensors = to_hf(state, config)
    with new_folder(Path(folder)) as made:
        write_safetensors(tensors, made / WEIGHTS)
        for name, content in {CONFIG: hf_config(config), **beside}.items():
            write_beside(content, made / name)


def _read(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint folder, from one file or from the shards in its index."""
    shards = shard_of(folder)
    if shards is None:
        return read_safetensors(folder / WEIGHTS)
    files = {shard: read_safetensors(folder / shard) for shard in sorted(set(shards.values()))}
    for name, shard in shards.items():
        if name not in files[shard]:
            raise UsageError(f"{folder / shard} has no tensor {name!r}, which the index lists; download it again")
    return {name: files[shard][name] for name, shard in shards.items()}
