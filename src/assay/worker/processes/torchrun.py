"""A run whose processes torchrun has started, on one host or on several.

    torchrun --nnodes 2 --nproc-per-node 8 … -m assay.worker my.yaml --with fully_sharded

Rank 0 reads the configuration, checks it, and prepares the corpus and the run's folder. The other ranks read the
folder's path from the rendezvous store, and report whether they can see it. ASSAY_HOME must be a folder that all hosts
share. There is no assay parent: rank 0 prints the progress itself, and keeps the folder locked while the run lasts.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.home import Home
from assay.config.loading import load, stack
from assay.errors import StorageError, UsageError
from assay.launch.prepare import ReadyRun, ready
from assay.launch.progress import RunLines
from assay.launch.resume import run_to_resume, same_corpus
from assay.launch.spawn import claim_folder
from assay.optimizations import mesh_of
from assay.store.processes import this_process
from assay.store.run_folder import RunFolder
from assay.worker.processes.channel import Channel, SilentChannel, TorchrunChannel

if TYPE_CHECKING:
    from assay.parallel.process_rank import Meeting

_FOLDER, _SEEN, _BEGIN = "assay/folder", "assay/seen", "assay/begin"
"""Keys in the rendezvous store: rank 0 writes the first and last, each other rank writes its own under the second."""


@dataclass(frozen=True)
class Asked:
    """Arguments of the processes, the same on every host."""

    source: str
    """Preset, YAML file, or a run to resume."""
    overrides: Sequence[str] = ()
    optimizations: Sequence[str] = ()
    resume: bool = False


@contextmanager
def join_run(asked: Asked) -> Iterator[tuple[RunFolder, Channel]]:
    """Yield the folder of the run that all started processes train together, and this process's channel.

    Raises `UsageError`, on every rank, for a fault that the user can correct, and `StorageError` if the disk refuses.
    """
    if "RANK" not in os.environ:
        raise UsageError(
            f"{asked.source} is not the folder of a run; "
            f"start the worker under torchrun, or use assay train {asked.source}"
        )
    from assay.parallel.process_rank import meeting

    met = meeting()
    if met.rank == 0:
        with _begun(met, asked) as folder_and_voice:
            yield folder_and_voice
    else:
        yield _followed(met), SilentChannel()


@contextmanager
def _begun(met: "Meeting", asked: Asked) -> Iterator[tuple[RunFolder, Channel]]:
    home, tell = Home(), RunLines()
    try:
        folder, prepared = _prepared(home, asked, met, tell)
        with claim_folder(prepared, home, folder) as claim:
            known = this_process(os.getpid())
            if known is not None:
                claim.folder.write_process(known)
            _all_see(met, claim.folder)
            run = claim.spec.config
            begun = {"run": claim.folder.id, "steps": run.training.steps, "tokens_per_step": run.tokens_per_step}
            tell({"event": "run", **begun})
            yield claim.folder, TorchrunChannel(claim.folder.events_file, tell)
            result = claim.folder.result()
            if result is not None:
                claim.store.ingest(result, claim.folder.stamp())
    except (UsageError, StorageError) as error:
        met.say(_FOLDER, json.dumps({"refused": str(error)}))
        raise


def _prepared(home: Home, asked: Asked, met: "Meeting", tell: RunLines) -> tuple[RunFolder | None, ReadyRun]:
    """Return the folder of a resumed run (None for a new one) and the run, checked as far as one host can."""
    changes, techniques = [f"ranks={met.world}", *asked.overrides], stack(asked.optimizations)
    if asked.resume:
        folder, run = run_to_resume(home, asked.source, changes, techniques)
    else:
        folder, run = None, load(asked.source, changes, techniques)
    divided = mesh_of(run)
    if divided.size != met.world:
        raise UsageError(
            f"{met.world} processes were started, but the run uses {divided}; "
            "name techniques that divide it among all, for instance --with data_parallel"
        )
    prepared = ready(
        run,
        home,
        lambda message, fraction: tell({"event": "prepare", "message": message, "fraction": fraction}),
        ranks_here=met.world_here,
    )
    if folder is not None:
        same_corpus(folder, prepared)
    return folder, replace(prepared, preset=Path(asked.source).name)


def _all_see(met: "Meeting", folder: RunFolder) -> None:
    """Report the run's folder to the other ranks. Raises `UsageError` if one of them does not see it."""
    met.say(_FOLDER, json.dumps({"folder": str(folder.path)}))
    blind = [host for rank in range(1, met.world) if (host := met.hear(f"{_SEEN}/{rank}"))]
    met.say(_BEGIN, blind[0] if blind else "")
    if blind:
        raise UsageError(_unseen(blind[0], folder.path))


def _followed(met: "Meeting") -> RunFolder:
    """Receive the folder from rank 0. Raises `UsageError` if rank 0 refused the run or a rank cannot see the folder."""
    said = json.loads(met.hear(_FOLDER))
    if "refused" in said:
        raise UsageError(said["refused"])
    folder = RunFolder(said["folder"])
    met.say(f"{_SEEN}/{met.rank}", "" if folder.spec_file.exists() else socket.gethostname())
    blind = met.hear(_BEGIN)
    if blind:
        raise UsageError(_unseen(blind, folder.path))
    return folder


def _unseen(host: str, folder: Path) -> str:
    return f"the host {host} cannot see {folder}; set ASSAY_HOME to a folder that all hosts share"
