import numpy as np
import pytest

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks import Draw, GraphBuilder, transforms
from levelbench.networks.transforms import check_equivalence

W = Draw("normal", 0.5)


def baked(batch, *, second=-1):
    """A network with its batch in three constant shapes."""
    g = GraphBuilder("baked")
    x = g.input("x", (batch, 4, 6))
    x = g.node("Reshape", x, g.constant([batch * 4, 6]))
    x = g.node("MatMul", x, g.parameter("w", (6, 6), W))
    x = g.node("Reshape", x, g.constant([batch, 4, 2, 3]))
    x = g.node("Expand", g.node("ReduceMean", x, g.constant([2])), g.constant([batch, 4, 1, 3]))
    g.output(g.node("Reshape", x, g.constant([batch, second])), "y")
    return g.build()


def run(backend, network, x):
    return backend.executor(network, None, trains=False).infer(x)[0]


@pytest.mark.parametrize("old", [1, 2, 5])
@pytest.mark.parametrize("new", [1, 3, 7])
def test_a_fixed_batch_becomes_another(old, new, backend):
    done = transforms.make("batch", size=new).apply(baked(old))
    assert done.network.inputs[0].shape == (new, 4, 6)
    assert done.network.outputs[0].shape == (new, 12)
    check_equivalence(baked(new), done.network, backend)


def test_a_fixed_batch_is_opened(backend):
    done = transforms.make("batch").apply(baked(2, second=12))
    assert done.network.inputs[0].shape == ("batch", 4, 6)
    for batch in (1, 2, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 4, 6)).astype(np.float32)
        np.testing.assert_allclose(run(backend, done.network, x), run(backend, baked(batch), x), rtol=1e-6)
    assert done.changed[1] == "changed 4 shapes that contained it"


def test_an_open_batch_is_fixed(residual):
    done = transforms.make("batch", size="8").apply(residual)
    assert done.network.inputs[0].shape == (8, 3, 8, 8)
    assert done.network.outputs[0].shape == (8, 5)


def test_an_open_batch_is_renamed(residual):
    done = transforms.make("batch", size="samples").apply(residual)
    assert done.network.inputs[0].shape[0] == "samples"
    assert done.network.outputs[0].shape == ("samples", 5)


def test_the_current_batch_is_no_change():
    assert transforms.make("batch", size=3).apply(baked(3)).changed == ()


def test_a_shape_with_another_open_size_gets_a_zero(backend):
    done = transforms.make("batch").apply(baked(2))
    x = np.ones((3, 4, 6), np.float32)
    assert run(backend, done.network, x).shape == (3, 12)


def test_a_constant_with_a_row_per_sample_is_refused_by_name():
    g = GraphBuilder("rows")
    g.output(g.node("Add", g.input("x", (2, 3)), g.constant(np.ones((2, 3), np.float32)), name="shift"), "y")
    with pytest.raises(DefinitionError, match=r"Add 'shift'.*has one row for each of 2 samples"):
        transforms.make("batch", size=4).apply(g.build())


def test_a_shape_that_mixes_samples_is_refused_by_name():
    g = GraphBuilder("mixed")
    x = g.node("Transpose", g.input("x", (2, 3, 4)), perm=[1, 0, 2])
    g.output(g.node("Reshape", x, g.constant([2, 12]), name="mixing"), "y")
    with pytest.raises(DefinitionError, match=r"batch|samples"):
        transforms.make("batch", size=4).apply(g.build())


@pytest.mark.parametrize("size", [0, -3, "0"])
def test_a_batch_below_one_is_refused(size):
    with pytest.raises(UsageError, match="it has no samples"):
        transforms.make("batch", size=size)
