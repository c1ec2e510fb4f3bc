"""Files of honest operators that do what a cheat might be accused of; those that cannot be checked say so."""

HEAD = """
import functools, gc, logging, threading, time, warnings
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from levelbench.operators.custom import CustomOperator, Spec, namespace, compiled

def normal(random, *shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)
"""

HONEST = {
    "table of a shape, kept": """
class Own(CustomOperator):
    tables = {}
    def forward(self, x):
        t = self.tables.get(x.shape[-1])
        if t is None: t = self.tables[x.shape[-1]] = np.cos(np.arange(x.shape[-1]) * 0.1)
        return (x * t).astype(x.dtype)
    def reference(self, x): return x * np.cos(np.arange(x.shape[-1]) * 0.1)
    def examples(self, random):
        yield (normal(random, 40, 300),)
""",
    "lru_cache of a shape": """
@functools.lru_cache
def window(n): return np.hanning(n)
class Own(CustomOperator):
    def forward(self, x): return (x * window(x.shape[-1])).astype(x.dtype)
    def reference(self, x): return x * np.hanning(x.shape[-1])
    def examples(self, random):
        yield (normal(random, 40, 300),)
""",
    "threads that it waits for": """
POOL = ThreadPoolExecutor(2)
class Own(CustomOperator):
    def forward(self, x):
        out = np.empty_like(x)
        n = len(x) // 2
        jobs = [POOL.submit(np.tanh, x[s], out[s]) for s in (slice(0, n), slice(n, None))]
        for j in jobs: j.result()
        return out
    def reference(self, x): return np.tanh(x)
    def examples(self, random):
        yield (normal(random, 200, 300),)
""",
    "reads the time": """
class Own(CustomOperator):
    def forward(self, x):
        t = time.perf_counter()
        y = np.exp(x)
        self.__class__.took = time.perf_counter() - t
        return y
    def reference(self, x): return np.exp(x)
    def examples(self, random):
        yield (normal(random, 100, 30),)
""",
    "collects garbage": """
class Own(CustomOperator):
    def forward(self, x):
        gc.collect(0)
        return np.exp(x)
    def reference(self, x): return np.exp(x)
    def examples(self, random):
        yield (normal(random, 100, 30),)
""",
    "warns and logs": """
class Own(CustomOperator):
    def forward(self, x):
        warnings.warn("slow")
        logging.getLogger("a").debug("called")
        return np.exp(x)
    def reference(self, x): return np.exp(x)
    def examples(self, random):
        yield (normal(random, 100, 30),)
""",
    "named tuples and dataclasses": """
P = namedtuple("P", "a b")
class Own(CustomOperator):
    def forward(self, x):
        p = P(x, 2)
        return (p.a * p.b).astype(x.dtype)
    def reference(self, x): return x * 2
    def examples(self, random):
        yield (normal(random, 100, 30),)
""",
    "a scratch array, and a new result": """
class Own(CustomOperator):
    scratch = {}
    def forward(self, x):
        key = x.shape, x.dtype, threading.get_ident()
        s = self.scratch.get(key)
        if s is None: s = self.scratch[key] = np.empty_like(x)
        np.multiply(x, x, out=s)
        return np.sqrt(s + 1)
    def reference(self, x): return np.sqrt(x * x + 1)
    def examples(self, random):
        yield (normal(random, 100, 300),)
""",
    "two outputs": """
class Own(CustomOperator):
    outputs = ("low", "high")
    def infer(self, x): return Spec(x.shape[:-1], x.dtype), Spec(x.shape[:-1], x.dtype)
    def forward(self, x): return x.min(-1), x.max(-1)
    def reference(self, x): return x.min(-1), x.max(-1)
    def examples(self, random):
        yield (normal(random, 100, 300),)
""",
    "a slow reference": """
class Own(CustomOperator):
    def forward(self, x): return np.maximum(x, 0)
    def reference(self, x):
        out = np.zeros(x.shape)
        for i in np.ndindex(x.shape): out[i] = x[i] if x[i] > 0 else 0
        return out
    def examples(self, random):
        yield (normal(random, 150, 300),)
""",
    "sorted rows": """
class Own(CustomOperator):
    def forward(self, x): return np.sort(x, -1)
    def reference(self, x): return np.sort(x, -1)
    def examples(self, random):
        yield (normal(random, 50, 500),)
""",
    "sums of all": """
class Own(CustomOperator):
    def infer(self, x): return Spec((1,), x.dtype)
    def forward(self, x): return x.sum(dtype=np.float64).reshape(1).astype(x.dtype)
    def reference(self, x): return x.sum().reshape(1)
    def examples(self, random):
        yield (normal(random, 500, 500),)
""",
    "chosen rows": """
class Own(CustomOperator):
    def infer(self, table, at): return Spec((*at.shape, table.shape[1]), table.dtype)
    def forward(self, table, at): return table[at]
    def reference(self, table, at): return np.stack([table[i] for i in at])
    def examples(self, random):
        yield normal(random, 90, 64), random.integers(0, 90, 40)
""",
    "sparse rows": """
class Own(CustomOperator):
    def infer(self, data, columns, pointers, x): return Spec((pointers.shape[0] - 1,), data.dtype)
    def forward(self, data, columns, pointers, x):
        return np.add.reduceat(data * x[columns], pointers[:-1])
    def reference(self, data, columns, pointers, x):
        return np.array([sum(data[k] * x[columns[k]] for k in range(a, b)) for a, b in zip(pointers, pointers[1:])])
    def examples(self, random):
        yield normal(random, 400), random.integers(0, 50, 400), np.arange(0, 401, 4), normal(random, 50)
""",
    "float64 determinants": """
class Own(CustomOperator):
    def infer(self, x): return Spec(x.shape[:1], x.dtype)
    def forward(self, x): return np.linalg.det(x)
    def reference(self, x): return np.linalg.det(x)
    def examples(self, random):
        yield (normal(random, 60, 5, 5, dtype=np.float64),)
""",
    "a very short call": """
class Own(CustomOperator):
    def forward(self, x): return x + 1
    def reference(self, x): return x + 1
    def examples(self, random):
        yield (normal(random, 3),)
""",
    "a sum whose terms cancel": """
class Own(CustomOperator):
    def infer(self, x): return Spec((1,), x.dtype)
    def forward(self, x): return x[:32].sum(keepdims=True) - x[32:].sum(keepdims=True)
    def reference(self, x): return x[:32].sum(keepdims=True) - x[32:].sum(keepdims=True)
    def examples(self, random):
        yield (1000 + normal(random, 64),)
""",
    "a large array": """
class Own(CustomOperator):
    def forward(self, x): return x * x
    def reference(self, x): return x * x
    def examples(self, random):
        yield (normal(random, 1500, 2000),)
""",
    "array functions of any framework": """
class Own(CustomOperator):
    array_api = True
    def forward(self, x): return namespace(x).tanh(x)
    def reference(self, x): return np.tanh(x)
    def examples(self, random):
        yield (normal(random, 200, 100),)
""",
    "unchecked: probabilities that must sum to 1": """
class Own(CustomOperator):
    def infer(self, p): return Spec(p.shape[:1], p.dtype)
    def forward(self, p):
        if not np.allclose(p.sum(-1), 1, atol=1e-3): raise ValueError("rows must sum to 1")
        return -(p * np.log(p)).sum(-1)
    def reference(self, p): return -(p * np.log(p)).sum(-1)
    def examples(self, random):
        p = random.random((50, 20)) + 0.1
        yield ((p / p.sum(-1, keepdims=True)).astype(np.float32),)
""",
    "convolution in loops": """
class Own(CustomOperator):
    def infer(self, x, w): return Spec((x.shape[0], x.shape[1] - w.shape[0] + 1), x.dtype)
    def forward(self, x, w):
        n = x.shape[1] - w.shape[0] + 1
        out = np.zeros((x.shape[0], n), x.dtype)
        for k in range(w.shape[0]): out += x[:, k:k + n] * w[k]
        return out
    def reference(self, x, w): return np.stack([np.convolve(r, w[::-1], "valid") for r in x])
    def examples(self, random):
        yield (normal(random, 30, 300), normal(random, 7),)
""",
    "order of rows": """
class Own(CustomOperator):
    def infer(self, x): return Spec(x.shape, np.dtype(np.int64))
    def forward(self, x): return np.argsort(x, -1, kind="stable")
    def reference(self, x): return np.argsort(x, -1, kind="stable")
    def examples(self, random):
        yield (normal(random, 40, 200),)
""",
    "its own copy changed in place": """
class Own(CustomOperator):
    def forward(self, x):
        y = x.copy()
        y -= y.mean(-1, keepdims=True)
        y /= np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        return y
    def reference(self, x):
        y = x - x.mean(-1, keepdims=True)
        return y / np.sqrt((y ** 2).mean(-1, keepdims=True) + 1e-5)
    def examples(self, random):
        yield (normal(random, 60, 128),)
""",
    "reads a file in each call": """
import json, pathlib, tempfile
PLACE = pathlib.Path(tempfile.mkdtemp()) / "scale.json"
PLACE.write_text(json.dumps(3))
class Own(CustomOperator):
    def forward(self, x): return (x * json.loads(PLACE.read_text())).astype(x.dtype)
    def reference(self, x): return x * 3
    def examples(self, random):
        yield (normal(random, 60, 128),)
""",
    "a recursion over time": """
class Own(CustomOperator):
    def forward(self, x):
        out, state = np.empty_like(x), np.zeros(x.shape[1:], x.dtype)
        for at, row in enumerate(x):
            state = (state / 2 + row).astype(x.dtype)
            out[at] = state
        return out
    def reference(self, x):
        powers = 0.5 ** np.maximum(0, np.subtract.outer(np.arange(len(x)), np.arange(len(x))))
        return np.tril(powers) @ x
    def examples(self, random):
        yield (normal(random, 50, 30),)
""",
    "bytes that are scaled": """
class Own(CustomOperator):
    def infer(self, x): return Spec(x.shape, np.dtype(np.float32))
    def forward(self, x): return x.astype(np.float32) * np.float32(0.5)
    def reference(self, x): return x * 0.5
    def examples(self, random):
        yield (random.integers(-128, 128, (60, 128)).astype(np.int8),)
""",
    "what it drops is collected": """
class Node:
    def __init__(self): self.me = self
class Own(CustomOperator):
    def forward(self, x):
        Node()
        return np.tanh(x)
    def reference(self, x): return np.tanh(x)
    def examples(self, random):
        yield (normal(random, 60, 128),)
""",
    "C++": """
from pathlib import Path
place = Path(__file__).with_suffix(".cpp")
place.write_text(r'''
#include <levelbench.h>
#include <vector>
struct Smooth {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  static constexpr auto examples = "64x500";
  template <class T> void forward(const levelbench::Forward& call) const {
    static std::vector<double> taps(3, 1.0 / 3);
    auto x = call.input<T>();
    auto y = call.output<T>();
    for (int64_t i = 0; i < x.size(); ++i)
      y[i] = T(taps[0] * x[i] + taps[1] * x[i] * x[i]);
  }
};
LEVELBENCH_OPERATOR(Smooth, float, double)
''')
class Own(compiled(place)):
    def reference(self, x): return x / 3 + x * x / 3
""",
}
