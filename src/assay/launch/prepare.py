"""All checks of a run before it starts, so that a faulty run leaves nothing behind.

Cheap checks run first: the names and fields of optimizations, their support on this machine, the initial weights, and
whether the home can be written. The corpus is last; it gives the size of the vocabulary. Only a run that passes all
checks gets a folder.

Initial weights are checked with their folder, their model and the shapes of their tensors. A folder holds a Hugging
Face checkpoint, an assay export or a checkpoint of a run. Any other value is the name of a run, and selects its newest
checkpoint. The model is read from the configuration, and the shapes from the headers of the safetensors files, so no
torch is needed.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from assay.config.base import absolute
from assay.config.fit import adopt_shape, check_fit
from assay.config.hf import CONFIG, check_context, config_from_hf, is_hugging_face, read_json
from assay.config.hf.checkpoint_files import WEIGHTS, is_adapter, needed_files, shard_of
from assay.config.hf.tensors import OUTPUT, naming_of, with_own_head
from assay.config.home import Home
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT, ModelConfig
from assay.config.run import KNOWN_VOCABULARIES, ResolvedRun, Run, identity
from assay.cost.gpt_tape import parameters
from assay.cost.rewrites.low_rank import is_adapter as is_adapter_matrix
from assay.data.progress import Progress, silent
from assay.errors import UsageError
from assay.hardware import Machine
from assay.hardware.detect import detect, usable_cores
from assay.hardware.rates import known_machine
from assay.launch.own import inspect_own_model
from assay.launch.tensor_files import StoredTensor, non_finite_in, tensors_in
from assay.optimizations import Unavailable, Unpredicted, check, resolve_run, trained_model
from assay.records.prediction import Predicted
from assay.records.run import Branch
from assay.store.foreign import check_own_code
from assay.store.lookup import find
from assay.store.run_folder import RunFolder

if TYPE_CHECKING:
    from assay.data import Prepared


@dataclass(frozen=True)
class ReadyRun:
    """A run that can start."""

    run: ResolvedRun
    """Configuration with optimizations normalized, vocabulary size and the folder of initial weights filled in."""
    data_folder: Path
    corpus_digest: str
    predicted: Predicted | None
    preset: str | None = None
    """Preset or file from which the configuration was loaded."""
    name: str | None = None
    """Name that the user gave the run."""
    branch: Branch | None = None
    """Run and step from which it branches."""
    eval_batches: int = 0
    """Batches of one evaluation; 0 if they are not known, as those of a user's own."""

    @property
    def identity(self) -> str:
        """Hash of the checked configuration."""
        return identity(self.run)


def ready(asked: Run, home: Home, progress: Progress = silent, ranks_here: int | None = None) -> ReadyRun:
    """Check a run against this machine and its corpus, and prepare the corpus.

    `ranks_here` is the number of ranks on this machine, if others run on other machines. Raises `UsageError` for a
    fault that the user can correct, before anything is written in the folder of runs. Raises `StorageError` if the disk
    refuses.
    """
    run = resolve_run(asked)
    check_own_code(home.checked(), run.model)
    machine = known_machine(home, threads_of(run, ranks_here))
    check_room(run, machine, ranks_here or run.ranks)
    run = with_initial_weights(run, home)
    check(run, machine)
    _vocabulary_fits(run, KNOWN_VOCABULARIES.get(run.data.tokenizer, 0))
    check_finite(run)
    with leaving_nothing(run, home):
        prepared = _corpus(run, home.ready(), progress)
        run = with_initial_weights(run.with_vocabulary(prepared.vocab_size), home)
        if run.model.own is None:
            batches = _eval_batches(run, prepared)
            return ReadyRun(run, prepared.folder, prepared.digest, predict(run, machine), eval_batches=batches)
        progress("following a step without its memory", None)
        rows, predicted = inspect_own_model(run, machine)
        run = run.model_copy(update={"own_rows": rows})
        _can_reach_its_target(run)
        return ReadyRun(run, prepared.folder, prepared.digest, predicted)


def threads_of(run: Run, ranks_here: int | None = None) -> int | None:
    """Threads of each rank: the run's setting or an equal share of cores; None on one rank keeps torch's default."""
    if run.threads is not None or run.ranks == 1:
        return run.threads
    return max(1, detect().cores // (ranks_here or run.ranks))


def _corpus(run: Run, home: Home, progress: Progress) -> "Prepared":
    """Prepare the run's corpus. Raises `UsageError` if it is too short, or if the vocabulary is smaller than its."""
    from assay.data import check_lengths, prepare

    prepared = prepare(run.data, home, progress)
    check_lengths(prepared, run.model.context_length)
    _vocabulary_fits(run, prepared.vocab_size)
    return prepared


def _eval_batches(run: Run, prepared: "Prepared") -> int:
    from assay.data import validation_windows

    training = run.training
    return len(
        validation_windows(prepared.validation, run.model.context_length, training.batch_size, training.eval_batches)
    )


@contextmanager
def leaving_nothing(run: Run, home: Home) -> Iterator[None]:
    """Remove the prepared corpus, and the home, if the block created them for a run that then cannot start."""
    from assay.data import folder_for

    folder = folder_for(run.data, home)
    was_there = os.path.exists(folder)
    with home.provisional():
        try:
            yield
        except UsageError:
            if not was_there:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def predict(run: ResolvedRun, machine: Machine) -> Predicted | None:
    """Predict a run with a known vocabulary by the estimator; None if a technique has no ledger.

    No ledger knows a model of the user's own. Its peak is that of a trace, which takes a process of its own.
    """
    from assay.estimator.every_rank import estimate_every_rank

    if run.model.own is not None:
        return inspect_own_model(run, machine)[1]
    try:
        return Predicted.model_validate(estimate_every_rank(run, machine).predicted())
    except Unpredicted:
        return None


def _can_reach_its_target(run: ResolvedRun) -> None:
    if run.training.target_loss is not None and run.own_rows is not None and not run.own_rows.validation:
        raise UsageError(
            f"training.target_loss is a validation loss, and {run.model.own} has no validation batches; give "
            "assay.OwnModel a function validation, or leave the target out"
        )


def _vocabulary_fits(run: Run, tokens: int) -> None:
    asked = run.model.vocab_size
    if asked is not None and asked < tokens:
        remedy = "raise it, or leave it out to use the tokenizer's size"
        if run.model.init_from is not None:
            remedy = "give the tokenizer of model.init_from, such as data.tokenizer=FOLDER/tokenizer.json"
        raise UsageError(f"model.vocab_size={asked} is smaller than the tokenizer's {tokens}; {remedy}")


def check_room(run: Run, machine: Machine, ranks: int) -> None:
    """Raise `Unavailable` if the device is missing, or if ranks outnumber accelerators or cores.

    `oversubscribe` permits fewer cores.
    """
    if run.device == "cuda" and not machine.accelerators:
        raise Unavailable("device=cuda is not possible: this machine has no CUDA device; use device=cpu")
    if machine.device(run.device) == "cuda" and ranks > len(machine.accelerators):
        raise Unavailable(
            f"{ranks} ranks need {ranks} accelerators, and this machine has {len(machine.accelerators)}; "
            "use fewer ranks"
        )
    usable = usable_cores()
    missing = set(run.cores or ()) - usable
    if missing:
        listed, there = (", ".join(map(str, sorted(cores))) for cores in (missing, usable))
        raise Unavailable(f"cores={list(run.cores or ())} is not possible: there is no core {listed} among {there}")
    if ranks > machine.cores and not run.oversubscribe:
        raise Unavailable(
            f"{ranks} ranks need {ranks} cores, and this machine has {machine.cores}; "
            "use fewer ranks, or give --oversubscribe"
        )


AnyRun = TypeVar("AnyRun", bound=Run)

_LISTED = 3


def with_initial_weights(run: AnyRun, home: Home) -> AnyRun:
    """Return the run with `model.init_from` as an absolute folder, and with that model's shape where the user set none.

    Raises `UsageError` if the weights do not exist, or with a list of all that does not fit.
    """
    source = run.model.init_from
    if source is None:
        return run
    folder = _folder(source, home)
    theirs, hugging_face = _model(folder), is_hugging_face(folder)
    found = tensors_in(_files(folder, hugging_face=hugging_face))
    if any(map(is_adapter_matrix, found)):
        raise UsageError(
            f"model.init_from={source} has adapters beside its weights; `assay export RUN FOLDER --format safetensors` "
            "merges them, and that folder can be named"
        )
    model = run.model.model_copy(update={"init_from": str(folder)})
    if theirs is not None:
        model = adopt_shape(model, theirs)
        theirs = with_own_head(theirs, model, found) if hugging_face else theirs
        check_fit(model, theirs, source, hugging_face=hugging_face)
        if hugging_face:
            check_context(folder, model.context_length)
    if model.vocab_size is not None and found:
        check = _check_theirs if hugging_face else _check_ours
        check(model, found, source)
    return run.model_copy(update={"model": model})


def check_finite(run: Run) -> None:
    """Raise `UsageError` if the initial weights have NaN or infinite numbers; `with_initial_weights` found them."""
    if run.model.init_from is None:
        return
    folder = Path(run.model.init_from)
    hugging_face = is_hugging_face(folder)
    unused = naming_of(run.model).unused if hugging_face else ()
    files = tuple((file, file.stat().st_mtime_ns) for file in _files(folder, hugging_face=hugging_face))
    if fault := _fault_of(files, unused):
        raise UsageError(
            f"{fault} in model.init_from={folder}, so the run would diverge; name weights from before that"
        )


@lru_cache(maxsize=4)
def _fault_of(files: tuple[tuple[Path, int], ...], unused: tuple[str, ...]) -> str:
    """Return which tensor of files, as they were written at these times, is not finite; empty if all are.

    All cells of a study begin with the same weights, so they are read once.
    """
    tensors = tensors_in(file for file, _ in files)
    return non_finite_in({name: one for name, one in tensors.items() if not name.endswith(unused)})


def with_initial_shape(run: AnyRun, home: Home) -> AnyRun:
    """Return the same for a prediction, for which the configuration of a Hugging Face model is enough.

    Raises the errors of `with_initial_weights` where weights are there.
    """
    if run.model.init_from is None:
        return run
    folder = absolute(run.model.init_from)
    if not is_hugging_face(folder) or any(folder.glob("*.safetensors")):
        return with_initial_weights(run, home)
    theirs = config_from_hf(folder)
    model = adopt_shape(run.model.model_copy(update={"init_from": str(folder)}), theirs)
    check_fit(model, theirs, str(run.model.init_from), hugging_face=True)
    check_context(folder, model.context_length)
    return run.model_copy(update={"model": model})


def _folder(source: str, home: Home) -> Path:
    place = absolute(source)
    if not os.path.isdir(place):
        return _checkpoint_of(source, home)
    if not any(place.glob("*.safetensors")):
        raise UsageError(f"model.init_from={source} is a folder without .safetensors files; {needed_files(place)}")
    if is_adapter(place):
        raise UsageError(f"model.init_from={source} has no weights of a model: {needed_files(place)}")
    return place


def _checkpoint_of(source: str, home: Home) -> Path:
    try:
        found = find(home, source)
    except UsageError as error:
        raise UsageError(f"model.init_from={source} is neither a folder nor a run: {error}") from error
    checkpoint = found.newest_checkpoint()
    if checkpoint is None:
        raise UsageError(f"model.init_from={source}: the run {found.id} has no checkpoint; name a run that has one")
    return checkpoint


def _model(folder: Path) -> ModelConfig | None:
    """The model whose weights are in a folder; None if no configuration describes it."""
    if is_hugging_face(folder):
        return config_from_hf(folder)
    if (folder / CONFIG).is_file():
        try:
            return ModelConfig.model_validate(read_json(folder / CONFIG))
        except ValidationError as error:
            raise UsageError(f"{folder / CONFIG} is not the configuration of a model; export the run again") from error
    run = RunFolder(folder.parent.parent)
    return trained_model(run.spec().config) if run.spec_file.is_file() else None


def _files(folder: Path, *, hugging_face: bool) -> list[Path]:
    """Return the files of a folder's weights."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    shards = shard_of(folder) if hugging_face else None
    if shards is None:
        return sorted(folder.glob("*.safetensors"))
    return [folder / one for one in sorted(set(shards.values()))]


def _check_ours(model: ModelConfig, found: Mapping[str, StoredTensor], source: str) -> None:
    """Raise `UsageError` with a list of our tensors that the model lacks, requires or has in another shape."""
    wanted = {name: tensor.shape for name, tensor in parameters(model).items()}
    shapes = {name: one.shape for name, one in found.items() if name != HEAD_WEIGHT or name in wanted}
    _refuse(_differing(wanted, shapes), source)


def _check_theirs(model: ModelConfig, found: Mapping[str, StoredTensor], source: str) -> None:
    """Raise `UsageError` as `_check_ours` for a Hugging Face checkpoint, or if it is tied and has another head."""
    naming = naming_of(model)
    wanted: dict[str, tuple[int, ...]] = {}
    for ours, tensor in parameters(model).items():
        wanted |= naming.shapes(ours, tensor.shape, model)
    there = {name.removeprefix(naming.prefix): one for name, one in found.items() if not name.endswith(naming.unused)}
    _check_names_and_kinds(there, next(iter(wanted)), naming.prefix, source)
    head = there.pop(OUTPUT, None) if OUTPUT not in wanted else None
    shapes = {name: one.shape for name, one in there.items()}
    for name in naming.cut:
        if name in shapes and name in wanted and shapes[name][0] > wanted[name][0]:
            shapes[name] = (wanted[name][0], *shapes[name][1:])
    padded = {name for name in shapes.keys() - wanted if naming.pads_biases and name.endswith(".bias")}
    _refuse(_differing(wanted, {name: shape for name, shape in shapes.items() if name not in padded}), source)
    # A bias of zeros is none, and its configuration need not say so.
    if biased := next((name for name in shapes if name in padded and not there[name].is_zero), None):
        raise UsageError(f"{source} has a bias {biased!r} that is not zero; set model.bias=true")
    (embedding,) = naming.names(EMBEDDING_WEIGHT)
    if head is not None and head.dtype == there[embedding].dtype and not head.equals(there[embedding]):
        raise UsageError(
            f"{source} is tied by its configuration, and has an output projection that is not its embedding; set "
            "model.tie_embeddings=false to start from both"
        )


def _check_names_and_kinds(there: Mapping[str, StoredTensor], known: str, prefix: str, source: str) -> None:
    """Raise `UsageError` for weights that are rounded for inference, and for names that a wrapper has prefixed.

    `known` is the name of a tensor that every such checkpoint has.
    """
    if rounded := next((name for name, one in there.items() if one.dtype.startswith(("I", "U", "F8", "F4"))), None):
        dtype = there[rounded].dtype
        raise UsageError(
            f"{source} has {rounded} in {dtype}, rounded for inference; name the model that it was made of"
        )
    wrapped = next((name for name in there if name.endswith(f".{known}")), None)
    if known not in there and wrapped is not None:
        before = wrapped.removesuffix(known).removesuffix(prefix)
        raise UsageError(f"names of {source} begin with {before!r}, as of a wrapped model; save the model inside it")


def _differing(wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> list[str]:
    differ = [
        f"{name} is {_shape(found.get(name))} and should be {_shape(shape)}"
        for name, shape in wanted.items()
        if found.get(name) != shape
    ]
    return differ + [f"{name} is not part of the model" for name in found if name not in wanted]


def _refuse(differ: list[str], source: str) -> None:
    if differ:
        more = f" and {len(differ) - _LISTED} more" if len(differ) > _LISTED else ""
        raise UsageError(f"the weights of {source} do not fit the model: {'; '.join(differ[:_LISTED])}{more}")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "×".join(map(str, shape))
