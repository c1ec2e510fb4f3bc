"""Networks, losses and optimizers of PyTorch and JAX as parts of a recipe."""

from functools import partial

import numpy as np
import pytest
from tests.training.toy import make_dataset

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.frameworks.numpy import framework as numpy_framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training.augmentation import Flip
from levelbench.training.optimizers import SGD
from levelbench.training.probes.bench import Bench
from levelbench.training.probes.recipe_parts import fits
from levelbench.training.quality import Top1
from levelbench.training.samplers import Shuffled
from levelbench.training.schedules import Polynomial
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.task import Recipe
from levelbench.training.trainer import Trainer

FEATURES, CLASSES = make_dataset().train.columns[0].shape[1], make_dataset().classes


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@pytest.fixture
def module(torch):
    """Builds a small network with a random draw in each step."""
    return lambda: torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, CLASSES)
    )


@pytest.fixture
def function(jax):
    """Builds a linear function of JAX's."""

    def build(seed):
        weights = jax.random.normal(jax.random.key(seed), (FEATURES, CLASSES))
        return lambda parameters, x: x @ parameters["w"] + parameters["b"], {"w": weights, "b": np.zeros(CLASSES, "f4")}

    return build


def recipe(network, optimizer=None, **more):
    return Recipe(network, Shuffled(8), optimizer or SGD(0.1), epochs=2, **more)


def trained(framework, made, seed=0):
    """The trainer after running the whole recipe."""
    timeline = Timeline(FakeClock(tick_ns=10))
    stopping = Stopping(Top1(target=1.0).as_target(), "confirmed", Evaluate(1, "epoch"), 2)
    backend = load_framework(framework).open()
    found = Trainer(backend, make_dataset(), made, Top1(target=1.0), stopping, seed=seed, timeline=timeline)
    found.run()
    return found


def weights(trainer):
    return {name: np.array(trainer.backend.host(each)) for name, each in trainer.executor.parameters.items()}


def batches(trainer):
    """All training batches of the two epochs, on the host."""
    return [
        [trainer.backend.host(each) for each in batch] for epoch in (0, 1) for batch in trainer.loader.batches(epoch)
    ]


def test_a_pytorch_module_and_optimizer_train_as_in_a_hand_written_loop(torch, module):
    found = trained("torch", recipe(module, partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)))
    torch.manual_seed(0)
    model = module()
    # The trainer's random numbers for dropout start from the seed, too.
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)
    model.train()
    for x, labels in batches(found):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(labels)).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(weights(found)[name], parameter.detach().numpy())


def test_a_jax_function_and_an_optax_chain_train_as_in_a_hand_written_loop(jax, function):
    optax = pytest.importorskip("optax")
    chain = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9))
    found = trained("jax", recipe(function, chain))
    with jax.enable_x64(False):
        call, parameters = function(0)
        state = chain.init(parameters)

        def loss(parameters, x, labels):
            return optax.softmax_cross_entropy_with_integer_labels(call(parameters, x), labels).mean()

        for x, labels in batches(found):
            gradients = jax.grad(loss)(parameters, x, labels.astype("i4"))
            updates, state = chain.update(gradients, state, parameters)
            parameters = optax.apply_updates(parameters, updates)
    for name, value in parameters.items():
        np.testing.assert_allclose(weights(found)[name], value, rtol=1e-5, atol=1e-6)


def normalised(jax, seed):
    """A function that normalises its inputs by the batch, keeps the running mean of them, and draws a mask."""
    momentum = 0.9

    def call(parameters, state, x, training):
        mean = x.mean(0) if training else state["mean"]
        key, used = jax.random.split(state["key"])
        mask = jax.random.bernoulli(used, 0.8, x.shape) if training else 1.0
        fresh = {"mean": momentum * state["mean"] + (1 - momentum) * x.mean(0), "key": key}
        return ((x - mean) * mask) @ parameters["w"], fresh

    weights = jax.random.normal(jax.random.key(seed), (FEATURES, CLASSES))
    state = {"mean": np.zeros(FEATURES, "f4"), "key": jax.random.PRNGKey(seed)}
    return call, {"w": weights}, state


def test_a_jax_functions_state_equals_that_of_a_hand_written_loop(jax):
    optax = pytest.importorskip("optax")
    found = trained("jax", recipe(lambda seed: normalised(jax, seed), optax.sgd(0.1)))
    with jax.enable_x64(False):
        call, parameters, state = normalised(jax, 0)

        def loss(parameters, state, x, labels):
            scores, fresh = call(parameters, state, x, training=True)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean(), fresh

        for x, labels in batches(found):
            gradients, state = jax.grad(loss, has_aux=True)(parameters, state, x, labels.astype("i4"))
            parameters = jax.tree.map(lambda value, gradient: value - 0.1 * gradient, parameters, gradients)
        x = batches(found)[0][0]
        expected = call(parameters, state, x, training=False)[0]
    buffers = {name: np.asarray(each) for name, each in found.executor.buffers.items()}
    np.testing.assert_allclose(weights(found)["w"], parameters["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(buffers["state.mean"], state["mean"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(buffers["state.key"], state["key"])
    # The measured function uses its running mean, and measuring changes nothing.
    (scores,) = found.executor.infer(found.backend.array(x))
    np.testing.assert_allclose(np.asarray(scores), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(found.executor.buffers["state.mean"]), buffers["state.mean"])


@pytest.mark.parametrize(
    ("answer", "state", "found"),
    [
        (lambda p, s, x, training: x @ p, {"n": np.zeros(1, "f4")}, "it is not a pair"),
        (lambda p, s, x, training: (x @ p, {}), {"n": np.zeros(1, "f4")}, "its new state is"),
        (lambda p, s, x, training: (x @ p, s), "typed", "typed random key"),
    ],
)
def test_an_unsupported_state_is_refused(jax, answer, state, found):
    kept = {"key": jax.random.key(0)} if state == "typed" else state
    build = lambda: (answer, np.ones((FEATURES, CLASSES), "f4"), kept)  # noqa: E731
    with pytest.raises(DefinitionError, match=found):
        trained("jax", recipe(build))


def test_a_schedule_multiplies_the_updates_of_an_optax_chain(function):
    optax = pytest.importorskip("optax")
    schedule = Polynomial()
    chained = trained("jax", recipe(function, optax.chain(optax.sgd(0.1)), schedule=schedule))
    named = trained("jax", recipe(function, SGD(0.1), schedule=schedule))
    for name, value in weights(named).items():
        np.testing.assert_allclose(weights(chained)[name], value, rtol=1e-5, atol=1e-6)


def test_a_seed_determines_a_modules_weights_and_not_the_global_generator(torch, module):
    backend, made = load_framework("torch").open(), recipe(module)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (backend.initialise(made.network, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["0.weight"], other["0.weight"])


def test_a_function_without_a_seed_has_the_same_weights_for_all():
    pytest.importorskip("jax")
    build = lambda: (lambda p, x: x @ p, np.ones((FEATURES, CLASSES), "f4"))  # noqa: E731
    backend, made = load_framework("jax").open(), recipe(build)
    first, other = (backend.initialise(made.network, seed) for seed in (1, 2))
    assert all(np.array_equal(first[name], other[name]) for name in first)


def test_jaxs_own_parameters_stay_in_32_bits(function):
    found = load_framework("jax").open().initialise(recipe(function).network, 0)
    assert {each.dtype.name for each in found.values()} == {"float32"}


def test_a_recipes_loss_replaces_cross_entropy(torch, module):
    asked = []

    def loss(scores, labels):
        asked.append(tuple(scores.shape))
        return (scores - torch.nn.functional.one_hot(labels, CLASSES)).square().mean()

    found = trained("torch", recipe(module, loss=loss))
    assert len(asked) == len(batches(found))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_label_smoothing_is_pytorchs(framework, torch, request):
    network = request.getfixturevalue({"torch": "module", "jax": "function"}[framework])
    backend, made = load_framework(framework).open(), recipe(network, label_smoothing=0.1)
    drawn = backend.initialise(made.network, 0)
    executor = backend.build(made.trained_network(), drawn)
    if framework == "torch":
        # Dropout would be random outside inference.
        executor._module[2].p = 0.0
    random = np.random.default_rng(0)
    x, labels = random.standard_normal((6, FEATURES)).astype("f4"), np.arange(6) % CLASSES
    scores = torch.from_numpy(np.array(backend.host(executor.infer(backend.array(x))[0])))
    soft = torch.nn.functional.one_hot(torch.from_numpy(labels), CLASSES).float() * 0.5 + 0.5 / CLASSES
    for given in (torch.from_numpy(labels), soft):
        expected = float(torch.nn.functional.cross_entropy(scores, given, label_smoothing=0.1))
        found = backend.host(executor.forward(backend.array(x), backend.array(given.numpy())))
        assert float(found) == pytest.approx(expected, rel=1e-5)


def test_bfloat16_and_channels_last_give_the_loss_of_float32_up_to_rounding(torch):
    made = recipe(lambda: torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(12, 4)))
    backend = load_framework("torch").open()
    drawn = backend.initialise(made.network, 0)
    x, labels = torch.randn(5, 2, 4, 4), torch.arange(5) % 4
    exact = backend.build(made.trained_network(), drawn).forward(x, labels)
    for numbers in ({"precision": "bfloat16"}, {"channels_last": True}):
        found = backend.build(made.trained_network(), drawn, **numbers).forward(x, labels)
        assert float(found) == pytest.approx(float(exact), rel=0.02)


def test_a_loss_may_be_a_module_without_a_length_or_of_length_0(module, torch):
    class Terms(torch.nn.ModuleList):
        def forward(self, scores, labels):
            return torch.nn.functional.cross_entropy(scores, labels)

    for loss in (Terms(), torch.compile(torch.nn.CrossEntropyLoss(), backend="eager")):
        assert recipe(module, loss=loss).trained_network().model(0).loss is loss


def test_an_existing_module_is_refused(module):
    with pytest.raises(DefinitionError, match=r"already initialised.*network=lambda: Sequential"):
        recipe(module())


def test_anything_but_a_network_or_a_function_is_refused():
    with pytest.raises(DefinitionError, match="it is a int"):
        recipe(3)


def test_a_loss_with_an_onnx_network_is_refused():
    with pytest.raises(DefinitionError, match="a recipe's loss"):
        recipe(zoo.mlp(4, 4, 2), loss=lambda scores, labels: scores)


@pytest.mark.parametrize("loss", ["hinge", 5, Top1])
def test_a_loss_that_is_no_function_is_refused(loss):
    with pytest.raises(DefinitionError, match=r"a recipe's loss.*(is no function|is a class, Top1.*loss=Top1\(\))"):
        recipe(lambda: None, loss=loss)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"schedule": "cosine"}, r"a recipe's schedule.*it is of type str"),
        ({"schedule": Polynomial}, r"a recipe's schedule.*it is Polynomial"),
        ({"schedule": lambda progress: 1.0}, r"a recipe's schedule.*it is of type function.*derive from Schedule"),
        ({"augment": (abs,)}, r"a recipe's augment.*it is of type builtin"),
        ({"augment": None}, r"a recipe's augment.*it is of type NoneType.*\(\) is none"),
        ({"label_smoothing": "0.1"}, r"a recipe's label_smoothing.*it is '0.1'.*Give a number"),
        ({"mix": Flip()}, r"a recipe's mix.*it is of type Flip"),
    ],
)
def test_a_part_of_another_kind_is_refused_in_words(part, found):
    with pytest.raises(DefinitionError, match=found):
        recipe(lambda: None, **part)


@pytest.mark.parametrize("augment", [Flip(), [Flip()], (Flip(),)])
def test_one_augmentation_or_a_list_is_taken_as_a_tuple(augment):
    assert recipe(lambda: None, augment=augment).augment == (Flip(),)


@pytest.mark.parametrize("part", [{"epochs": "5"}, {"epochs": 2.5}, {"accumulate": None}, {"workers": True}])
def test_a_number_that_is_not_whole_is_refused_in_words(part):
    with pytest.raises(DefinitionError, match=rf"a recipe's {next(iter(part))}.*[Gg]ive a whole number"):
        Recipe(**{"network": lambda: None, "sampler": Shuffled(8), "optimizer": SGD(0.1), "epochs": 2, **part})


def test_a_sampler_of_another_kind_is_refused_in_words():
    with pytest.raises(DefinitionError, match=r"a recipe's sampler.*it is of type int"):
        Recipe(lambda: None, 64, SGD(0.1), epochs=2)


def test_a_function_that_returns_no_network_is_refused():
    pytest.importorskip("torch")
    with pytest.raises(DefinitionError, match="returns nothing"):
        load_framework("torch").open().initialise(recipe(lambda: None).network, 0)


def test_a_module_without_weights_yet_is_refused(torch):
    backend, made = load_framework("torch").open(), recipe(torch.nn.ReLU)
    with pytest.raises(DefinitionError, match="no parameters to train"):
        backend.build(made.network, backend.initialise(made.network, 0))


def test_a_network_of_another_framework_is_refused(module):
    with pytest.raises(UnsupportedError, match=r"[Uu]se --framework torch"):
        numpy_framework.open().initialise(recipe(module).network, 0)


def test_a_pytorch_network_cannot_be_exported_for_inference(module):
    with pytest.raises(UnsupportedError, match="a trained network as a file"):
        recipe(module).onnx_network("a trained network as a file")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda torch: torch.optim.SGD([torch.zeros(1)], lr=0.1), "already holds a module's parameters"),
        (lambda torch: partial(torch.optim.LBFGS, lr=0.1), "evaluates the loss itself"),
        (lambda torch: partial(torch.optim.SGD, 0.1), "positional arguments"),
        (lambda torch: partial(torch.optim.SGD, lr=-0.1), "not positive"),
        (lambda torch: "sgd", "not an optimizer class"),
        (lambda torch: print, "not an optimizer class"),
    ],
    ids=["an instance", "LBFGS", "without names", "a negative rate", "a word", "a function"],
)
def test_an_unusable_optimizer_is_refused(torch, module, optimizer, message):
    with pytest.raises(DefinitionError, match=message):
        recipe(module, optimizer(torch))


def test_an_unknown_argument_of_a_pytorch_optimizer_is_refused(torch, module):
    made = recipe(module, partial(torch.optim.SGD, lr=0.1, beta=1))
    with pytest.raises(DefinitionError, match="beta"):
        trained("torch", made)


def test_an_optimizer_class_alone_has_its_default_rate(torch, module):
    assert recipe(module, torch.optim.AdamW).optimizer.lr == 1e-3


class TestCheck:
    def bench(self, made):
        return Bench(made, make_dataset(), load_framework("torch").open(), Top1(target=0.9))

    def test_a_network_that_takes_the_data_passes(self, module):
        (found,) = fits(self.bench(recipe(module)), 0)
        assert found.status == "passed"

    def test_a_network_for_other_data_is_told_what_it_raises(self, torch):
        (found,) = fits(self.bench(recipe(lambda: torch.nn.Linear(FEATURES + 1, CLASSES))), 0)
        assert found.status == "failed"
        assert "RuntimeError" in found.found

    def test_too_few_outputs_are_found(self, torch):
        (found,) = fits(self.bench(recipe(lambda: torch.nn.Linear(FEATURES, 1))), 0)
        assert found.status == "failed"
