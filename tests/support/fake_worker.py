"""A stand-in for the measured child: it speaks the protocol, trains nothing, and misbehaves on demand.

What it does is said by the environment variable FAKE, a list of words; it reads `run.json` for the number of steps.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from itertools import count
from pathlib import Path

folder = Path(sys.argv[1])
turns = int(sys.argv[3]) if "--turns" in sys.argv else 0
moods = os.environ.get("FAKE", "").split()
spec = json.loads((folder / "run.json").read_bytes())
steps = spec["config"]["training"]["steps"]
tokens = spec["config"]["training"]["batch_size"] * spec["config"]["model"]["context_length"]
rounded = 0.001 * any(one["name"].startswith("bf16") for one in spec["config"]["optimizations"])
if "wrong" in moods and spec["config"]["optimizations"]:
    rounded = 0.5
val_loss = 2.6 + ("rates" in moods) * spec["config"]["training"]["learning_rate"]
stopping = threading.Event()
granted = threading.Semaphore(0)
words = count()


def listen() -> None:
    for line in sys.stdin:
        if line == "go\n":
            granted.release()
    if "deaf" not in moods:
        os._exit(9)  # the parent is gone


def say(kind: str, **facts: object) -> None:
    if f"mute{next(words)}" in moods:
        os.kill(os.getpid(), signal.SIGKILL)
    line = json.dumps({"event": kind, **facts}) + "\n"
    if kind != "yield":
        body = line.removesuffix("}\n")
        with (folder / "events.jsonl").open("a") as stream:
            stream.write(f'{body}, "crc": "{zlib.crc32(body.encode()):08x}"}}\n')
    sys.stdout.write(line)
    sys.stdout.flush()


def wait(upcoming: str) -> None:
    if turns:
        say("yield", next=upcoming)
        while not granted.acquire(timeout=0.05):
            if stopping.is_set():
                return


def loss_of(index: int) -> float:
    return 3.0 - index * 0.01 + rounded


def finish(status: str, reason: str | None, done: int) -> None:
    result = {name: spec[name] for name in ("created", "identity", "preset", "config", "predicted")}
    result |= {"run": spec["id"], "status": status, "reason": reason, "steps": done, "tokens": done * tokens}
    result |= {"train_loss": loss_of(done - 1), "val_loss": val_loss, "memory": {"tensors_peak_bytes": 1000}}
    result |= {"phase_seconds": {"build": 0.1, "steady": 0.4}, "environment": environment()}
    text = json.dumps(result) if "garbled" not in moods else "{"
    (folder / "result.json.tmp").write_text(text)
    (folder / "result.json.tmp").replace(folder / "result.json")
    say("end", status=status, reason=reason)


def environment() -> dict[str, object]:
    host = {"processor": "fake", "cores": 2, "threads": 2, "memory_bytes": 2**30}
    return {"assay": "0.1.0", "torch": "0", "python": "3.11", "device": "cpu", **host}


def misbehave(index: int) -> None:
    if f"die{index}" in moods:
        os.kill(os.getpid(), signal.SIGKILL)
    if f"fail{index}" in moods:
        print("Traceback …\nOSError: [Errno 28] No space left on device", file=sys.stderr)
        sys.exit(1)
    if f"hang{index}" in moods:
        time.sleep(1000)
    if f"stubborn{index}" in moods:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)


def checkpoint(done: int) -> None:
    (folder / "checkpoints" / f"step-{done:08d}").mkdir(parents=True, exist_ok=True)


threading.Thread(target=listen, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
if "clinging" in moods:  # leaves a process of its own that holds the channel open
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stderr=subprocess.DEVNULL)
if "stillborn" in moods:
    os.kill(os.getpid(), signal.SIGKILL)
(folder / "result.json").unlink(missing_ok=True)
checkpoints = sorted((folder / "checkpoints").glob("step-*"))
first = int(checkpoints[-1].name[5:]) if checkpoints else 0
wait("start")
say("start", pid=os.getpid(), process_started=0.0, time=time.time(), resumed_at=first)
pieces = [index * steps // (turns or 1) for index in range((turns or 1) + 1)]
for index in range(first, steps):
    if index in pieces:
        wait("block")
    misbehave(index)
    say("phase", name="steady")
    say("step", step=index, loss=loss_of(index), seconds=0.01, tokens=tokens, phase="steady")
    if "slow" in moods:
        time.sleep(0.05)
    if stopping.is_set():
        checkpoint(index + 1)
        finish("interrupted", f"interrupted after {index + 1} steps", index + 1)
        sys.exit(130)
wait("finish")
say("evaluation", step=steps, loss=val_loss, perplexity=13.5, bits_per_byte=3.75)
checkpoint(steps)
outcome = os.environ.get("FAKE_STATUS", "done")
finish(outcome, None if outcome == "done" else f"it ended as {outcome}", steps)
if "garbled" in moods:
    sys.exit(0)
