"""Node tests of ONNX that ONNX Runtime itself answers wrongly, with what it does, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping

from levelbench.operators.contract import known_upstream

__all__ = ["SEEN", "faults"]

SEEN = ("1.31.1", "1.32.0")
"""The versions of ONNX Runtime that all of these were seen in."""
_ROUNDING = "float32's rounding, below 1e-6 of the largest value, where the test allows 1e-7 near zero"
_LOWEST = "a masked score is the lowest float32 in place of -inf"
_ROUNDED_LENGTH = "aligns corners by the rounded output length, ONNX by scale times length"

_FAULTS = {
    "test_attention_4d_diff_heads_mask4d_padded_kv": "refuses a mask shorter than the keys, which opset 24 pads",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": _LOWEST,
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": _LOWEST,
    "test_convinteger_with_padding": "takes one zero point of the weight, not one a channel",
    "test_dft": _ROUNDING,
    "test_dft_axis": _ROUNDING,
    "test_dft_axis_opset19": _ROUNDING,
    "test_dft_inverse": _ROUNDING,
    "test_dft_inverse_opset19": _ROUNDING,
    "test_dft_irfft": _ROUNDING,
    "test_dft_irfft_opset19": _ROUNDING,
    "test_dft_opset19": _ROUNDING,
    "test_dft_rfft": _ROUNDING,
    "test_dft_rfft_opset19": _ROUNDING,
    "test_maxunpool_export_with_output_shape": "reads indices as positions in output_shape, not in the inferred shape",
    "test_reduce_max_empty_set_bool": "refuses the maximum of no booleans, which is false",
    "test_resize_downsample_scales_cubic_align_corners": _ROUNDED_LENGTH,
    "test_resize_downsample_scales_linear_align_corners": _ROUNDED_LENGTH,
    "test_stft": _ROUNDING,
    "test_stft_with_window": _ROUNDING,
}


def faults(version: str) -> Mapping[str, str]:
    """Reasons by the test's name, with the versions that they were seen in."""
    return known_upstream(_FAULTS, SEEN, version)
