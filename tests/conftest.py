"""One thread a process: several processes test at once, and threads that wait for a core in turn spin it away."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
