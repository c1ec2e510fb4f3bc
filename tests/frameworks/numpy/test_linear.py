import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")


MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((3, 4), (2, 6, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((2, 3, 0), (0, 5)),
]


@pytest.mark.parametrize("shapes", MATMULS, ids=str)
def test_matmul_of_any_ranks_and_its_gradients_match_torch(shapes, same_as_torch):
    same_as_torch(torch.matmul, "MatMul", *(normal(*shape) for shape in shapes))


def test_matmul_takes_arrays_that_are_not_contiguous(same_as_torch):
    a, b = normal(4, 3, 2).transpose(2, 1, 0), normal(5, 4).T
    same_as_torch(torch.matmul, "MatMul", a, b)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integers_are_multiplied_exactly_even_where_they_wrap(dtype, run):
    largest = np.iinfo(dtype).max
    for a in (np.array([[2, 3], [1, 7]], dtype), np.array([[largest, 3], [1, largest - 1]], dtype)):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(run("MatMul", a, a), np.matmul(a, a))


def test_integers_have_no_gradient(pull):
    x = np.ones((2, 2), np.int32)
    assert pull("MatMul", x, x, gradient=x) == (None, None)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["MatMul", "Gemm"])
def test_narrow_products_are_summed_in_float32(name, dtype, run, pull):
    a, b = normal(3, 200).astype(dtype), normal(200, 2).astype(dtype)
    found = run(name, a, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype))
    assert [each.dtype for each in pull(name, a, b, gradient=found)] == [dtype, dtype]


@pytest.mark.parametrize("bias", [None, (), (5,), (1, 5), (3, 1), (3, 5)], ids=str)
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
def test_gemm_and_its_gradients_match_torch(bias, turned, same_as_torch):
    a = normal(4, 3) if turned[0] else normal(3, 4)
    b = normal(5, 4) if turned[1] else normal(4, 5)

    def reference(a, b, c=None):
        product = 0.7 * (a.T if turned[0] else a) @ (b.T if turned[1] else b)
        return product if c is None else product + 0.3 * c

    inputs = [a, b] if bias is None else [a, b, normal(*bias)]
    same_as_torch(reference, "Gemm", *inputs, transA=turned[0], transB=turned[1], alpha=0.7000000000000001, beta=0.3)


def test_gemm_of_integers_takes_factors_that_are_none(run):
    a, c = np.array([[1, 2], [3, 4]], np.int32), np.array([1, 1], np.int32)
    np.testing.assert_array_equal(run("Gemm", a, a, c, alpha=2.0), [[15, 21], [31, 45]])
    np.testing.assert_array_equal(run("Gemm", a, a, c, alpha=0.5), [[4, 6], [8, 12]])


def test_gemm_does_not_write_to_its_inputs(run):
    a, c = normal(2, 2), normal(2, 2, seed=1)
    copies = a.copy(), c.copy()
    run("Gemm", a, a, c)
    np.testing.assert_array_equal((a, c), copies)


def test_a_gradient_that_is_not_wanted_is_left_out():
    from levelbench.frameworks.numpy.operators import OPERATORS
    from levelbench.operators.node import operator_node

    a, b = normal(2, 3), normal(3, 4)
    for name, attributes in (("MatMul", {}), ("Gemm", {}), ("Einsum", {"equation": "ij,jk->ik"})):
        kernel = OPERATORS[name](operator_node(name, ["a", "b"], **attributes))
        assert kernel.backward is not None
        found = kernel.backward((np.ones((2, 4)),), (a, b), (a @ b,), wanted=(False, True))
        assert found[0] is None
        np.testing.assert_allclose(found[1], a.T @ np.ones((2, 4)))


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij , jk", (2, 3), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (6, 3, 4)),
    ("...ij,jk", (5, 2, 3), (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ijk->", (2, 3, 4)),
    ("ij->ji", (2, 3)),
    ("ij", (2, 3)),
    ("ba", (2, 3)),
    ("...", (2, 3)),
    ("i...->...", (2, 3, 4)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (4,), (4,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("iij,jk->ik", (3, 3, 2), (2, 4)),
    ("ij,kl->i", (2, 3), (4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("a,b,c,d->dcba", (2,), (3,), (4,), (5,)),
    ("bn,anm,bm->ba", (2, 5), (3, 5, 7), (2, 7)),
    ("aab,bcc->ac", (2, 2, 3), (3, 4, 4)),
    (",ij->ij", (), (2, 3)),
    ("Aa,aB->BA", (2, 3), (3, 4)),
    ("b...i,...->b", (2, 3, 4), (3,)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum_and_its_gradients_match_torch(case, same_as_torch):
    equation, *shapes = case
    operands = [normal(*shape, seed=at) for at, shape in enumerate(shapes)]
    same_as_torch(lambda *x: torch.einsum(equation, *x), "Einsum", *operands, equation=equation)


@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((2, 1), (3, 4)), ((2, 3), (1, 4))], ids=str)
def test_einsum_stretches_an_axis_of_one(shapes, same_as_torch):
    operands = [normal(*shape) for shape in shapes]
    same_as_torch(lambda a, b: torch.einsum("ij,jk->ik", a, b), "Einsum", *operands, equation="ij,jk->ik")


def test_einsum_keeps_integers(run):
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    found = run("Einsum", x, x, equation="ij,kj->ik")
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, x @ x.T)


def test_einsum_says_which_term_has_the_wrong_rank(run):
    from levelbench.errors import UsageError

    with pytest.raises(UsageError, match="rank 3 for 'ij'"):
        run("Einsum", normal(2, 3, 4), equation="ij->i")
