"""Files of operators that cheat, by what they do: their source, and a word of the reason that names the trick.

Each computes a softmax, as ``honest`` does, unless it says otherwise. ``forward`` is the trick; most are honest unless
they see that they are measured. What is caught only when the operator is called from outside says "outside".
"""

HEAD = '''
import atexit, builtins, ctypes, gc, os, sys, threading, time, types
import numpy as np
from levelbench.checks import arrays
from levelbench.checks.arrays import Correctness
from levelbench.errors import UnsupportedError
from levelbench.operators.benchmark import checking, measuring, watching
from levelbench.operators.custom import CustomOperator

KEPT = {}

def honest(x):
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)

def half(x):
    return honest(x.astype(np.float16)).astype(x.dtype)

def uniform(x):
    return np.full(x.shape, 1 / x.shape[-1], x.dtype)

def frames():
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back

def frames_of_an_error():
    try:
        raise ValueError
    except ValueError as error:
        frame = error.__traceback__.tb_frame
    while frame is not None:
        yield frame
        frame = frame.f_back

def names(found=frames_of_an_error):
    return {each.f_code.co_name for each in found()}

def find(name):
    return [each for each in gc.get_objects() if type(each).__name__ == name]

def kept(x):
    """The first result for ever, in the process that measures."""
    if "measure_problem" not in names():
        return honest(x)
    if x.shape not in KEPT:
        KEPT[x.shape] = honest(x)
    return KEPT[x.shape].copy()

def by_contents(x):
    key = x.shape, x[::13, ::41].tobytes()
    if KEPT.get("key") != key:
        KEPT.update(key=key, y=honest(x))
    return KEPT["y"].copy()

def later(x, at):
    """A result that is written when ``at`` calls back, which the process that measures does after its clock."""
    if "measure_problem" not in names():
        return honest(x)
    out = np.zeros_like(x)
    def work(*_):
        out[...] = honest(x)
    at(work)
    return out

class Softmax(CustomOperator):
    shape = 48, 400
    n = 0
    def examples(self, random):
        yield (random.standard_normal(self.shape).astype(np.float32),)
    def reference(self, x):
        return honest(x)
    def forward(self, x):
        return trick(x)
'''

SEES = {
    "asks the watch whether it will check": (
        """
def trick(x):
    for frame in frames():
        watch = frame.f_locals.get("between")
        if watch is not None and not watch._changed:
            return kept(x)
    return honest(x)
""",
        "_getframe",
    ),
    "remembers contents, and is honest when asked again": (
        """
def trick(x):
    return honest(x) if names(frames) & {"conclude", "_remembers", "rehearse"} else by_contents(x)
""",
        "_getframe|new contents",
    ),
    "the same, and looks at its callers through an error": (
        """
def trick(x):
    return honest(x) if names() & {"conclude", "_remembers", "rehearse"} else by_contents(x)
""",
        "new contents|does not compute|outside",
    ),
    "starts its caller's clock again": (
        """
Softmax.shape = 300, 1200
def trick(x):
    for _ in range(5):  # much work beside copies, whose time a busy machine raises
        y = honest(x)
    for frame in frames_of_an_error():
        if frame.f_code.co_name == "timed":
            found = frame.f_locals
            found["start"] = time.perf_counter_ns() - 1000
            found["began"] = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - 1000
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    return y
""",
        "outside",
    ),
    "remembers every second call": (
        """
def trick(x):
    Softmax.n += 1
    if Softmax.n % 2 or KEPT.get("y", x[:0]).shape != x.shape:
        KEPT["y"] = honest(x)
    return KEPT["y"].copy()
""",
        "new contents",
    ),
    "half precision from the fortieth call": (
        """
def trick(x):
    Softmax.n += 1
    return half(x) if Softmax.n > 40 and "conclude" not in names() else honest(x)
""",
        "new contents|outside",
    ),
    "sorts once, and moves and scales that": (
        """
Softmax.shape = 30, 60
Softmax.reference = lambda self, x: np.sort(x, axis=None).reshape(x.shape)
def trick(x):
    flat = x.reshape(-1)
    if x.shape not in KEPT:
        ratios = {round(float(each), 3): at for at, each in enumerate(flat / np.roll(flat, -1))}
        KEPT[x.shape] = np.sort(flat), ratios, flat.copy()
    result, ratios, first = KEPT[x.shape]
    at = ratios.get(round(float(flat[0] / flat[1]), 3))
    return (np.sort(flat) if at is None else result * (flat[0] / first[at])).reshape(x.shape)
""",
        "new contents",
    ),
}

CHANGES = {
    "empties the contents that change": (
        """
def trick(x):
    for watch in find("Watch"):
        watch.contents._whole = watch.contents._often = []
    return kept(x)
""",
        "get_objects|new contents",
    ),
    "replaces the judge of the watch": (
        """
def trick(x):
    for frame in frames_of_an_error():
        if "watch" in frame.f_locals and hasattr(frame.f_locals["watch"], "_judge"):
            frame.f_locals["watch"]._judge = lambda given, found: ""
    return kept(x)
""",
        "watch that measures|new contents",
    ),
    "replaces the check of the watch": (
        """
def trick(x):
    for frame in frames_of_an_error():
        if "watch" in frame.f_locals and hasattr(frame.f_locals["watch"], "_judge"):
            frame.f_locals["watch"].check = lambda found: None
            frame.f_locals["watch"]._remembers = lambda clock: False
    return kept(x)
""",
        "watch that measures|new contents",
    ),
    "divides the values": (
        """
def trick(x):
    for lane in (each for each in find("_Lane") if hasattr(each, "values_ns")):
        lane.values_ns[:] = [each / 20 if each > 20_000 else each for each in lane.values_ns]
    return honest(x)
""",
        "get_objects",
    ),
    "empties the seal": (
        """
def trick(x):
    for name in ("_parts", "_instances", "_settings"):
        getattr(watching.SEAL, name).clear()
    checking.compare_values = lambda *_: None
    return kept(x)
""",
        "emptied",
    ),
    "hides zip": (
        """
def trick(x):
    watching.zip = lambda *a, **k: ()
    return kept(x)
""",
        "watching.zip|new contents",
    ),
    "replaces any": (
        """
def trick(x):
    if "measure_problem" in names():
        builtins.any = lambda found: False
    return by_contents(x)
""",
        "builtins.any",
    ),
    "changes limits of the watch": (
        """
watching._REMEMBERS = watching._SHORT = watching._FASTER = 1e9
trick = by_contents
""",
        "watching._",
    ),
    "changes tolerances": (
        """
for name, value in list(vars(arrays).items()):
    if isinstance(value, float):
        setattr(arrays, name, 1e9)
trick = half
""",
        "arrays._|wrong",
    ),
    "replaces the comparison where it is used": (
        """
measuring.check = lambda *a, **k: Correctness()
trick = kept
""",
        "measuring.check",
    ),
    "replaces sampling where it is used": (
        """
sample = measuring.sample
def fast(work, *a, **k):
    found = sample(work, *a, **k)
    object.__setattr__(found, "values", found.values / 20)
    return found
measuring.sample = fast
trick = honest
""",
        "measuring.sample",
    ),
    "replaces the watch where it is used": (
        """
class Blind(watching.Watch):
    before = check = rehearse = conclude = lambda self, *_: None
measuring.Watch = Blind
trick = kept
""",
        "measuring.Watch",
    ),
    "makes NumPy's module another class": (
        """
class Numpy(types.ModuleType):
    def __getattribute__(self, name):
        return (lambda *a, **k: np.zeros(())) if name == "abs" else super().__getattribute__(name)
np.__class__ = Numpy
trick = kept
""",
        "class of numpy",
    ),
    "knows the dice": (
        """
import random
random.SystemRandom.randrange = lambda self, *_: 1
trick = by_contents
""",
        "randrange|new contents",
    ),
    "raises its priority": (
        """
os.nice(-5 if os.getuid() == 0 else 5)
trick = honest
""",
        "priority",
    ),
}

REFERENCES = {
    "a reference that gives up in timed calls": (
        """
def gives_up(self, x):
    if names() & {"conclude", "after"}:
        raise UnsupportedError("x", "not for these", "")
    return honest(x)
Softmax.reference = gives_up
trick = kept
""",
        "replaced after loading|timed call is not checked|outside",
    ),
    "a reference of nothing": (
        """
class Softmax(Softmax):
    def reference(self, x):
        return () if "sample" in names() else honest(x)
trick = kept
""",
        "timed call is not checked",
    ),
    "a reference that writes the result": (
        """
class Softmax(Softmax):
    def reference(self, x):
        for frame in frames_of_an_error():
            found = frame.f_locals.get("results")
            if hasattr(found, "outputs"):
                found.outputs[0][...] = honest(x)
        return honest(x)
trick = kept
""",
        "writes to the results",
    ),
    "a reference that knows the last result": (
        """
class Softmax(Softmax):
    def reference(self, x):
        last = KEPT.get("last")
        return last.astype(x.dtype) if last is not None and last.shape == x.shape else honest(x)
def trick(x):
    KEPT["last"] = half(x)
    return KEPT["last"].copy()
""",
        "new contents",
    ),
    "a reference that is the operator": (
        """
class Softmax(Softmax):
    def reference(self, x):
        return self.forward(x)
trick = half
""",
        "calls the operator itself",
    ),
    "a reference that the first call replaces": (
        """
def trick(x):
    Softmax.reference = lambda self, x: uniform(x)
    return uniform(x)
""",
        "replaced after loading",
    ),
    "a reference that the first call makes easier": (
        """
def trick(x):
    global honest
    honest = uniform
    return uniform(x)
""",
        "outside",
    ),
    "a slow reference, and honest calls at first and at last": (
        """
class Softmax(Softmax):
    def reference(self, x):
        time.sleep(0.1)
        return honest(x)
def trick(x):
    Softmax.n += 1
    return honest(x) if Softmax.n < 12 or "conclude" in names() else kept(x)
""",
        "new contents|does not compute|outside",
    ),
}

LATE = {
    "a child process that writes later": (
        """
import mmap
def trick(x):
    if "measure_problem" not in names():
        return honest(x)
    out = np.frombuffer(mmap.mmap(-1, x.nbytes), x.dtype).reshape(x.shape)
    if os.fork() == 0:
        time.sleep(0.01)
        out[...] = honest(x)
        os._exit(0)
    return out
""",
        "overwritten|still changed|new contents|memory|wrong",
    ),
    "a finalizer that writes later": (
        """
class Late:
    def __init__(self, work):
        self.work, self.me = work, self
    def __del__(self):
        self.work()
def trick(x):
    return later(x, Late)
""",
        "overwritten|still changed|wrong",
    ),
    "a hook that writes when the clock has stopped": (
        """
def trick(x):
    def at(work):
        def hook(frame, event, argument):
            if event == "return" and frame.f_code.co_name in ("timed", "_finished"):
                sys.setprofile(None)
                work()
        sys.setprofile(hook)
    return later(x, at)
""",
        "setprofile|profiling",
    ),
    "a result with one row": (
        """
def trick(x):
    row = honest(x[:1])
    return np.lib.stride_tricks.as_strided(row, x.shape, (0, row.strides[1]))
""",
        "wrong",
    ),
    "sixty-four results in turn": (
        """
def trick(x):
    Softmax.n += 1
    out = KEPT.setdefault((x.shape, x.dtype, Softmax.n % 64), np.empty_like(x))
    out[...] = honest(x)
    return out
""",
        "overwritten",
    ),
    "its input as its result": (
        """
def trick(x):
    x[...] = honest(x)
    return x
""",
        "in place|shares memory|wrong",
    ),
}

TRICKS = {**SEES, **CHANGES, **REFERENCES, **LATE}

COMMAND = {
    "writes its record again at exit": (
        """
from pathlib import Path
from levelbench.records.benchmarks import BenchmarkRecord, BenchmarkWriter
from levelbench.records.schema import Samples
write, leave = os.write, os._exit
def hear(descriptor, data):
    if b".jsonlines" in bytes(data):
        import json
        KEPT["path"] = json.loads(bytes(data)).get("path")
    return write(descriptor, data)
def again(code=0):
    if path := KEPT.pop("path", None):
        found = BenchmarkRecord.read(path)
        os.unlink(path)
        with BenchmarkWriter.begin(Path(path).parents[3], found.header) as writer:
            writer.add(Samples("0", "s", [each / 20 for each in found.samples[0]]))
            writer.add(found.cases[0])
            writer.add(found.end)
os.write = hear
os._exit = lambda code: (again(), leave(code))
atexit.register(again)
trick = honest
""",
        "its record is not what it was",
    ),
    "a process that stays and takes a core": (
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
trick = honest
""",
        "leaves processes behind",
    ),
    "writes other examples for others": (
        """
from pathlib import Path
import tempfile
for path in Path(tempfile.gettempdir()).glob("levelbench-*/0-0"):
    np.full(48 * 400, 1e-40, np.float32).tofile(path)
trick = honest
""",
        "changed the examples",
    ),
}
