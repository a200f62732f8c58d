"""Twenty changes of a training script, half of which cost memory: does a gate tell them apart?

A small GPT with autocast, checkpointed attention and fused AdamW is locked for the CPU and for an absent H100. Then
each change is made to the script alone, and the gate checks it. A Llama of transformers has a few changes of its own.

    python benchmarks/gate_changes.py --out docs/measured/gate.md
"""

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

DEVICES = ("cpu", "h100")
STEP = "train.py:build"

GPT = """
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WORDS, CONTEXT, WIDTH, HEADS, LAYERS, ROWS = 256, 32, 64, 4, 4, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (one.view(shape).transpose(1, 2) for one in self.qkv(x).split(WIDTH, dim=2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.between, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = x + checkpoint(self.attention, self.before(x), use_reentrant=False)
        made = self.mlp(self.between(x))
        return x + made


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build():
    torch.manual_seed(1337)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(WORDS, (ROWS, CONTEXT + 1), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            logits = model(ids[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step
"""
LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=192, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, use_cache=False)


def build():
    torch.manual_seed(1337)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(CONFIG).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(512, (2, 64), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()

    return step
"""


@dataclass(frozen=True)
class Change:
    """One change of a script."""

    name: str
    costs: bool
    """True if it costs memory."""
    replaced: tuple[tuple[str, str], ...]
    """Texts, each with the one in its place."""
    beside: str = ""
    """Text that moves to another file, `parts.py`."""

    def write(self, script: str, folder: Path) -> None:
        """Write the changed script. Raises `ValueError` if it has no such text."""
        text = script
        for was, now in self.replaced:
            if was not in text:
                raise ValueError(f"{self.name}: the script has no {was!r}")
            text = text.replace(was, now)
        (folder / "train.py").write_text(text)
        if self.beside:
            (folder / "parts.py").write_text(self.beside)


def _part(script: str, begin: str, end: str) -> str:
    return script[script.index(begin) : script.index(end)]


_MLP = _part(GPT, "class MLP", "class Block")
_ATTENTION = _part(GPT, "class Attention", "class MLP")
_HEAD = _part(GPT, "\nimport torch", "class Attention")
COSTS = (
    Change(
        "an activation kept", True, (("        return x + made", "        self.last = made\n        return x + made"),)
    ),
    Change("a float32 upcast", True, (("gelu(self.up(x))", "gelu(self.up(x).float())"),)),
    Change(
        "checkpointing dropped",
        True,
        (("checkpoint(self.attention, self.before(x), use_reentrant=False)", "self.attention(self.before(x))"),),
    ),
    Change("a bias", True, (("nn.Linear(WIDTH, WORDS, bias=False)", "nn.Linear(WIDTH, WORDS)"),)),
    Change("a larger MLP", True, (("4 * WIDTH", "5 * WIDTH"),)),
    Change("the graph kept", True, (("loss.backward()", "loss.backward(retain_graph=True)"),)),
    Change(
        "logits kept twice",
        True,
        (("            loss = ", "            model.logits = logits.detach().clone()\n            loss = "),),
    ),
    Change("gradients zeroed in place", True, (("set_to_none=True", "set_to_none=False"),)),
    Change("an optimizer in lists", True, (("fused=True", "foreach=True"),)),
    Change(
        "GELU by parts",
        True,
        (
            (
                "        return self.down(functional.gelu(self.up(x)))",
                "        x = self.up(x)\n"
                "        return self.down(0.5 * x * (1 + torch.tanh(0.7978846 * (x + 0.044715 * x * x * x))))",
            ),
        ),
    ),
)
COSTS_NOTHING = (
    Change("modules and classes renamed", False, (("MLP", "FeedForward"), ("self.mlp", "self.feed"), (".up", ".wide"))),
    Change(
        "reformatted",
        False,
        (
            (
                "(functional.gelu(self.up(x)))",
                "(\n            functional.gelu(\n                self.up(x)\n            )\n        )",
            ),
        ),
    ),
    Change("comments", False, (("    def step():\n", "    # One step of training.\n\n    def step():  # the loop\n"),)),
    Change("another seed", False, (("manual_seed(1337)", "manual_seed(42)"),)),
    Change("classes reordered", False, ((_ATTENTION + _MLP, _MLP + _ATTENTION),)),
    Change("docstrings", False, (("(nn.Module):\n", '(nn.Module):\n    """A part of the model."""\n\n'),)),
    Change(
        "a class moved to another file",
        False,
        ((_MLP, ""), ("from torch.utils", "from parts import MLP\nfrom torch.utils")),
        f"{_HEAD}{_MLP}",
    ),
    Change("another learning rate", False, (("lr=1e-3", "lr=3e-4"),)),
    Change(
        "types",
        False,
        (
            ("def forward(self, x):", "def forward(self, x: torch.Tensor) -> torch.Tensor:"),
            ("def step():", "def step() -> None:"),
        ),
    ),
    Change(
        "a function taken out",
        False,
        (
            ("class MLP", "def activated(x):\n    return functional.gelu(x)\n\n\nclass MLP"),
            ("self.down(functional.gelu(self.up(x)))", "self.down(activated(self.up(x)))"),
        ),
    ),
)
OF_LLAMA = (
    Change("a larger MLP", True, (("intermediate_size=192", "intermediate_size=256"),)),
    Change(
        "logits kept",
        True,
        (
            (
                "loss = model(input_ids=ids, labels=ids).loss",
                "model.last = model(input_ids=ids, labels=ids)\n        loss = model.last.loss",
            ),
        ),
    ),
    Change("gradients zeroed in place", True, (("set_to_none=True", "set_to_none=False"),)),
    Change("another seed", False, (("manual_seed(1337)", "manual_seed(42)"),)),
    Change("another learning rate", False, (("lr=1e-3", "lr=3e-4"),)),
    Change("the step renamed", False, (("def step():", "def train():"), ("return step", "return train"))),
)
SCRIPTS = {"GPT": (GPT, COSTS + COSTS_NOTHING), "Llama": (LLAMA, OF_LLAMA)}
"""Scripts with their changes."""


@dataclass(frozen=True)
class Told:
    """What the gate said of a change on one device."""

    script: str
    change: Change
    device: str
    failed: bool
    grown: str
    """Figures that grew, each with its change."""
    named: str
    """Block that grew most."""
    seconds: float
    """Seconds of a processor that the check took."""

    @property
    def right(self) -> bool:
        """True if the gate failed exactly if the change costs memory."""
        return self.failed is self.change.costs


def told(script: str, device: str, changes: tuple[Change, ...] | None = None) -> Iterator[Told]:
    """Lock a script for a device, and yield what the gate says of each change."""
    from assay import api
    from assay.report import view

    text, every = SCRIPTS[script]
    with tempfile.TemporaryDirectory() as home:
        lock, base = Path(home) / "assay-gate.json", Path(home) / "base"
        base.mkdir()
        (base / "train.py").write_text(text)
        api.gate_update([STEP], [device], lock=base / lock.name, folder=base)
        for place, change in enumerate(every if changes is None else changes):
            folder = Path(home) / str(place)
            folder.mkdir()
            change.write(text, folder)
            (folder / lock.name).write_bytes((base / lock.name).read_bytes())
            before = _processor_seconds()
            found = api.gate_check([STEP], [device], folder=folder)
            seconds = _processor_seconds() - before
            (step,) = view(found).values()["steps"]
            yield Told(script, change, device, step["failed"], *_grown(step), seconds)


def _processor_seconds() -> float:
    """Return the seconds of processors that this process and its children have had so far."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _grown(step: dict) -> tuple[str, str]:
    grown = {
        name: pair["now"] - pair["locked"] for name, pair in step["figures"].items() if pair["now"] > pair["locked"]
    }
    blocks = [one for name in grown for one in step["changed"].get(name, ()) if one["now"] > one["locked"]]
    first = " ".join(filter(None, (blocks[0]["path"], blocks[0]["operator"], blocks[0]["line"]))) if blocks else ""
    return ", ".join(f"{name.removesuffix('_bytes')} +{change:,}" for name, change in grown.items()), first


def page(found: list[Told], command: str) -> str:
    """Return the page with a row for each change."""
    import torch

    right, slowest = sum(one.right for one in found), max(one.seconds for one in found)
    lines = [
        "# Changes that a gate tells apart",
        "",
        "Each change is made alone to a script that was locked; the gate then checks it. A small GPT has autocast, "
        "checkpointed attention and fused AdamW; the Llama is that of transformers. The gate should fail for changes "
        "that cost memory or work, and for no other. Each figure that grew is followed by its change in bytes or "
        "FLOPs, and the block that grew most is named.",
        "",
        f"torch {torch.__version__}, Python {sys.version.split()[0]}; {datetime.date.today()}: `{command}`. "
        f"{right} of {len(found)} told apart; no check took more than {slowest:.1f} s of a processor.",
        "",
        "| script | change | device | costs | gate | grew | named first |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        said = "fails" if one.failed else "passes"
        cells = (
            one.script,
            one.change.name,
            one.device,
            "yes" if one.change.costs else "no",
            said,
            one.grown,
            one.named,
        )
        lines.append(f"| {' | '.join(cell.replace('*', chr(92) + '*') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check every change, and write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    scripts = [one for one in SCRIPTS if one != "Llama" or find_spec("transformers") is not None]
    found: list[Told] = []
    for script in scripts:
        for device in DEVICES:
            for one in told(script, device):
                print(f"{one.script} {one.device} {one.change.name}: {one.right} {one.seconds:.1f} s")
                found.append(one)
    if out is not None:
        out.write_text(page(found, f"python benchmarks/gate_changes.py --out {out}"))
    return 0 if all(one.right for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
