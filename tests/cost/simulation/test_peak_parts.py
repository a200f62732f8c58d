"""The parts of a predicted peak sum to it, for random configurations and for stacks over ranks; figures by hand."""

from collections import Counter
from pathlib import Path

import pytest

from assay.config import Run, Spec, load
from assay.config.loading import stack as specs
from assay.cost.simulation.allocator import Category, Part, Storage
from assay.cost.simulation.timeline import CATEGORIES, PARTS, Sorted, compose_peak, peak_blocks, replay
from assay.estimator import Estimate, estimate
from assay.estimator.every_rank import estimate_every_rank
from assay.hardware import Machine
from assay.optimizations import resolve
from support.peaks import MACHINE
from support.runs import ON_ONE_DEVICE, SHAPE, run_with

CLUSTER = Machine(processor="any", cores=8, memory_bytes=2**40)
ON_TWO = (
    "data_parallel+gradient_accumulation:micro_batches=2",
    "fully_sharded+bf16_mixed+activation_checkpointing",
    "fully_sharded:mixed_precision=true+gradient_accumulation:micro_batches=2",
    "zero_optimizer",
    "tensor_parallel+sequence_parallel",
    *(f"pipeline_parallel:schedule={one}" for one in ("gpipe", "1f1b", "interleaved", "zero-bubble")),
)
ON_CUDA = ("cuda_graphs", "cuda_graphs+fused_adamw", "cpu_offload", "activation_offload", "pinned_prefetch")
COMPILED = ("compile", "compile+sdpa_attention+bf16_mixed+activation_checkpointing")


def run_of(stack: str, *overrides: str) -> Run:
    shape = ("model.vocab_size=256", "model.n_layer=4", "training.batch_size=8")
    return load("demo", [*shape, *overrides], specs([stack]))


def assert_sums(found: Estimate) -> None:
    parts, peak = found.peak_parts, found.timeline.peak.nbytes
    assert sum(parts.values()) == peak, (parts, peak)
    assert all(nbytes > 0 for nbytes in parts.values()), parts
    assert list(parts) == [part for part in PARTS if part in parts]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_the_parts_of_a_random_configuration_sum_to_its_peak(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    from random_peaks import drawn  # type: ignore[import-not-found]

    for number in range(first, first + 20):
        assert_sums(estimate(drawn(number), MACHINE))


class Looking(Sorted):
    """A ledger that sorts the storages alive at each of its highest instants anew, one by one."""

    def __init__(self, live: int) -> None:
        super().__init__(live)
        self.alive: set[Storage] = set()

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        storage = super().take(nbytes, category, site)
        self.alive.add(storage)
        return storage

    def drop(self, storage: Storage) -> None:
        super().drop(storage)
        if storage.holders == 0:
            self.alive.discard(storage)

    def mark(self, phase: str, operation: str, site: str) -> Part | None:
        part = super().mark(phase, operation, site)
        if part is not None and phase != "update":
            found = dict.fromkeys(PARTS, 0)
            for storage in self.alive:
                found[part_of(storage)] += storage.nbytes
            # Buffers whose tensors were replaced are among the tables.
            found["tables and buffers"] = self.counts["tables and buffers"]
            assert self.counts == found
        return part


def part_of(storage: Storage) -> str:
    """The part of a storage by its category, and by the names in its site."""
    if storage.category is Category.GRADIENT:
        return "gradients"
    if storage.category is not Category.ACTIVATION:
        words = {"COPY": "copies of weights", "GENERATOR": "saved: generator states", "BATCH": "token ids and targets"}
        words |= {"ACTIVATION_GRADIENT": "gradients of activations", "GATHERED": "gathered weights"}
        return (words | {"MESSAGE": "messages of collectives", "TEMPORARY": "temporaries"})[storage.category.name]
    if not storage.saved:
        return "activations in use"
    names = storage.site.replace("blocks.", "").split(".")
    if any(name.endswith("norm") for name in names[1:2]):
        return "saved: norms"
    if names[0] in ("embedding", "head"):
        return {"embedding": "saved: embedding", "head": "saved: logits and loss"}[names[0]]
    kinds = {"attention": "saved: attention", "mlp": "saved: MLP"}
    return next((kinds[name] for name in names[1:2] if name in kinds), "saved: residual stream")


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_search_through_all_storages_sorts_them_alike(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    from random_peaks import drawn

    for number in range(first, first + 20):
        cost = estimate(drawn(number), MACHINE).cost
        assert replay(cost, Looking(cost.held_bytes)) == replay(cost) == compose_peak(cost).timeline
        made = (tensor for operation in cost.tape for tensor in (*operation.outputs, *operation.extras))
        assert all(cost.sizes[tensor.name] == tensor.nbytes for tensor in made)


EVERYWHERE = (
    "sdpa_attention",
    "activation_checkpointing",
    "gradient_accumulation:micro_batches=4",
    "cuda_graphs",
    "cpu_offload",
)


def test_every_part_has_one_category() -> None:
    members = [part for parts in CATEGORIES.values() for part in parts]
    assert sorted(members) == sorted(PARTS)


@pytest.mark.parametrize("stack", EVERYWHERE)
def test_the_parts_of_every_instant_sum_to_it(stack: str) -> None:
    found = estimate(run_of(stack, "device=cuda"), CLUSTER)
    instants = found.timeline.instants
    parts = list(map(found.composed.parts, instants))
    assert [sum(one.values()) for one in parts] == [moment.nbytes for moment in instants]
    assert found.peak_parts in parts
    layers = found.composed.layers()
    assert set(layers) <= set(CATEGORIES)
    assert [sum(counts) for counts in zip(*layers.values(), strict=True)] == [moment.nbytes for moment in instants]


@pytest.mark.parametrize("stack", ON_TWO)
def test_the_parts_of_each_rank_sum_to_its_peak(stack: str) -> None:
    for one in estimate_every_rank(run_of(stack, "ranks=2"), CLUSTER).ranks:
        assert_sums(one)


@pytest.mark.parametrize("stack", ON_CUDA)
def test_the_parts_sum_on_a_gpu(stack: str) -> None:
    assert_sums(estimate(run_of(stack, "device=cuda"), CLUSTER))


@pytest.mark.parametrize("stack", COMPILED)
def test_the_parts_of_compiled_blocks_sum(stack: str) -> None:
    assert_sums(estimate(run_of(stack, "device=cpu"), CLUSTER))


def test_the_parts_of_the_demonstration_are_those_counted_by_hand() -> None:
    """The peak is in the backward of the log-softmax: everything saved, and two gradients of logits."""
    found = estimate(run_of("fused_adamw", "device=cpu"), MACHINE)
    model, rows = found.run.model, found.run.training.batch_size * found.run.model.context_length
    numbers, layers = rows * model.n_embd, model.n_layer
    scores = found.run.training.batch_size * model.n_head * model.context_length**2
    assert found.timeline.peak.label == "backward: LogSoftmaxBackward"
    assert found.peak_parts == {
        "weights": found.cost.parameter_bytes,
        "optimizer state": found.cost.optimizer_state_bytes,
        "tables and buffers": model.context_length**2,
        "saved: embedding": 4 * numbers,
        # Results and statistics of two norms a block, and of the last one.
        "saved: norms": (2 * layers + 1) * (4 * numbers + 2 * 4 * rows),
        # Query, key, value, their merged values, and the probabilities.
        "saved: attention": layers * 4 * (4 * numbers + scores),
        # Inputs and results of GELU, four times as wide.
        "saved: MLP": layers * 4 * (4 * numbers + 4 * numbers),
        "saved: residual stream": layers * 2 * 4 * numbers,
        "saved: logits and loss": 4 * rows * 256,
        "gradients of activations": 2 * 4 * rows * 256,
        # Each block's scale of the scores; the loss, its quotient, the gradient of that, and the norms of two blocks.
        "figures and wrapped numbers": layers * 8 + 5 * 4,
    }


def test_recomputed_blocks_save_their_inputs_only() -> None:
    run = run_of("activation_checkpointing", "model.vocab_size=4096", "device=cpu")
    parts = estimate(run, MACHINE).peak_parts
    assert parts.keys().isdisjoint({"saved: attention", "saved: MLP"})
    numbers = run.training.batch_size * run.model.context_length * run.model.n_embd
    # The first block's input is the embedding's result.
    assert parts["saved: residual stream"] == 4 * 4 * numbers


def test_a_pass_in_low_precision_has_copies_of_weights() -> None:
    parts = estimate(run_of("bf16_mixed", "device=cpu"), MACHINE).peak_parts
    assert 0 < parts["copies of weights"] <= parts["weights"] / 2
    assert "copies of weights" not in estimate(run_of("fused_adamw"), MACHINE).peak_parts


STACKS = (
    "sdpa_attention+bf16_mixed+activation_checkpointing",
    "gradient_accumulation:micro_batches=4+deferred_metrics",
    "cpu_offload",
    "fused_adamw+chunked_cross_entropy",
)


def on_cuda(*wanted: Spec, **model: object) -> Run:
    run = run_with(*wanted, model=SHAPE.model_copy(update=model))
    training = run.training.model_copy(update={"read_every": 1})  # deferred_metrics reads several steps together
    return run.model_copy(update={"device": "cuda", "training": training})


def assert_the_parts_in_pieces(run: Run) -> None:
    found = estimate(run, MACHINE)
    blocks = peak_blocks(found.cost, found.timeline.peak.nbytes)
    parts: Counter[str] = Counter()
    for (nbytes, part), count in blocks.items():
        assert count > 0
        parts[part] += nbytes * count
    assert {part: nbytes for part, nbytes in parts.items() if nbytes} == found.peak_parts


WITHOUT_BLOCKS = ("cuda_graphs", "compile", "streaming")
"""A captured graph has a pool, compiled code on a GPU needs Triton, and a stream a folder."""


@pytest.mark.parametrize("name", [one for one in ON_ONE_DEVICE if one not in WITHOUT_BLOCKS])
def test_blocks_sum_to_the_parts_of_the_peak(name: str) -> None:
    assert_the_parts_in_pieces(
        on_cuda(resolve(Spec(name=name)).spec(), tie_embeddings=name not in ("mup", "weight_tying"))
    )


@pytest.mark.parametrize("stack", ["", *STACKS])
def test_blocks_of_stacks_sum_to_the_parts_of_the_peak(stack: str) -> None:
    assert_the_parts_in_pieces(on_cuda(*(specs([stack]) if stack else ())))


def test_only_one_gpu_has_known_blocks() -> None:
    run = on_cuda()
    known = estimate(run, MACHINE).peak_blocks
    assert {"weights", "optimizer state"} <= {one["made"] for one in known}
    assert estimate(run.model_copy(update={"device": "cpu"}), MACHINE).peak_blocks == []
    assert estimate(on_cuda(*specs(["cuda_graphs"])), MACHINE).peak_blocks == []
    two = run_with(*specs(["data_parallel"]), ranks=2).model_copy(update={"device": "cuda"})
    assert estimate(two, MACHINE).peak_blocks == []
