"""ResNet-20 for CIFAR-10 as an ONNX model, and the same network as plain PyTorch calls on the same weights.

He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2: a 3x3 convolution, three stages of three
blocks with 16, 32 and 64 channels, identity shortcuts that skip every other pixel and pad with zero channels (option
A), batch normalisation after each convolution, global average pooling, one fully connected layer. 0.27 million weights,
random here: nothing is trained.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STAGES, BLOCKS, CLASSES = (16, 32, 64), 3, 10


class _Builder:
    """Collects nodes and random weights; values are numbered."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self._generator = np.random.default_rng(seed)
        self._count = 0

    def weight(self, name: str, array) -> str:
        """Keep ``array`` as an initialiser."""
        self.weights[name] = array
        return name

    def random(self, name: str, shape: tuple[int, ...], scale: float, mean: float = 0.0) -> str:
        """A normal initialiser."""
        values = mean + scale * self._generator.standard_normal(shape)
        return self.weight(name, values.astype(np.float32))

    def node(self, op_type: str, *inputs: str, **attributes) -> str:
        """A node with one output."""
        self._count += 1
        output = f"v{self._count}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def conv_norm(self, x: str, name: str, channels: int, out: int, stride: int) -> str:
        """A 3x3 convolution and the normalisation of its output by given statistics."""
        weight = self.random(f"{name}.weight", (out, channels, 3, 3), (2 / (9 * out)) ** 0.5)
        y = self.node("Conv", x, weight, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[stride, stride])
        scale, bias = self.random(f"{name}.scale", (out,), 0.1, 1.0), self.random(f"{name}.bias", (out,), 0.1)
        mean = self.random(f"{name}.mean", (out,), 0.1)
        variance = self.weight(f"{name}.variance", self._generator.uniform(0.5, 1.5, out).astype(np.float32))
        return self.node("BatchNormalization", y, scale, bias, mean, variance, epsilon=1e-5)

    def shortcut(self, x: str, out: int) -> str:
        """Every other pixel, with as many zero channels on either side as it takes."""
        ends = ("starts", [0, 0]), ("ends", [2**31, 2**31]), ("axes", [2, 3]), ("steps", [2, 2])
        y = self.node("Slice", x, *(self.weight(name, np.array(values, np.int64)) for name, values in ends))
        side = out // 4
        pads = self.weight(f"pads{out}", np.array([0, side, 0, 0, 0, side, 0, 0], np.int64))
        return self.node("Pad", y, pads)

    def block(self, x: str, name: str, channels: int, out: int) -> str:
        """Two convolutions and their shortcut; the first of a stage halves the image."""
        stride = 1 if channels == out else 2
        y = self.node("Relu", self.conv_norm(x, f"{name}.0", channels, out, stride))
        y = self.conv_norm(y, f"{name}.1", out, out, 1)
        return self.node("Relu", self.node("Add", y, x if stride == 1 else self.shortcut(x, out)))


def resnet20(seed: int = 0) -> onnx.ModelProto:
    """The model, opset 21: float32 images of shape (batch, 3, 32, 32) to logits of shape (batch, 10)."""
    net = _Builder(seed)
    x = net.node("Relu", net.conv_norm("images", "stem", 3, STAGES[0], 1))
    channels = STAGES[0]
    for stage, out in enumerate(STAGES):
        for block in range(BLOCKS):
            x = net.block(x, f"stage{stage}.{block}", channels, out)
            channels = out
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    weight = net.random("head.weight", (CLASSES, channels), channels**-0.5)
    logits = net.node("Gemm", x, weight, net.random("head.bias", (CLASSES,), 0.1), transB=1)
    graph = helper.make_graph(
        net.nodes,
        "resnet20",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in net.weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def in_torch(model: onnx.ModelProto) -> Callable:
    """The same network as one writes it by hand in PyTorch, on the model's weights."""
    import torch
    from torch.nn import functional

    weights = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy()) for each in model.graph.initializer}

    def conv_norm(x, name, stride):
        x = functional.conv2d(x, weights[f"{name}.weight"], None, stride, 1)
        mean, variance = weights[f"{name}.mean"], weights[f"{name}.variance"]
        return functional.batch_norm(x, mean, variance, weights[f"{name}.scale"], weights[f"{name}.bias"], eps=1e-5)

    def block(x, name, channels, out):
        stride = 1 if channels == out else 2
        y = conv_norm(torch.relu(conv_norm(x, f"{name}.0", stride)), f"{name}.1", 1)
        side = out // 4
        skip = x if stride == 1 else functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, side, side))
        return torch.relu(y + skip)

    @torch.no_grad()
    def forward(images):
        x, channels = torch.relu(conv_norm(images, "stem", 1)), STAGES[0]
        for stage, out in enumerate(STAGES):
            for number in range(BLOCKS):
                x, channels = block(x, f"stage{stage}.{number}", channels, out), out
        return functional.linear(x.mean((2, 3)), weights["head.weight"], weights["head.bias"])

    return forward
