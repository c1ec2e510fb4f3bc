"""What holds for every rule: on each framework's arrays, for each dtype, and under the symmetries that papers claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.training import optimizers as ours
from levelbench.training.optimizers.base import UpdateRule

pytestmark = pytest.mark.sampled(3)

RULES = {
    "SGD": ours.SGD(0.05),
    "Momentum": ours.Momentum(0.05),
    "Nesterov": ours.Momentum(0.05, nesterov=True),
    "AdaGrad": ours.AdaGrad(0.1),
    "RMSProp": ours.RMSProp(0.01, momentum=0.5, centered=True),
    "Adadelta": ours.Adadelta(1.0),
    "Adam": ours.Adam(0.01, amsgrad=True),
    "AdamW": ours.AdamW(0.01, weight_decay=0.0),
    "NAdam": ours.NAdam(0.01),
    "Lion": ours.Lion(0.01),
    "LARS": ours.LARS(0.1, trust=0.02),
    "LAMB": ours.LAMB(0.01),
    "Adafactor": ours.Adafactor(0.01),
    "Muon": ours.Muon(0.02),
    "Shampoo": ours.Shampoo(0.1, momentum=0.5),
    "ScheduleFreeSGD": ours.ScheduleFreeSGD(0.05),
    "ScheduleFreeAdamW": ours.ScheduleFreeAdamW(0.01),
    "AcceleGrad": ours.AcceleGrad(),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def named(*names):
    return pytest.mark.parametrize("rule", [RULES[name] for name in names], ids=names)


def arrays(state):
    """The arrays in a state, flat."""
    if isinstance(state, tuple):
        return [array for each in state for array in arrays(each)]
    return [] if state is None or isinstance(state, float) else [state]


def follow(rule, weight, gradients):
    """The last parameter of a rule, given its gradients."""
    weight, state = weight.copy(), rule.init(weight)
    for step, gradient in enumerate(gradients, 1):
        weight, state = rule.update(weight, gradient.copy(), state, step, rule.lr)
    return weight


def drawn(seed, *shape, steps=6):
    generator = np.random.default_rng(seed)
    return generator.standard_normal(shape), generator.standard_normal((steps, *shape))


seeds = st.integers(0, 2**32)


def test_no_rule_is_left_out():
    public = {getattr(ours, name) for name in ours.__all__}
    made = {type(rule) for rule in RULES.values()}
    assert {each for each in public if issubclass(each, UpdateRule)} - made <= {UpdateRule, ours.AveragingRule}


@every_rule
def test_the_same_lines_serve_numpy_and_torch_arrays_in_place(rule, problem):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    asked = problem(12, names=("weight",))
    weight = torch.from_numpy(asked.start["weight"].copy())
    held, state = weight, rule.init(weight)
    for step in range(1, 13):
        gradient = torch.from_numpy(asked.gradients({"weight": weight.numpy()}, step)["weight"])
        weight, state = rule.update(weight, gradient, state, step, rule.lr)
    assert weight is held
    np.testing.assert_allclose(weight.numpy().reshape(-1), asked.run(rule)[-1], rtol=1e-9)


@every_rule
def test_rules_read_no_values_and_make_no_arrays_on_other_devices(rule):
    """Tensors of PyTorch's meta device have no values that could be read."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    weight = torch.empty((4, 3), device="meta")
    state = rule.init(weight)
    for step in (1, 2):
        weight, state = rule.update(weight, torch.empty_like(weight), state, step, rule.lr)
    assert {str(each.device) for each in (weight, *arrays(state))} == {"meta"}


@pytest.fixture(scope="module")
def jax_paths(problem):
    """The trajectory of every rule on JAX arrays, all compiled as one function with traced steps and rates."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    # Our framework enables 64 bits for the whole process; the result must not depend on earlier tests.
    with jax.enable_x64(False):
        asked = problem(12, "float32", ("weight",))
        curvature, noise = (jax.numpy.asarray(each["weight"]) for each in (asked.curvature, asked.noise))
        start = jax.numpy.asarray(asked.start["weight"])

        def step(carried, now):
            count, factor, drawn = now
            after = {}
            for name, (weight, state) in carried.items():
                lr = RULES[name].lr * factor
                weight, state = RULES[name].update(weight, curvature * weight + drawn, state, count, lr)
                after[name] = weight, jax.tree.map(jax.numpy.asarray, state)
            return after, {name: weight for name, (weight, _) in after.items()}

        begun = {name: (start, jax.tree.map(jax.numpy.asarray, rule.init(start))) for name, rule in RULES.items()}
        each = (jax.numpy.arange(1, 13), jax.numpy.ones(12, np.float32), noise)
        return jax.jit(lambda: jax.lax.scan(step, begun, each))()[1]


@pytest.mark.parametrize("name", RULES)
def test_the_same_lines_serve_jax_arrays_and_compile_with_a_traced_step_and_rate(jax_paths, name, problem):
    expected = problem(12, "float32", ("weight",)).run(RULES[name])
    assert jax_paths[name].dtype == np.float32
    np.testing.assert_allclose(np.asarray(jax_paths[name]).reshape(12, -1), expected, rtol=1e-4, atol=2e-5)


@every_rule
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 2), (2, 3, 2, 2)], ids=str)
def test_dtype_and_shape_are_kept_and_numpy_arrays_are_updated_in_place(rule, dtype, shape):
    if isinstance(rule, ours.Muon) and len(shape) < 2:
        pytest.skip("Muon is for matrices")
    weight = np.ones(shape, dtype)
    held, state = weight, rule.init(weight)
    for step in (1, 2):
        weight, state = rule.update(weight, np.full(shape, 0.5, dtype), state, step, rule.lr)
    assert weight is held
    assert (weight.dtype, weight.shape) == (dtype, shape)
    assert np.isfinite(weight).all()
    assert {each.dtype for each in arrays(state)} <= {np.dtype(dtype)}


@every_rule
def test_the_state_shares_no_memory_with_the_parameter(rule):
    weight = np.ones((3, 2))
    assert not any(np.shares_memory(each, weight) for each in arrays(rule.init(weight)))


@every_rule
@settings(max_examples=5, deadline=None)
@given(seeds)
def test_zero_gradients_move_nothing_without_decay(rule, seed):
    weight, gradients = drawn(seed, 3, 4)
    np.testing.assert_allclose(follow(rule, weight, 0 * gradients), weight, rtol=1e-13)


@every_rule
@settings(max_examples=5, deadline=None)
@given(seeds)
def test_the_mirrored_problem_has_the_mirrored_trajectory(rule, seed):
    weight, gradients = drawn(seed, 3, 4)
    np.testing.assert_allclose(follow(rule, -weight, -gradients), -follow(rule, weight, gradients), rtol=1e-12)


@every_rule
@settings(max_examples=5, deadline=None)
@given(seeds)
def test_only_elementwise_rules_treat_elements_independently(rule, seed):
    weight, gradients = drawn(seed, 3, 4)
    whole = follow(rule, weight, gradients)[:2, :2]
    alone = follow(rule, weight[:2, :2], gradients[:, :2, :2])
    assert np.array_equal(whole, alone) == rule.elementwise


@pytest.mark.parametrize(
    "rule",
    [
        ours.AdaGrad(0.1, epsilon=0.0),
        ours.RMSProp(0.01, epsilon=0.0),
        ours.Adam(0.01, epsilon=0.0),
        ours.NAdam(0.01, epsilon=0.0),
        ours.Lion(0.01),
        ours.LARS(0.1),
        ours.LAMB(0.01, epsilon=0.0),
        ours.Muon(0.02),
        ours.ScheduleFreeAdamW(0.01, epsilon=0.0),
    ],
    ids=lambda rule: type(rule).__name__,
)
@settings(max_examples=5, deadline=None)
@given(seeds, st.floats(1e-3, 1e3))
def test_the_scale_of_gradients_does_not_matter_to_rules_that_claim_so(rule, seed, scale):
    weight, gradients = drawn(seed, 3, 4)
    np.testing.assert_allclose(
        follow(rule, weight, scale * gradients), follow(rule, weight, gradients), rtol=1e-9, atol=1e-11
    )


@named("SGD", "Nesterov", "Muon", "Shampoo", "AcceleGrad", "ScheduleFreeSGD")
@settings(max_examples=5, deadline=None)
@given(seeds)
def test_rules_without_preferred_axes_are_rotation_invariant(rule, seed):
    weight, gradients = drawn(seed, 3, 4)
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0]
    turned = follow(rule, turn @ weight, np.einsum("ij,sjk->sik", turn, gradients))
    np.testing.assert_allclose(turned, turn @ follow(rule, weight, gradients), rtol=1e-8, atol=1e-9)


@every_rule
def test_a_rate_of_zero_moves_nothing(rule):
    weight, gradients = drawn(0, 3, 4)
    moved, state = weight.copy(), rule.init(weight)
    for step, gradient in enumerate(gradients, 1):
        moved, state = rule.update(moved, gradient.copy(), state, step, 0.0)
    np.testing.assert_allclose(moved, weight, rtol=1e-14)


def test_centred_rmsprop_stays_finite_where_gradients_are_all_alike():
    rule = ours.RMSProp(0.01, alpha=0.5, centered=True)
    gradients = np.broadcast_to(np.linspace(0.01, 0.3, 50, dtype="float32"), (100, 50))
    assert np.isfinite(follow(rule, np.zeros(50, "float32"), gradients)).all()


@every_rule
def test_resuming_from_a_saved_state_is_bitwise_identical(rule, problem):
    from levelbench.frameworks.numpy.backend import NumpyBackend

    given_ = problem(9, names=("weight", "kernel"))
    whole, _ = given_.run_with(rule)
    parameters = {n: w.copy() for n, w in given_.start.items()}
    first = rule.start(NumpyBackend(), parameters)
    for step in range(1, 6):
        first.step(given_.gradients(parameters, step), step, 1.0)
    kept, parameters = first.state(), {n: w.copy() for n, w in parameters.items()}
    second = rule.start(NumpyBackend(), parameters)
    second.restore(kept)
    for step in range(6, 10):
        second.step(given_.gradients(parameters, step), step, 1.0)
    assert np.array_equal(given_.flat(parameters), whole[-1])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: ours.SGD(0.0), "lr > 0"),
        (lambda: ours.SGD(-1.0), "lr > 0"),
        (lambda: ours.SGD(float("nan")), "lr > 0"),
        (lambda: ours.SGD(0.1, weight_decay=-1.0), "weight_decay > *= 0"),
        (lambda: ours.SGD(0.1, weight_decay=float("inf")), "weight_decay"),
        (lambda: ours.Momentum(0.1, 1.0), "0 <= momentum < 1"),
        (lambda: ours.Momentum(0.1, -0.1), "0 <= momentum < 1"),
        (lambda: ours.Adam(0.1, beta1=1.0), "0 <= beta1 < 1"),
        (lambda: ours.AdamW(0.1, beta2=1.5), "0 <= beta2 < 1"),
        (lambda: ours.NAdam(0.1, epsilon=-1.0), "epsilon"),
        (lambda: ours.AdaGrad(0.1, initial=-1.0), "initial"),
        (lambda: ours.RMSProp(0.1, alpha=1.0), "0 <= alpha < 1"),
        (lambda: ours.Adadelta(1.0, epsilon=0.0), "epsilon > 0"),
        (lambda: ours.Lion(0.1, beta2=float("nan")), "beta2"),
        (lambda: ours.LARS(0.1, trust=0.0), "trust > 0"),
        (lambda: ours.LAMB(0.1, weight_decay=-0.1), "weight_decay"),
        (lambda: ours.Adafactor(0.1, beta2_decay=0.5), "beta2_decay < 0"),
        (lambda: ours.Adafactor(0.1, clip=0.0), "clip > 0"),
        (lambda: ours.Muon(0.1, iterations=0), "iterations >= 1"),
        (lambda: ours.Muon(0.1, scale="large"), "original, rms"),
        (lambda: ours.Shampoo(0.1, every=0), "every >= 1"),
        (lambda: ours.ScheduleFreeSGD(0.1, beta1=0.0), "0 < beta1 < 1"),
        (lambda: ours.AcceleGrad(diameter=0.0), "diameter > 0"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(make, what):
    with pytest.raises(DefinitionError, match=what):
        make()


def test_muon_refuses_a_vector_and_says_what_to_do():
    with pytest.raises(DefinitionError, match=r"shape \(5,\).*Groups"):
        ours.Muon(0.1).init(np.zeros(5))


def test_muon_in_bfloat16_on_arrays_without_it_is_unsupported():
    rule, weight = ours.Muon(0.1, bfloat16=True), np.ones((2, 2))
    with pytest.raises(UnsupportedError, match="bfloat16=False"):
        rule.update(weight, np.ones((2, 2)), rule.init(weight), 1, 0.1)
