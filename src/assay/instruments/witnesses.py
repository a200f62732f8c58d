"""Counts that a program's witnesses make during one step, for its trace.

A dispatch mode cannot see a replayed graph, compiled code, a copy outside of autograd or another process. A
technique that uses one adds a witness to its program. Here each kind of witness is prepared for the step, and read
after it.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from assay.instruments.compiled import GraphCalls
from assay.instruments.memory.offloaded import MovedTensors
from assay.instruments.memory.saved import SavedTensors
from assay.records.trace import CompiledGraph, Graphs
from assay.step.activation_offload import Offload
from assay.step.compiled import Captures, graph_breaks
from assay.step.graphs import StepGraphs
from assay.step.prepared import PreparedSequences
from assay.step.program import Context, Program
from assay.step.saved_results import Keeper


class WitnessCounts:
    """Counts of one step of a program while `watched` is entered; `weights` has identities of their storages."""

    def __init__(self, program: Program, weights: set[int]) -> None:
        self._keepers = program.witnesses_of(Keeper)
        self._offload, self._moved = program.witness(Offload), MovedTensors(weights)
        self._captures = program.witness(Captures)
        self._graphs = program.witness(StepGraphs)
        self._prepared = program.witnesses_of(PreparedSequences)
        self.sequences: Mapping[str, int] = {}
        """Number of the step's sequences that each maker prepared."""

    @contextmanager
    def watched(self, calls: GraphCalls, saved: SavedTensors) -> Iterator[None]:
        """Context of the step: compiled code reports to `calls`, and kept tensors to `saved`."""
        before = [one.sequences for one in self._prepared]
        with ExitStack() as stack:
            for keeper in self._keepers:
                keeper.watcher = saved.note
                stack.callback(setattr, keeper, "watcher", None)
            if self._captures is not None:
                stack.enter_context(self._captures.watched(calls.watch))
            if self._graphs is not None:
                stack.enter_context(self._graphs.observed())
            yield
        made = ((one.by, one.sequences - earlier) for one, earlier in zip(self._prepared, before, strict=True))
        self.sequences = {by: count for by, count in made if count}

    @property
    def makers(self) -> Mapping[str, int]:
        """Number of makers of batches, by kind."""
        return {one.by: one.makers for one in self._prepared if one.makers}

    def step_contexts(self, program: Program) -> tuple[Context, ...]:
        """Return the contexts of a step, with those of offloading looked at."""
        around = self._moved.around
        return tuple(partial(around, one) if one is self._offload else one for one in program.step_contexts)

    @property
    def offloaded(self) -> Mapping[str, int]:
        """Fields of `Memory` of tensors that were saved on another device."""
        moved = self._moved
        return {
            "offloaded_saved_bytes": moved.moved_bytes,
            "unmoved_saved_bytes": moved.unmoved_bytes,
            "moved_weight_bytes": moved.weight_bytes,
        }

    def graphs(self, compiled: tuple[CompiledGraph, ...], captured_contractions: int) -> Graphs:
        """Return the record of all graphs, given what the recorder saw of them."""
        return Graphs(
            compiled=compiled,
            graph_breaks=0 if self._captures is None else graph_breaks(),
            training_graphs=0 if self._captures is None else self._captures.trained,
            graph_replays=0 if self._graphs is None else self._graphs.replays,
            captured_contractions=captured_contractions,
        )
