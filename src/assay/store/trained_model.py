"""The weights that a run has trained so far: its newest undamaged checkpoint, with its model and tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.config.home import Home
from assay.config.model import ModelConfig
from assay.errors import UsageError
from assay.optimizations import trained_model
from assay.records.status import Status
from assay.store.kept import Kept, kept_of
from assay.store.lookup import find

if TYPE_CHECKING:
    from assay.data import Tokenizer
    from assay.model import GPT

_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Exported:
    """Facts of an export."""

    complaint: str | None
    """A sentence if there is no tokenizer to write, because the prepared corpus is gone."""
    kept: Kept
    """Parts of the checkpoint that the run began with."""


@dataclass(frozen=True)
class Trained:
    """A checkpoint of a run."""

    run: str
    """The run's id."""
    config: ModelConfig
    checkpoint: Path
    steps: int
    """Training steps before the checkpoint."""
    data_folder: Path
    notes: tuple[str, ...] = ()
    """Warnings for the user: newer checkpoints that were skipped because they are damaged."""

    def model(self) -> "GPT":
        """Load the model on the CPU, in evaluation mode. Raises `UsageError`."""
        from assay.model.weights import load_model

        return load_model(self.checkpoint, self.config)

    def tokenizer(self) -> "Tokenizer":
        """Load the tokenizer of the training corpus. Raises `UsageError`."""
        from assay.data import load_tokenizer

        return load_tokenizer(self.data_folder)

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
        weights, complaint, text = read_weights(self.checkpoint, self.config), None, None
        beside: dict[str, Any] = {}
        try:
            tokenizer = self.tokenizer()
            beside, text = exchange_files(tokenizer, self.config.context_length), tokenizer.to_json()
        except UsageError as error:
            complaint = f"without a tokenizer: {error}"
        dtype = str(next(iter(weights.values())).dtype).removeprefix("torch.")
        kept = kept_of(self.config, text, dtype) if form == "hf" else Kept()
        own = {} if _TOKENIZER in kept.files else beside
        save(weights, self.config, folder, {**own, **kept.files})
        return Exported(complaint, kept)


def trained(home: Home, name: str) -> Trained:
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
            how = "short runs of a study or a comparison keep none; train its configuration with `assay train`"
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
        return Trained(folder.id, trained_model(spec.config), place, steps, folder.data_folder(spec), notes)
    raise UsageError(f"the run {folder.id} has only damaged checkpoints; {how}")
