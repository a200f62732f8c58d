"""Work that a training step asks of an absent H200: launches, products, fills and copies, as `assay absent` counts.

    python benchmarks/absent_counts.py --python PYTHON [--beside FOLDER]

PYTHON is the Python of an environment with a CUDA build of torch and assay's requirements. FOLDER has nanoGPT's
`model.py`; its step is skipped without it. The steps are those whose device operations were counted on an H200
(`docs/measured/absent_counts.md`): GPT-2 124M without biases, 12 sequences of 1,024 tokens, compiled, bfloat16 and
clipped. It takes minutes, nearly all of them to compile.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
STACK = "bf16_mixed+compile+sdpa_attention:backend=flash+fused_adamw+vocab_padding:multiple=64"
STEPS = {
    "nanoGPT's": "nanogpt",
    "ours, figures read in each step": f"{STACK} training.read_every=1",
    "ours": STACK,
    "ours, batches ahead": f"{STACK}+pinned_prefetch",
}
"""Stacks by title, each with the settings that follow it."""
_TAKEN = 4


def nanogpts() -> None:
    """Take steps of nanoGPT as its `train.py` does."""
    import torch

    from model import GPT, GPTConfig

    config = GPTConfig(block_size=1024, vocab_size=50304, n_layer=12, n_head=12, n_embd=768, dropout=0.0, bias=False)
    model = GPT(config).cuda()
    optimizer = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cuda")
    compiled = torch.compile(model)
    for _ in range(_TAKEN):
        tokens = torch.randint(50257, (12, 1025)).pin_memory().to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            _, loss = compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def ours(stack: str, *settings: str) -> None:
    """Take steps of a stack of assay."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from assay import api
    from assay.optimizations.stack import resolve_run
    from assay.training.loop import read, take_step
    from support.steps import build_step

    model = ("model.bias=false", "model.vocab_size=50257")
    shape = (*model, "training.batch_size=12", "training.gradient_clip=1.0", "device=cuda", *settings)
    step = build_step(resolve_run(api.configure("gpt2-124m", shape, stack)))
    read(step, [take_step(step, index) for index in range(_TAKEN)])


def main() -> int:
    """Print the counts of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--beside", default="")
    given = parser.parse_args()
    from assay import api
    from assay.report.absent import COUNTS

    paths = [str(HERE.parent / "src"), given.beside, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    for title, which in STEPS.items():
        if which == "nanogpt" and not given.beside:
            print(f"{title}: skipped, because no folder has nanoGPT's model.py")
            continue
        answer = api.absent("h200", [given.python, __file__, "step", which])
        counted = {name: answer.per_step(name) for name in COUNTS}
        print(f"{title}:", ", ".join(f"{name} {one.median}" for name, one in counted.items() if one), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["step"]:
        nanogpts() if sys.argv[2] == "nanogpt" else ours(*sys.argv[2].split())
    else:
        sys.exit(main())
