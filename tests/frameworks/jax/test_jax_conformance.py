"""A choice of ONNX's node tests: one of each family of operators, and the edges of their definitions."""

import pytest

from levelbench.operators.conformance import collect_cases, try_case

PASSING = [
    "test_add_uint8",
    "test_div_int32_trunc",
    "test_mod_mixed_sign_int8",
    "test_pow_types_int32_float32",
    "test_bitshift_left_uint8",
    "test_clip_min_greater_than_max",
    "test_max_float16",
    "test_hardmax_one_hot",
    "test_gelu_tanh_1",
    "test_shrink_soft",
    "test_cast_FLOAT_to_INT4",
    "test_cast_FLOAT_to_FLOAT8E5M2",
    "test_cast_no_saturate_FLOAT16_to_FLOAT8E4M3FNUZ",
    "test_bitcast_float32_to_int32",
    "test_quantizelinear_blocked_asymmetric",
    "test_dequantizelinear_uint4",
    "test_dynamicquantizelinear",
    "test_qlinearconv",
    "test_qlinearmatmul_3D_int8_float16",
    "test_convinteger_with_padding",
    "test_reduce_max_empty_set",
    "test_reduce_sum_empty_axes_input_noop",
    "test_argmax_keepdims_example_select_last_index",
    "test_cumsum_1d_reverse_exclusive",
    "test_top_k_same_values_2d",
    "test_gemm_all_attributes",
    "test_einsum_batch_diagonal",
    "test_basic_conv_with_padding",
    "test_conv_with_autopad_same",
    "test_convtranspose_group_2",
    "test_convtranspose_output_shape",
    "test_causal_conv_with_state_silu",
    "test_deform_conv_with_multiple_offset_groups",
    "test_col2im_5d",
    "test_maxpool_2d_ceil_output_size_reduce_by_one",
    "test_maxpool_with_argmax_2d_precomputed_strides",
    "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
    "test_lppool_2d_dilations",
    "test_maxunpool_export_with_output_shape",
    "test_batchnorm_epsilon_training_mode",
    "test_layer_normalization_4d_axis1",
    "test_group_normalization_epsilon",
    "test_rms_normalization_2d_axis1",
    "test_lrn",
    "test_l2normalization_axis_1",
    "test_nllloss_NCd1d2d3_none_no_weight_negative_ii",
    "test_sce_NCd1d2d3d4d5_mean_weight_log_prob",
    "test_attention_4d_gqa_with_past_and_present",
    "test_attention_24_fullymasked_qk_matmul_output_mode3_zero",
    "test_attention_local_window_ext_cache_rank3_head_mask",
    "test_linear_attention_gated_delta",
    "test_tensorscatter_circular",
    "test_rotary_embedding_3d_input",
    "test_lstm_with_peepholes",
    "test_gru_seq_length",
    "test_simple_rnn_batchwise",
    "test_resize_tf_crop_and_resize_axes_2_3",
    "test_resize_downsample_scales_cubic_antialias",
    "test_resize_upsample_sizes_nearest",
    "test_upsample_nearest",
    "test_gridsample_bicubic_align_corners_1_additional_1",
    "test_roialign_mode_max",
    "test_reflect_pad",
    "test_slice_neg_steps",
    "test_split_variable_parts_default_axis_opset13",
    "test_tril_neg",
    "test_center_crop_pad_pad",
    "test_depthtospace_crd_mode_example",
    "test_gathernd_example_int32_batch_dim1",
    "test_scatternd_max",
    "test_compress_1",
    "test_onehot_negative_indices",
    "test_nonzero_example",
    "test_unique_not_sorted_without_axis",
    "test_nonmaxsuppression_two_classes",
    "test_range_float_type_positive_delta",
    "test_eyelike_populate_off_main_diagonal",
    "test_hannwindow_symmetric",
    "test_melweightmatrix",
    "test_dft_rfft",
    "test_stft_with_window",
    "test_training_dropout_mask",
    "test_bernoulli_double",
    "test_adam_multiple",
    "test_nesterov_momentum",
    "test_tfidfvectorizer_tf_batch_onlybigrams_skip5",
    "test_ai_onnx_ml_tree_ensemble_set_membership",
    "test_ai_onnx_ml_array_feature_extractor",
    "test_ai_onnx_ml_binarizer",
    "test_reversesequence_batch",
    "test_constantofshape_int_shape_zero",
    "test_reshape_zero_and_negative_dim",
    "test_if",
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
