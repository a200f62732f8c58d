"""Small scripts against which an absent GPU must be right, or say in a sentence what it cannot tell.

Each has the lines of a script after `import torch` and `x`, a matrix of 100 × 100 on the device. `fit` is the answer,
`how` the end (`killed` if nothing was written), `says` a phrase of the report, and `prints` the last line of output.
"""

from typing import NamedTuple


class Hostile(NamedTuple):
    """One script, and what must come of it."""

    name: str
    text: str
    fit: str = "yes"
    how: str = "finished"
    says: str = ""
    prints: str | None = None


SIZES = (
    Hostile("boolean mask", "x[x > 0]", "unknown", says="index_Tensor"),
    Hostile("where of one argument", "torch.where(x > 0)", "unknown", says="(where)"),
    Hostile("argwhere", "torch.argwhere(x > 0)", "unknown", says="argwhere"),
    Hostile("assignment by a mask", "x[x > 0] = 0\nprint(x.sum().item())", prints="0.0"),
    Hostile("assignment of as many rows", "x[x > 0] = x[x > 0] * 2", "unknown", says="index_Tensor"),
    Hostile("sparse rows", "x.to_sparse_csr()", "unknown", says="to_sparse_csr"),
    Hostile("sparse product", "torch.sparse.mm(x.to_sparse(), x)", "unknown", says="to_sparse"),
    Hostile("runs of equal numbers", "torch.unique_consecutive(x)", "unknown", says="unique"),
    Hostile(
        "a length that is read",
        "n = (x.long() + 3).max().item()\ntorch.zeros(n, 10, device='cuda')",
        says="if no size hangs on the whole numbers that it reads",
    ),
    Hostile(
        "lengths of a split",
        "counts = torch.bincount((x[0] > 0).long(), minlength=2).tolist()",
        "unknown",
        says="bincount",
    ),
    Hostile("a number that was sent", "n = torch.tensor(5, device='cuda').item()\nprint(n)", prints="5"),
)
"""Shapes that hang on values."""

LOOPS = (
    Hostile(
        "while any is positive", "while (x > 0).any():\n    x = x - 1", "unknown", "endless", "had read 10,000 times"
    ),
    Hostile(
        "while less than one", "while x[0, 0].item() < 1:\n    x += 1", "unknown", "endless", "had read 10,000 times"
    ),
    Hostile("early stop", "best = 1.0\nwhile x.mean().item() < best:\n    best = -1\nprint(best)", prints="-1"),
    Hostile("no nan", "assert torch.isfinite(x.sum()) and not torch.isnan(x).any()\nprint('fine')", prints="fine"),
    Hostile("division by a value", "print(1 / x.sum().item())", "unknown", "raised", "ZeroDivisionError"),
)
"""Values that decide how a script goes on."""

PRODUCTS = (
    Hostile("complex", "y = x.to(torch.cfloat)\nprint((y @ y).abs().sum().item())", prints="0.0"),
    Hostile("double batches", "torch.bmm(x.double()[None], x.double()[None])"),
    Hostile("whole numbers", "y = torch.ones(32, 32, dtype=torch.int8, device='cuda')\ntorch._int_mm(y, y)"),
    Hostile("vectors", "torch.dot(x[0], x[0])\ntorch.mv(x, x[0])\ntorch.outer(x[0], x[0])"),
    Hostile("einsum", "torch.einsum('ij,kj->ik', x, x)"),
    Hostile("deterministic", "torch.use_deterministic_algorithms(True)\nx @ x"),
    Hostile("decompositions", "torch.linalg.svd(x)\ntorch.linalg.inv(x)", "conditional", says="cuSOLVER"),
    Hostile("solutions", "torch.linalg.qr(x)\ntorch.linalg.solve(x, x)", "conditional", says="cuSOLVER"),
    Hostile("eigenvalues", "torch.linalg.eig(x)", "conditional", says="cuSOLVER"),
    Hostile("transform", "torch.fft.ifft2(torch.fft.fft2(x))", "conditional", says="cuFFT"),
)
"""Products and other linear algebra."""

LAYERS = (
    Hostile("recurrent", "torch.nn.LSTM(8, 8).cuda()", "unknown", "raised", "cuDNN's recurrent kernels"),
    Hostile(
        "recurrent without cuDNN",
        "torch.backends.cudnn.enabled = False\ntorch.nn.GRU(100, 8, 2, bidirectional=True).cuda()(x[None])",
    ),
    Hostile("ctc", "torch.nn.functional.ctc_loss(x[:50, None, :20], torch.ones(1, 9).long(), (50,), (9,))"),
    Hostile(
        "convolution",
        "torch.backends.cudnn.benchmark = True\ntorch.nn.Conv2d(1, 8, 3).cuda()(x[None, None]).sum().backward()",
        "conditional",
        says="cuDNN",
    ),
    Hostile("half convolution", "torch.nn.ConvTranspose2d(1, 8, 3).cuda().half()(x[None, None].half())", "conditional"),
    Hostile("resizing", "torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode='bicubic')"),
    Hostile(
        "sparse gradients",
        "m = torch.nn.EmbeddingBag(100, 3, sparse=True).cuda()\nm(x.abs().long() % 9).sum().backward()\n"
        "torch.optim.SparseAdam(m.parameters()).step()",
        "unknown",
        says="coalesce",
    ),
    Hostile("scans and scatters", "x.cumsum(0)\nx[0].kthvalue(3)\nx.scatter_add(0, (x > 9).long(), x).median()"),
    Hostile("nested", "y = torch.nested.nested_tensor([x[:3], x], layout=torch.jagged)\n(y * 2).sum()"),
    Hostile(
        "checkpoint",
        "from torch.utils.checkpoint import checkpoint\nm = torch.nn.Linear(100, 100).cuda()\n"
        "checkpoint(m, x, use_reentrant=False).sum().backward()",
    ),
    Hostile(
        "closures",
        "w = torch.ones(100, device='cuda', requires_grad=True)\no = torch.optim.LBFGS([w])\n"
        "def loss():\n    o.zero_grad()\n    l = (x @ w).sum()\n    l.backward()\n    return l\no.step(loss)",
    ),
    Hostile("categories", "torch.nn.functional.one_hot(torch.ones(3, device='cuda').long(), 5)"),
    Hostile("samples", "print(torch.multinomial(x[0].abs(), 2).tolist())", says="whole numbers"),
)
"""Layers and operators."""

VALUES = (
    Hostile(
        "formats", "y = x.mean()\nprint(f'{y:.1f} {float(y)} {int(y)} {y.item():e}')", prints="0.0 0.0 0 0.000000e+00"
    ),
    Hostile("bytes", "print((torch.zeros(3, dtype=torch.uint8, device='cuda') + 1).sum().item())", prints="0"),
    Hostile("all bools", "print(torch.equal(x, x), bool((x == x).all()))", prints="True True"),
    Hostile("an index", "print(['a', 'b'][x[0, :2].argmax()])", prints="a"),
    Hostile("a key that was sent", "print({3: 'three'}[torch.tensor(3, device='cuda').item()])", prints="three"),
    Hostile(
        "arrays", "import numpy\nprint(torch.from_numpy(numpy.arange(9.0)).cuda().cpu().numpy().sum())", prints="36.0"
    ),
    Hostile("array of a device", "import numpy\nnumpy.asarray(x)", "unknown", "raised", "TypeError"),
    Hostile("text of many", "torch.set_printoptions(threshold=5)\nprint(x, x.half(), x.bool())"),
    Hostile("tests of values", "torch.testing.assert_close(x, x)\nprint(torch.allclose(x, x))"),
    Hostile(
        "a reused block",
        "y = torch.arange(9, device='cuda').sum()\ndel y\nprint(torch.ones(1, device='cuda').item())",
        prints="0.0",
    ),
    Hostile(
        "saved and loaded",
        "y = torch.arange(9).cuda()\ntorch.save(y, 'y')\nprint(torch.load('y').tolist()[8])",
        prints="8",
    ),
    Hostile(
        "a device's noise", "s = torch.cuda.get_rng_state()\ntorch.cuda.set_rng_state(s)\nprint(len(s))", prints="16"
    ),
)
"""Values that the host reads."""

MACHINERY = (
    Hostile(
        "captured",
        "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    y = (x * 2).sum()\ng.replay()\nprint(y.item())",
        prints="0.0",
    ),
    Hostile(
        "a wait in a capture",
        "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    torch.cuda.synchronize()",
        "unknown",
        "raised",
        "operation",
    ),
    Hostile(
        "graphed callables",
        "m = torch.nn.Linear(100, 8).cuda()\nf = torch.cuda.make_graphed_callables(m, (x,))\nf(x).sum().backward()",
    ),
    Hostile(
        "forty streams",
        "for _ in range(40):\n    with torch.cuda.stream(torch.cuda.Stream()):\n        x + 1",
    ),
    Hostile(
        "external stream",
        "s = torch.cuda.Stream()\nprint(torch.cuda.ExternalStream(s.cuda_stream).query())",
        prints="True",
    ),
    Hostile("sleep", "torch.cuda._sleep(10**9)\ntorch.cuda.synchronize()"),
    Hostile("ranges", "torch.cuda.nvtx.range_push('a')\ntorch.cuda.nvtx.range_pop()"),
    Hostile(
        "properties",
        "p = torch.cuda.get_device_properties(0)\nprint(p.name, p.multi_processor_count)",
        prints="NVIDIA GeForce RTX 4090 128",
    ),
    Hostile("no such device", "torch.zeros(1, device='cuda:7')", "unknown", "raised", "invalid device ordinal"),
    Hostile(
        "weak references",
        "import weakref\nr = weakref.ref(x)\ndel x\nprint(r(), torch.cuda.memory_allocated())",
        prints="None 0",
    ),
    Hostile(
        "a fraction",
        "torch.cuda.set_per_process_memory_fraction(0.1)\ntorch.empty(2**32, dtype=torch.uint8, device='cuda')",
        "no",
        "raised",
    ),
    Hostile(
        "what is free", "f, t = torch.cuda.mem_get_info()\ntorch.empty(int(0.9 * f), dtype=torch.uint8, device='cuda')"
    ),
    Hostile(
        "halved until it fits",
        "n = 2**40\nwhile True:\n    try:\n        torch.empty(n, dtype=torch.uint8, device='cuda')\n        break\n"
        "    except torch.OutOfMemoryError:\n        n //= 2\nprint(n)",
        says="Memory was exhausted",
        prints=str(2**34),
    ),
    Hostile("host memory", "torch.empty(2**50)", "unknown", "raised", "RuntimeError"),
    Hostile(
        "a thread", "import threading\nt = threading.Thread(target=lambda: (x @ x).sum().item())\nt.start()\nt.join()"
    ),
    Hostile("a fork beside", "import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()"),
    Hostile(
        "another process",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch; torch.zeros(9)'], check=True)",
    ),
    Hostile(
        "a hook of exceptions",
        "import sys\nsys.excepthook = lambda *given: print('mine')\nraise ValueError('a fault')",
        "unknown",
        "finished",
        "exit code 1",
    ),
    Hostile("a late tensor", "import atexit\natexit.register(lambda: torch.zeros(2**24, device='cuda'))"),
    Hostile("an exit with a text", "raise SystemExit('enough')", "unknown", "finished", "exit code 1", "enough"),
    Hostile("an exit at once", "import os\nos._exit(0)"),
    Hostile("an abort", "import os\nos.abort()", "unknown", "killed"),
    Hostile("a fault of C", "import ctypes\nctypes.string_at(0)", "unknown", "killed"),
    Hostile(
        "an interrupt",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
        "unknown",
        "interrupted",
        "interrupted",
    ),
    Hostile("endless recursion", "def f():\n    return f()\nf()", "unknown", "raised", "RecursionError"),
    Hostile("a missing library", "import not_there", "unknown", "raised", "ModuleNotFoundError"),
    Hostile("anomalies", "y = x.requires_grad_()\nwith torch.autograd.detect_anomaly():\n    (y * 2).sum().backward()"),
)
"""Streams, captures, memory, processes and ends."""

SCRIPTS = (*SIZES, *LOOPS, *PRODUCTS, *LAYERS, *VALUES, *MACHINERY)
