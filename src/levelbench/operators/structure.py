"""Which inputs of an ONNX operator are structural: they decide shapes or axes, so they must be known on the host.

The one idea: in a network these come from constants, and reading them from a device would make it wait at every call;
so every framework gets them as NumPy arrays, and a tracing compiler may treat them as constants.
"""

from __future__ import annotations

from levelbench.operators.node import OperatorNode

__all__ = ["structural"]

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_STRUCTURAL: dict[str, tuple[int, ...]] = {
    **{f"Reduce{each}": (1,) for each in _REDUCTIONS},
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


def structural(node: OperatorNode) -> tuple[int, ...]:
    """The positions of the structural inputs of ``node``; none for an operator of another domain than ONNX's."""
    return () if node.domain else _STRUCTURAL.get(node.op_type, ())
