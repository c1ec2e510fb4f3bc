"""Rules compared with their papers' recursions in plain float64, and with what the papers prove about them."""

import math

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power

from levelbench.training import optimizers as ours
from levelbench.training.optimizers.layerwise import orthogonalised


def test_adam_follows_algorithm_1_of_its_paper(problem, assert_same_path):
    given = problem(300, names=("bias",))
    weight, first, second = given.start["bias"], np.zeros(5), np.zeros(5)
    path = []
    for step in range(1, 301):
        gradient = given.gradients({"bias": weight}, step)["bias"]
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        unbiased = first / (1 - 0.9**step), second / (1 - 0.999**step)
        weight = weight - 0.01 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        path.append(weight)
    assert_same_path(given.run(ours.Adam(0.01)), np.array(path), 1e-12)


def test_nadam_follows_the_schedule_of_momenta_of_its_paper(problem, assert_same_path):
    given = problem(300, names=("bias",))
    weight, first, second, product, path = given.start["bias"], np.zeros(5), np.zeros(5), 1.0, []

    def momentum(step):
        return 0.9 * (1 - 0.5 * 0.96 ** (0.004 * step))

    for step in range(1, 301):
        gradient = given.gradients({"bias": weight}, step)["bias"]
        product *= momentum(step)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        ahead = momentum(step + 1) * first / (1 - product * momentum(step + 1))
        ahead = ahead + (1 - momentum(step)) * gradient / (1 - product)
        weight = weight - 0.01 * ahead / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        path.append(weight)
    assert_same_path(given.run(ours.NAdam(0.01)), np.array(path), 1e-12)


def test_accelegrad_follows_algorithm_2_of_its_paper(problem, assert_same_path):
    """x, y and z with the weights α, the rates η and the weighted mean of y as in the paper, counted from 0."""
    given, diameter, bound = problem(300, names=("bias",)), 2.0, 1.5
    y = z = given.start["bias"]
    squares, means, points, weights, ys = 0.0, [], [], [], []
    for t in range(300):
        alpha = 1.0 if t <= 2 else (t + 1) / 4
        x = z / alpha + (1 - 1 / alpha) * y
        points.append(x)
        gradient = given.gradients({"bias": x}, t + 1)["bias"]
        squares += alpha**2 * np.sum(gradient**2)
        eta = 2 * diameter / math.sqrt(bound**2 + squares)
        z = z - alpha * eta * gradient
        y = x - eta * gradient
        weights.append(alpha)
        ys.append(y)
        means.append(np.average(ys, axis=0, weights=weights))
    path, stepper = given.run_with(ours.AcceleGrad(diameter=diameter, bound=bound))
    assert_same_path(path[:-1], np.array(points[1:]), 1e-12)
    np.testing.assert_allclose(stepper.averaged()["bias"], means[-1], rtol=1e-10)


def test_accelegrad_reaches_the_minimum_of_a_convex_function_without_its_smoothness():
    curvature, weight = np.array([0.01, 1.0, 100.0]), np.array([1.0, -0.5, 0.3])
    start = 0.5 * np.sum(curvature * weight**2)
    rule = ours.AcceleGrad(diameter=2.5)
    state = rule.init(weight)
    for step in range(1, 2001):
        weight, state = rule.update(weight, curvature * weight, state, step, 1.0)
    assert 0.5 * np.sum(curvature * rule.average(weight, state) ** 2) < 1e-4 * start


@pytest.mark.parametrize("name", ["weight", "bias", "kernel", "scale"])
def test_shampoo_follows_algorithm_2_of_its_paper(problem, assert_same_path, name):
    """A preconditioner for each axis, to the power -1/(2k): for a vector, full-matrix AdaGrad."""
    given = problem(25, names=(name,))
    weight = np.atleast_1d(given.start[name])
    axes, shape = weight.ndim, weight.shape
    statistics = [0.1 * np.eye(size) for size in shape]
    path = []
    for step in range(1, 26):
        gradient = given.gradients({name: weight.reshape(given.start[name].shape)}, step)[name].reshape(shape)
        change = gradient
        for axis in range(axes):
            unfolded = np.moveaxis(gradient, axis, 0).reshape(shape[axis], -1)
            statistics[axis] = statistics[axis] + unfolded @ unfolded.T
            root = fractional_matrix_power(statistics[axis], -1 / (2 * axes))
            change = np.moveaxis(np.tensordot(root, change, axes=(1, axis)), 0, axis)
        weight = weight - 0.3 * change
        path.append(weight.reshape(-1))
    assert_same_path(given.run(ours.Shampoo(0.3, epsilon=0.1)), np.array(path), 1e-10)


def test_shampoo_keeps_only_the_diagonal_of_a_long_axis(problem, assert_same_path):
    given = problem(25, names=("bias",))
    diagonal = given.run(ours.Shampoo(0.3, epsilon=0.1, largest=4))
    assert_same_path(diagonal, given.run(ours.AdaGrad(0.3, epsilon=0.0, initial=0.1)), 1e-12)


def test_shampoo_keeps_its_roots_for_as_many_steps_as_asked(problem):
    given = problem(6, names=("weight",))
    often, seldom = given.run(ours.Shampoo(0.3)), given.run(ours.Shampoo(0.3, every=3))
    np.testing.assert_allclose(often[0], seldom[0], rtol=1e-12)
    rule, weight = ours.Shampoo(0.3, every=3), given.start["weight"].copy()
    state, roots = rule.init(weight), []
    for step in range(1, 7):
        weight, state = rule.update(weight, given.gradients({"weight": weight}, step)["weight"], state, step, 0.3)
        roots.append(state[1][0])
    assert np.array_equal(roots[0], roots[2])
    assert np.array_equal(roots[3], roots[5])
    assert not np.array_equal(roots[2], roots[3])


def test_shampoo_with_momentum_preconditions_the_average_gradient(problem):
    weight, gradient = np.ones((2, 2)), np.array([[1.0, 2.0], [3.0, 5.0]])
    plain, averaged = ours.Shampoo(1.0), ours.Shampoo(1.0, momentum=0.75)
    moved = plain.update(weight.copy(), gradient.copy(), plain.init(weight), 1, 1.0)[0] - weight
    less = averaged.update(weight.copy(), gradient.copy(), averaged.init(weight), 1, 1.0)[0] - weight
    np.testing.assert_allclose(less, 0.25 * moved, rtol=1e-12)


@pytest.mark.parametrize("rule", ["SGD", "AdamW"])
def test_schedule_free_follows_its_papers_three_sequences(problem, assert_same_path, rule):
    """The paper keeps x, y and z; ours has y, and z in its state. A warm-up makes the weights unequal."""
    given, beta1, decay = problem(200, names=("bias",)), 0.8, 0.1
    x = z = y = given.start["bias"]
    total, highest, second, path, rates = 0.0, 0.0, np.zeros(5), [], []
    for step in range(1, 201):
        lr = 0.05 * min(1, (step - 1) / 20) * (0.5 if step > 100 else 1)
        rates.append(lr)
        direction = given.gradients({"bias": y}, step)["bias"]
        if rule == "AdamW":
            second = 0.99 * second + 0.01 * direction**2
            direction = direction / (np.sqrt(second / (1 - 0.99**step)) + 1e-3)
        z = z - lr * (direction + decay * y)
        highest = max(highest, lr)
        total += highest**2
        share = highest**2 / total if total else 0.0
        x = (1 - share) * x + share * z
        y = (1 - beta1) * z + beta1 * x
        path.append(y)
    made = (
        ours.ScheduleFreeSGD(0.05, beta1, weight_decay=decay)
        if rule == "SGD"
        else ours.ScheduleFreeAdamW(0.05, beta1, 0.99, 1e-3, weight_decay=decay)
    )
    weight, followed = given.start["bias"].copy(), []
    state = made.init(weight)
    for step, lr in enumerate(rates, 1):
        gradient = given.gradients({"bias": weight}, step)["bias"]
        weight, state = made.update(weight, gradient, state, step, lr)
        followed.append(weight.copy())
    assert_same_path(np.array(followed), np.array(path), 1e-12)
    np.testing.assert_allclose(made.average(weight, state), x, rtol=1e-9)


@pytest.mark.parametrize("shape", [(4, 4), (7, 3), (3, 7), (1, 5)])
def test_muons_matrix_has_the_singular_vectors_of_the_given_one_and_values_near_1(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ orthogonalised(matrix, 5) @ right.T
    np.testing.assert_allclose(inner - np.diag(np.diag(inner)), 0, atol=1e-9)
    assert np.all((np.diag(inner) > 0.6) & (np.diag(inner) < 1.25))


def test_muon_takes_the_kernel_of_a_convolution_as_a_matrix(problem):
    given = problem(3, names=("kernel",))
    flat = {"kernel": given.start["kernel"].reshape(3, 8).copy()}
    rule, state = ours.Muon(0.1), None
    for step in range(1, 4):
        gradient = given.gradients({"kernel": flat["kernel"].reshape(3, 2, 2, 2)}, step)["kernel"].reshape(3, 8)
        state = rule.init(flat["kernel"]) if state is None else state
        flat["kernel"], state = rule.update(flat["kernel"], gradient, state, step, 0.1)
    np.testing.assert_allclose(given.run(rule)[-1], flat["kernel"].reshape(-1), rtol=1e-12)


def test_adafactor_keeps_a_row_and_a_column_in_place_of_a_matrix():
    rows, columns = ours.Adafactor().init(np.zeros((2, 300, 200), np.float32))
    assert (rows.shape, columns.shape) == ((2, 300, 1), (2, 1, 200))
