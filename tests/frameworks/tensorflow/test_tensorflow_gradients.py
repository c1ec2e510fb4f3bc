"""The gradients of TensorFlow's operators in the cases of JAX's, and where TensorFlow has more."""

import numpy as np
from tests.frameworks.jax.test_jax_gradients import (  # noqa: F401
    native,
    test_an_output_without_a_gradient_counts_as_zero,
    test_at_a_kink_it_is_the_one_that_pytorch_takes,
    test_backward_is_what_the_pullback_gives,
    test_dropout_passes_the_gradient_where_it_passed_the_value,
    test_integers_have_no_gradient,
    test_the_bounds_of_clip_have_the_full_gradient,
    test_the_gradient_is_the_slope,
    test_the_gradient_of_a_draw_that_is_not_kept_is_refused,
)

from levelbench.operators.node import operator_node


def test_the_gradient_of_unique_goes_to_the_first_of_equal_values(backend):
    _, pullback = backend.operator(operator_node("Unique")).vjp(backend.array(np.array([1.0, 2.0, 1.0])))
    (gradient,) = pullback(backend.array(np.array([3.0, 5.0])))
    assert backend.host(gradient).tolist() == [3, 5, 0]
