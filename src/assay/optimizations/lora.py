"""Freeze all weights, and train a low-rank correction beside the linear layers of the blocks (LoRA).

    y = W·x + (alpha / rank)·B·A·x        A: rank × in, B: out × rank, B = 0 at the start        (arXiv:2106.09685)

The loss is that of another training: few parameters move, from the same start. LoRA is meant for weights that are
trained already (`model.init_from`). Beside random weights, which stay random, adapters learn little.

Only adapters have gradients and optimizer state, which is what LoRA saves. Saved activations stay. Gradients flow
through every frozen layer down to the first adapter, and each adapter saves its layer's input as the weight did.
Mixed precision also saves 16-bit copies of frozen weights. So where activations and logits fill the memory, LoRA needs
nearly as much as full training, and checkpointing helps there. A step still multiplies by all weights, forward and
backward. It spares the products for gradients of weights, a third of the work, and adds thin ones.

Queries, keys and values are one matrix here and share an adapter, as in PEFT's `c_attn` of GPT-2. Checkpoints have both
kinds of weights, so `--resume` continues. `assay export` and `assay sample` merge them: W + (alpha / rank)·B·A. The
value check compares losses and gradients with those of the merged model. In a mixture of
experts only attention has adapters (`targets=attention`). Over several ranks the model is whole or sharded on each.

With `base=nf4` the matrices that have an adapter are rounded once, before the first step, and kept in 4 bits a number:
QLoRA (arXiv:2305.14314), with one float32 scale for each block of 64 numbers, as bitsandbytes does by default. They
take 4.5 bits a number at rest. No 16-bit copy is saved. A product unpacks its matrix for a moment in the dtype in which
it multiplies, plus at most 6 MB, and backward unpacks it again. That costs time in both directions. A checkpoint has
the rounded numbers in float32, which pack to the same bytes. The loss is that of the rounded model.
Not here: scales in 8 bits (double quantization), paged optimizers, and 4-bit weights over ranks or in a mixture. Nor
are dropout on adapters, adapters of experts, compiled adapters, and ranks that divide a model's layers.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from assay.config import ModelConfig, ResolvedRun
from assay.config.run import Scalar
from assay.cost.operation import Tensor as Matrix
from assay.cost.rewrites.four_bits import BLOCK, INDEXED, LOOKUP, packed_form, unpackings
from assay.cost.rewrites.low_rank import adapt_ledger, adapted_layers, base_weights, is_adapter
from assay.cost.step_cost import baseline
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import REASSOCIATED, Expected
from assay.reference.merged_weights import Adapters

if TYPE_CHECKING:
    from torch import Tensor

    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


_REPLICAS = "use data_parallel, zero_optimizer or fully_sharded"
_NARROW = "{other} keeps all weights in 16 bits, and lora:base=nf4 packs float32 ones; use bf16_mixed"
_CODED = 4096
"""Numbers from which torchao keeps a moment in 8 bits."""


class Lora(Optimization):
    """Low-rank adapters beside frozen weights."""

    rank: PositiveInt = 8
    """Rank r of an adapter: A has r rows, and B has r columns."""
    alpha: PositiveFloat = 16.0
    """Numerator of the factor alpha / rank on the adapter's result."""
    targets: Literal["all-linear", "attention", "mlp"] = "all-linear"
    """Linear layers of the blocks that have an adapter: `attention` as in the paper, `mlp`, or both (PEFT's
    `target_modules=all-linear`)."""

    base: Literal["model", "nf4"] = "model"
    """Form of the weights that have an adapter. `nf4`: 4 bits a number, and a scale for each block of 64 (QLoRA)."""

    title: ClassVar = "low-rank adapters (LoRA)"
    stage: ClassVar = Stage.ADAPTER
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = (
        "gradients and optimizer state of all weights but the adapters; a third of the products; with `base=nf4` "
        "86 % of their layers' weights"
    )
    pays: ClassVar = (
        "another training, of few parameters; two thin products beside each layer; saved activations stay; with "
        "`base=nf4` each product unpacks its matrix"
    )
    sources: ClassVar = (
        "arXiv:2106.09685",
        "arXiv:2305.14314",
        "github.com/microsoft/LoRA",
        "github.com/huggingface/peft",
    )
    traits: ClassVar = frozenset({"frozen weights"})

    @classmethod
    def choices(cls, run: ResolvedRun) -> tuple[dict[str, Scalar], ...]:
        """Frozen weights as they are, and in 4 bits."""
        return ({}, {"base": "nf4"})

    @property
    def scale(self) -> float:
        """Factor on an adapter's result."""
        return self.alpha / self.rank

    @property
    def _packs(self) -> bool:
        return self.base == "nf4"

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        wide = max(prod(one) for one in self._adapters(run.model).shapes(run.model).values())
        few = "{other} codes matrices of 4,096 numbers or more, and these adapters have fewer; use adamw_bf16_state"
        return ({} if wide >= _CODED else {"8-bit state": few}) | {
            "compiler": "lora is not compiled, as its peak is not known then; leave out {other} or lora",
            "matrices": f"lora adapts whole matrices, and {{other}} splits them; {_REPLICAS}",
            "stages": f"lora adapts a whole model, and {{other}} divides it into stages; {_REPLICAS}",
            "activations between matrices": f"lora reads all positions, and {{other}} divides them; {_REPLICAS}",
            "exchanged experts": f"lora adapts a model with all its experts, and {{other}} divides them; {_REPLICAS}",
            "tied weights": "lora keeps given weights frozen, and {other} replaces the head's; leave one of them out",
            "weights of another kind": "lora adapts plain linear layers, and {other} replaces them; use bf16_mixed",
            **({"16-bit state": _NARROW} if self._packs else {}),
        }

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.n_expert is not None and self.targets != "attention":
            raise Conflict("experts are stacks of matrices without adapters; use lora:targets=attention")
        if self._packs:
            self._check_packed(run)
        smallest = min(run.model.n_embd, run.model.hidden, run.model.heads_width)
        if self.rank > smallest:
            raise Conflict(f"lora:rank={self.rank} is no low rank for layers of {smallest}; choose at most {smallest}")

    def _check_packed(self, run: ResolvedRun) -> None:
        """Raise `Conflict` if the run's base cannot be packed."""
        if run.ranks > 1:
            raise Conflict("lora:base=nf4 runs on one device only; over several ranks use lora:base=model")
        if run.model.n_expert is not None:
            raise Conflict("most weights of a mixture are experts, which lora:base=nf4 does not pack; use base=model")
        for name, one in self._base(run.model).items():
            if one.elements % BLOCK:
                sides, layer = "×".join(map(str, one.shape)), name.removesuffix(".weight")
                raise Conflict(f"lora:base=nf4 packs blocks of {BLOCK} numbers, and {layer} of {sides} is no multiple")

    def remarks(self, run: ResolvedRun) -> tuple[str, ...]:
        if run.model.init_from is not None:
            return ()
        return ("lora trains adapters beside random weights, which learns little; set model.init_from to trained ones",)

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return self._adapt(cost, run.model)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.model.adapted_linear import adapt, begin_adapters, pack_frozen

        for part in program.parts:
            adapt(part, adapted_layers(run.model, self.targets), self.rank, self.scale)
        names = (name for part in program.parts for name, _ in part.named_parameters())
        initialize = begin_adapters(program.weights.initialize, run.seed)
        frozen = frozenset(name for name in names if not is_adapter(name))
        packed = {name: one for part in program.parts for name, one in pack_frozen(part).items()} if self._packs else {}
        weights = replace(program.weights, initialize=initialize, frozen=frozen, packed=packed)
        return replace(program, weights=weights)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.changed(adapters=self._adapters(run.model)).loosened(gradients=REASSOCIATED)

    def model_weights(self, weights: "Mapping[str, Tensor]", model: ModelConfig) -> "Mapping[str, Tensor]":
        return {name: one.to(weights[name].dtype) for name, one in self._adapters(model).merged(weights).items()}

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        whole = {name: prod(one.shape) for name, one in self._base(run.model).items()}
        numbers, total = (
            sum(whole.get(one.name) or prod(one.whole_shape) for one in some)
            for some in (trace.trained, trace.parameters)
        )
        trained, updated = ({one.name for one in some} for some in (trace.trained, trace.optimizer.updates))
        shapes = self._adapters(run.model).shapes(run.model)
        right = {one.name for one in trace.trained if one.whole_shape == shapes.get(one.name)}
        observed = (
            f"{numbers} of {total} parameters trained, in {len(right)} of {len(shapes)} matrices of adapters of rank "
            f"{self.rank}; {len((trained | updated) - right)} other weights trained or updated"
        )
        verdict = right == shapes.keys() == trained == updated
        if self._packs:
            said, packs = self._packed(trace, run)
            observed, verdict = f"{observed}; {said}", verdict and packs
        return self.evidence(observed, verdict)

    def _packed(self, trace: Trace, run: ResolvedRun) -> tuple[str, bool]:
        """Return what the trace shows of the packed matrices: their bytes, and how often they were unpacked."""
        due = {name: packed_form(one).nbytes for name, one in self._base(run.model).items()}
        held = {one.name: one.held_bytes for one in trace.parameters if one.dtype == "uint8"}
        forward, backward = (count * trace.forwards for count in unpackings(self._adapt(baseline(run), run.model).tape))
        found, again = (trace.count(LOOKUP, phase=phase, dtype=INDEXED) for phase in ("forward", "backward"))
        said = (
            f"{len(held)} of {len(due)} matrices in {sum(held.values())} of {sum(due.values())} bytes; {found} of "
            f"{forward} lookups in forward and {again} of {backward} in backward"
        )
        return said, held == due and (found, again) == (forward, backward)

    def _base(self, model: ModelConfig) -> "Mapping[str, Matrix]":
        """Return the matrices that are packed, by name, in their own shapes; none if they stay as they are."""
        return base_weights(model, adapted_layers(model, self.targets) if self._packs else ())

    def _adapt(self, cost: "Cost", model: ModelConfig) -> "Cost":
        return adapt_ledger(cost, adapted_layers(model, self.targets), self.rank, packs=self._packs)

    def _adapters(self, model: ModelConfig) -> Adapters:
        layers = adapted_layers(model, self.targets)
        return Adapters(layers=layers, rank=self.rank, scale=self.scale, packs=self._packs)
