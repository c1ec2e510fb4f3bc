"""Ten workloads from half a microsecond to 200 ms for ``precision.py``: pure Python, NumPy and PyTorch.

Each function is a setup that returns the callable to measure, so that every tool, in any process,
measures the same thing; nothing is imported before a setup needs it. One thread each: a pool of threads beside a busy
neighbour measures the neighbour.
"""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

Work = Callable[[], object]


def python_join() -> Work:
    words = [str(i) for i in range(60)]
    return lambda: "-".join(words)


def python_sort() -> Work:
    import random

    values = random.Random(0).choices(range(1000), k=100)
    return lambda: sorted(values)


def numpy_add() -> Work:
    import numpy as np

    a, b, out = np.ones(20_000), np.ones(20_000), np.empty(20_000)
    return lambda: np.add(a, b, out=out)


def python_loop() -> Work:
    def loop() -> int:
        total = 0
        for i in range(1000):
            total += i * i
        return total

    return loop


def numpy_matmul() -> Work:
    import numpy as np

    a = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    out = np.empty_like(a)
    return lambda: np.matmul(a, a, out=out)


def python_json() -> Work:
    import json

    document = {str(i): list(range(20)) for i in range(200)}
    return lambda: json.loads(json.dumps(document))


def torch_convolution() -> Work:
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.Conv2d(16, 32, 3)
    images = torch.randn(8, 16, 32, 32, generator=torch.Generator().manual_seed(0))

    def forward() -> object:
        with torch.inference_mode():
            return layer(images)

    return forward


def torch_training_step() -> Work:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    images, labels = torch.randn(1024, 784), torch.randint(10, (1024,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    return step


def numpy_sort() -> Work:
    import numpy as np

    values = np.random.default_rng(0).standard_normal(1_000_000)
    return lambda: np.sort(values, kind="stable")


def python_primes() -> Work:
    def primes() -> int:
        sieve = [True] * 4_000_000
        for i in range(2, 2001):
            if sieve[i]:
                for multiple in range(i * i, 4_000_000, i):
                    sieve[multiple] = False
        return sum(sieve)

    return primes


ALL: tuple[str, ...] = (
    "python_join",
    "python_sort",
    "numpy_add",
    "python_loop",
    "numpy_matmul",
    "python_json",
    "torch_convolution",
    "torch_training_step",
    "numpy_sort",
    "python_primes",
)
