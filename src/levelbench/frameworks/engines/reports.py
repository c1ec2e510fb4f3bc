"""Reports of an engine's wrong answers, ready to be sent to its authors.

A report is a folder with a small model, its inputs, what is expected and what was got, a script that needs the engine
and NumPy only, and a page. A report is kept only if its script, in a process of its own, shows the fault again.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx

from levelbench.checks.arrays import unit_roundoff
from levelbench.frameworks.engines import OnnxEngine, fixed
from levelbench.operators.conformance import NodeTest, tolerances

__all__ = ["write_report"]

_TIMEOUT_S = 60.0
_ROUNDINGS = 64
"""Of the largest expected value: what is off by less is rounded in another order, and is nothing to report."""

_SCRIPT = '''"""{title}

{detail}

Needs numpy and {pinned}. Ends with 1 while the answer is wrong, with 0 once it is right.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

{load}

HERE = Path(__file__).resolve().parent
inputs = {{name: np.load(HERE / f"{{name}}.npy") for name in {names}}}
wrong = False
for at, got in enumerate(load(str(HERE / "model.onnx"))(inputs)):
    expected = np.load(HERE / f"expected_{{at}}.npy")
    same = got.shape == expected.shape and got.dtype == expected.dtype
    if same and got.dtype.kind == "f":
        same = np.allclose(got.astype("f8"), expected.astype("f8"), rtol={rtol:g}, atol={atol:g}, equal_nan=True)
    elif same:
        same = np.array_equal(got, expected)
    print(f"output {{at}}: {{'right' if same else 'wrong'}}", got.dtype, got.shape, got.ravel()[:8])
    print("     expected:", expected.dtype, expected.shape, expected.ravel()[:8])
    wrong |= not same
sys.exit(int(wrong))
'''

_PAGE = """# {title}

{detail}

The expected values are those of ONNX's own node test `{name}` (onnx {onnx}), seen with {engine} {version},
numpy {numpy}, Python {python}.

    pip install {pinned} numpy
    python reproduce.py

```
{said}
```

The model:

```
{model}
```
"""


def write_report(engine: OnnxEngine, case: NodeTest, detail: str, folder: Path) -> bool:
    """Write ``folder`` about a test that the engine fails; whether the script has shown it, else nothing is left.

    Tests with several data sets, sequences or optional values are left out, and deviations that rounding explains.
    """
    inputs, expected = case.data[0]
    if len(case.data) > 1 or not all(isinstance(each, np.ndarray) for each in (*inputs, *expected)):
        return False
    version = engine.version
    names = [each.name for each in case.model.graph.input]
    model = fixed(case.model, dict(zip(names, map(np.asarray, inputs), strict=True)))
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    expectations = {f"expected_{at}": each for at, each in enumerate(expected)}
    for name, each in {**dict(zip(names, inputs, strict=True)), **expectations}.items():
        np.save(folder / f"{name}.npy", each, allow_pickle=False)
    dtype = np.asarray(expected[0]).dtype
    rtol, share = tolerances(case, dtype)
    share = max(share, _ROUNDINGS * unit_roundoff(dtype))
    load = textwrap.dedent(inspect.getsource(engine.load)).removeprefix("@staticmethod\n")
    facts = {
        "title": f"{engine.title}: {case.operator} ({case.name.removeprefix('test_')})",
        "detail": detail,
        "name": case.name,
        "pinned": " ".join(f"{each}=={importlib.metadata.version(each)}" for each in engine.distribution.split()),
        "version": version,
        "engine": engine.title,
        "onnx": onnx.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
        "load": load,
        "names": names,
        "rtol": rtol,
        "atol": case.atol + share * float(np.max(np.abs(np.asarray(expected[0], float)), initial=0.0)),
    }
    (folder / "reproduce.py").write_text(_SCRIPT.format(**facts), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "reproduce.py"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        shown = done.returncode == 1 and ": wrong" in done.stdout
    except subprocess.TimeoutExpired:
        shown = False
    if not shown:
        shutil.rmtree(folder)
        return False
    text = onnx.printer.to_text(model)
    (folder / "README.md").write_text(_PAGE.format(**facts, said=done.stdout.strip(), model=text), encoding="utf-8")
    return True
