"""A selection of ONNX's node tests: one per family of operators, and edge cases."""

import pytest

from levelbench.operators.conformance import collect_cases, try_case

pytestmark = pytest.mark.usefixtures("warm_node_cases")

PASSING = [
    "test_div_int32_trunc",
    "test_mod_mixed_sign_int8",
    "test_pow_types_int32_float32",
    "test_clip_min_greater_than_max",
    "test_cast_FLOAT_to_INT4",
    "test_bitcast_float32_to_int32",
    "test_quantizelinear_blocked_asymmetric",
    "test_dequantizelinear_uint4",
    "test_qlinearconv",
    "test_convinteger_with_padding",
    "test_reduce_max_empty_set",
    "test_argmax_keepdims_example_select_last_index",
    "test_top_k_same_values_2d",
    "test_convtranspose_output_shape",
    "test_causal_conv_with_state_silu",
    "test_deform_conv_with_multiple_offset_groups",
    "test_col2im_5d",
    "test_maxpool_with_argmax_2d_precomputed_strides",
    "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
    "test_maxunpool_export_with_output_shape",
    "test_nllloss_NCd1d2d3_none_no_weight_negative_ii",
    "test_attention_24_fullymasked_qk_matmul_output_mode3_zero",
    "test_attention_local_window_ext_cache_rank3_head_mask",
    "test_linear_attention_gated_delta",
    "test_tensorscatter_circular",
    "test_lstm_with_peepholes",
    "test_resize_downsample_scales_cubic_antialias",
    "test_upsample_nearest",
    "test_roialign_mode_max",
    "test_slice_neg_steps",
    "test_tril_neg",
    "test_center_crop_pad_pad",
    "test_gathernd_example_int32_batch_dim1",
    "test_compress_1",
    "test_onehot_negative_indices",
    "test_nonmaxsuppression_two_classes",
    "test_melweightmatrix",
    "test_stft_with_window",
    "test_training_dropout_mask",
    "test_bernoulli_double",
    "test_adam_multiple",
    "test_tfidfvectorizer_tf_batch_onlybigrams_skip5",
    "test_ai_onnx_ml_tree_ensemble_set_membership",
    "test_ai_onnx_ml_array_feature_extractor",
    "test_reversesequence_batch",
    "test_softmax_large_number_expanded",
]

REFUSED = ["test_string_concat", "test_image_decoder_decode_png_rgb", "test_regex_full_match_basic"]


@pytest.fixture(scope="module")
def cases():
    return {case.name: case for case in collect_cases()}


@pytest.mark.parametrize("name", PASSING)
def test_a_node_test_passes(backend, cases, name):
    result = try_case(cases[name], backend)
    assert (result.status, result.detail) == ("passed", "")


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_do_is_refused(backend, cases, name):
    result = try_case(cases[name], backend)
    assert result.status == "unsupported"
    assert "jax" in result.detail
