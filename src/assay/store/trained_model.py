"""The weights that a run has trained so far: its newest undamaged checkpoint, with its model and tokenizer.

An export keeps parts of the checkpoint that the run started from, which training did not change. These are files of the
tokenizer, byte for byte, and settings of generation, if the run's tokenizer gives the same ids. Each key of
`config.json` stays whose meaning is still the model's. What differs is listed.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.config.hf import CONFIG, config_from_hf, hf_config, is_hugging_face, read_json
from assay.config.hf.llama import DEFAULTS
from assay.config.home import Home
from assay.config.model import ModelConfig
from assay.config.run import Run
from assay.cost.rewrites.low_rank import is_adapter
from assay.errors import UsageError
from assay.optimizations import model_weights, trained_model
from assay.records.status import Status
from assay.store.cells import studies_by_run
from assay.store.lookup import find
from assay.store.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor

    from assay.data import Tokenizer
    from assay.model import GPT

_TOKENIZER = "tokenizer.json"
_OF_TOKENIZER = (
    _TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
"""Files whose meaning depends on the ids of tokens."""
_TEMPLATES = "additional_chat_templates/*.jinja"
_OF_ADDED = ("id", "content", "single_word", "lstrip", "rstrip")
_WITHOUT_EFFECT: tuple[Any, ...] = (None, "")
"""Values of a tokenizer's settings that are written for none."""
_OF_TRAINING = {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "initializer_range"}
"""Keys that say how a model was trained, and not what it computes."""
_CONTEXT = "max_position_embeddings"
_DTYPES = ("dtype", "torch_dtype")


@dataclass(frozen=True)
class Kept:
    """Files for an export, by name, and what they say of the checkpoint that a run started from."""

    files: Mapping[str, bytes | Mapping[str, Any]] = field(default_factory=dict)
    source: Path | None = None
    """Folder of that checkpoint; None if the run started from none, or if it is gone."""
    kept: tuple[str, ...] = ()
    """Names of files that are those of the checkpoint."""
    differs: tuple[str, ...] = ()
    """A text for each difference from the checkpoint, besides its weights."""


def origin(config: ModelConfig) -> Path | None:
    """Return the folder of the Hugging Face checkpoint that a run began with, also by way of other runs."""
    source, seen = config.init_from, set[str]()
    while source is not None and source not in seen:
        seen.add(source)
        if is_hugging_face(Path(source)):
            return Path(source)
        run = RunFolder(Path(source).parent.parent)
        source = run.spec().config.model.init_from if run.spec_file.is_file() else None
    return None


def kept_parts(config: ModelConfig, tokenizer: str | None, dtype: str) -> Kept:
    """Return what an export keeps. `tokenizer` is the text of the run's tokenizer.json, None if there is none.

    `dtype` is that of the exported weights, such as ``float32``. Raises `UsageError` if the checkpoint is damaged.
    """
    source = origin(config)
    if source is None:
        gone = f"{config.init_from}, from which the run began, has no configuration of a checkpoint any more"
        return Kept(differs=(gone,) if config.init_from is not None and not Path(config.init_from).exists() else ())
    theirs, values = read_json(source / CONFIG), hf_config(config)
    changed = _changed(theirs, values, hf_config(config_from_hf(source)))
    changed |= {key: dtype for key in _DTYPES if key in theirs and theirs[key] != dtype}
    same = _same_tokenizer(source / _TOKENIZER, tokenizer)
    if not same:
        changed |= {key: values[key] for key in ("bos_token_id", "eos_token_id") if theirs.get(key) is not None}
    templates = sorted(path.relative_to(source).as_posix() for path in source.glob(_TEMPLATES))
    names = [name for name in (*_OF_TOKENIZER, *templates) if same and (source / name).is_file()]
    differs = [f"{key} {_plain(theirs.get(key))} → {_plain(value)}" for key, value in changed.items()]
    if not same:
        differs.append("the tokenizer, which is the run's own, without chat template and generation_config.json")
    files: dict[str, bytes | Mapping[str, Any]] = {name: (source / name).read_bytes() for name in names}
    return Kept({**files, CONFIG: {**theirs, **changed}}, source, tuple(names), tuple(differs))


def _changed(theirs: Mapping[str, Any], ours: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `config.json` whose meaning a run has changed. `before` is theirs as we would write it."""
    changed = {key: value for key, value in ours.items() if value != before.get(key) and key not in _OF_TRAINING}
    if changed.get(_CONTEXT, 0) < theirs.get(_CONTEXT, 0):  # rotations do not depend on it, and no weight does
        changed.pop(_CONTEXT, None)
    return changed | _without_window(theirs, changed.get(_CONTEXT, 0))


def _without_window(theirs: Mapping[str, Any], context: int) -> dict[str, Any]:
    """Return the keys that turn off a window that reached no position, and would reach some of a longer context."""
    window = theirs.get("sliding_window", DEFAULTS.get(theirs["model_type"], {}).get("sliding_window"))
    if not isinstance(window, int) or context <= window or not theirs.get("use_sliding_window", True):
        return {}
    full = {"use_sliding_window": False} if "use_sliding_window" in theirs else {}
    layers = {"layer_types": ["full_attention"] * len(theirs["layer_types"])} if theirs.get("layer_types") else {}
    return {"sliding_window": None, **full, **layers}


def _same_tokenizer(path: Path, ours: str | None) -> bool:
    """Return whether a tokenizer.json and the text of another give the same ids."""
    from tokenizers import Tokenizer as Library

    if ours is None or not path.is_file():
        return False
    try:
        return _pieces(Library.from_file(str(path)).to_str()) == _pieces(ours)
    except Exception as error:  # the library raises bare Exceptions
        raise UsageError(f"{path} is not a readable tokenizer.json: {str(error).splitlines()[0]}") from error


def _pieces(text: str) -> list[Any]:
    """Return what decides the ids of a text: not what is added to it or cut off, and not how ids become text."""
    content = json.loads(text)
    if "model" not in content:
        return [text]
    model = {key: value for key, value in content["model"].items() if value not in _WITHOUT_EFFECT}
    added = [sorted(str((key, one[key])) for key in _OF_ADDED) for one in content.get("added_tokens", ())]
    return [model, content.get("normalizer"), content.get("pre_tokenizer"), sorted(added)]


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Exported:
    """Facts of an export."""

    complaint: str | None
    """A sentence if there is no tokenizer to write, because the prepared corpus is gone."""
    kept: Kept
    """Parts of the checkpoint that the run began with."""
    adapters: int = 0
    """Number of low-rank adapters that are merged into the weights."""


@dataclass(frozen=True)
class Trained:
    """A checkpoint of a run."""

    run: str
    """The run's id."""
    config: ModelConfig
    checkpoint: Path
    trained_by: Run
    steps: int
    """Training steps before the checkpoint."""
    data_folder: Path
    notes: tuple[str, ...] = ()
    """Warnings for the user: newer checkpoints that were skipped because they are damaged."""

    def model(self) -> "GPT":
        """Load the model on the CPU, in evaluation mode. Raises `UsageError`."""
        from assay.model.weights import load_model

        return load_model(self.checkpoint, self.config, self.settle)

    def settle(self, weights: "Mapping[str, Tensor]") -> "Mapping[str, Tensor]":
        """Return the model's weights of the checkpoint's; adapters are merged."""
        return model_weights(self.trained_by, weights)

    def tokenizer(self) -> "Tokenizer":
        """Load the tokenizer of the training corpus. Raises `UsageError`.

        A run of another home has come without its corpus. Bytes need none as tokens.
        """
        from assay.data import load_tokenizer
        from assay.data.prepared_folder import MANIFEST
        from assay.data.tokenizers import ByteTokenizer

        data = self.trained_by.data
        if (self.data_folder / MANIFEST).exists():
            return load_tokenizer(self.data_folder)
        if data.tokenizer == "byte":
            return ByteTokenizer()
        unusual = data.model_dump(mode="json", exclude_defaults=True)
        command = shlex.join(["assay", "data", "prepare", *(f"data.{key}={value}" for key, value in unusual.items())])
        raise UsageError(
            f"this home does not have the corpus of {self.run}, of which the tokenizer is a part; with the same text, "
            f"run `{command}`"
        )

    def export(self, folder: Path | str, form: str) -> Exported:
        """Write weights and tokenizer into a new or empty folder.

        The form `hf` is for transformers, and keeps what training did not change of the checkpoint that the run began
        with. `safetensors` keeps assay's parameter names. Raises `UsageError` for another form or if Hugging Face has
        no such model, and `StorageError` if the disk refuses.
        """
        from assay.data.exchange import exchange_files
        from assay.model.hf import save_hf
        from assay.model.weights import read_weights, save_weights

        save = {"hf": save_hf, "safetensors": save_weights}.get(form)
        if save is None:
            raise UsageError(f"there is no format {form!r}; choose hf or safetensors")
        adapters: list[str] = []

        def settle(stored: "Mapping[str, Tensor]") -> "Mapping[str, Tensor]":
            adapters.extend(filter(is_adapter, stored))
            return self.settle(stored)

        weights, complaint, text = read_weights(self.checkpoint, self.config, settle), None, None
        beside: dict[str, Any] = {}
        try:
            tokenizer = self.tokenizer()
            beside, text = exchange_files(tokenizer, self.config.context_length), tokenizer.to_json()
        except UsageError as error:
            complaint = f"without a tokenizer: {error}"
        dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
        kept = kept_parts(self.config, text, dtype) if form == "hf" else Kept()
        own = {} if _TOKENIZER in kept.files else beside
        save(weights, self.config, folder, {**own, **kept.files})
        return Exported(complaint, kept, len(adapters) // 2)


def _remedy(home: Home, folder: RunFolder) -> str:
    """Return what to do about a run that has finished and has no checkpoint."""
    if folder.id in studies_by_run(home):
        return "short runs of a study or a comparison keep none; train its configuration with `assay train`"
    there = f"`assay runs export FILE {folder.id} --checkpoints` there takes them along"
    return f"if it came from another home, {there}; else train its configuration with `assay train`"


def find_trained(home: Home, name: str) -> Trained:
    """Find the newest undamaged checkpoint of the run that `name` means. Raises `UsageError` if there is none."""
    folder = find(home, name)
    spec = folder.spec()
    if spec.config.model.own is not None:
        raise UsageError(
            f"the run {folder.id} trained {spec.config.model.own}, and this reads checkpoints of assay's own model only"
        )
    how = f"`assay train --resume {folder.id}` continues it"
    if folder.newest_checkpoint() is None:
        result = folder.result()
        if result is not None and result.status is Status.DONE:
            how = _remedy(home, folder)
        raise UsageError(f"the run {folder.id} has no checkpoint; {how}")
    # Torch is imported only now, so that a mistyped name is reported at once.
    from assay.training.checkpoints.checkpoint import complete, read_state

    damaged: list[str] = []
    for place in complete(folder.checkpoints):
        try:
            steps = int(read_state(place)["position"]["step"])
        except UsageError as error:
            damaged.append(str(error))
            continue
        notes = tuple(f"{said}; the older checkpoint of step {steps} is used" for said in damaged)
        data = folder.data_folder(spec)
        return Trained(folder.id, trained_model(spec.config), place, spec.config, steps, data, notes)
    raise UsageError(f"the run {folder.id} has only damaged checkpoints; {how}")
