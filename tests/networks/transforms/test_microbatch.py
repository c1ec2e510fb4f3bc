import itertools
import re

import numpy as np
import pytest

from levelbench.errors import UsageError
from levelbench.networks import Draw, GraphBuilder, transforms, zoo
from levelbench.networks.transforms import check_transform
from levelbench.networks.transforms.graph import batch_axes, bind
from levelbench.networks.transforms.memory import Profile, SpeedModel, TimeTable, measure_times, sizes_of
from levelbench.networks.transforms.microbatch import Microbatch, _Costs, make_plan, parse_bytes
from levelbench.operators.frameworks import open_framework


def plan_of(network, batch, memory, **settings):
    return Microbatch(memory=memory, batch=batch, **settings).plan(network)


def smallest(network, batch, **settings):
    with pytest.raises(UsageError) as caught:
        plan_of(network, batch, 1, **settings)
    return int(re.search(r"possible limit is (\d+) bytes", caught.value.found)[1])


@pytest.mark.parametrize("text", ["2GiB", "2 gib", "2147483648", "2147483648B"])
def test_memory_is_parsed_with_its_unit(text):
    assert parse_bytes(text) == 1 << 31


def test_decimal_units_are_powers_of_ten():
    assert [parse_bytes(each) for each in ("1kB", "1.5MB", "2GB")] == [1000, 1_500_000, 2_000_000_000]


@pytest.mark.parametrize("text", ["", "much", "-1", "1TB", "1 2"])
def test_invalid_memory_is_refused(text):
    with pytest.raises(UsageError, match="not a number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(("batch", "pieces"), [(7, 1), (7, 3), (8, 8), (64, 6)])
def test_pieces_add_up_to_the_batch_and_differ_by_at_most_one(batch, pieces):
    sizes = sizes_of(batch, pieces)
    assert sum(sizes) == batch
    assert len(sizes) == pieces
    assert max(sizes) - min(sizes) <= 1


def test_a_network_that_fits_is_not_split(residual):
    done = transforms.make("microbatch", memory="1GiB", batch=6).apply(residual)
    assert not done.details.splits
    assert done.changed == ()
    assert [each.op_type for each in done.network.nodes] == [each.op_type for each in residual.nodes]


def test_the_predicted_peak_matches_a_count_by_hand():
    network = zoo.mlp(10, 20, 5)
    plan = plan_of(network, 8, "1GiB", workspace="none")
    parameters, inputs = 4 * (10 * 20 + 20 + 20 * 5 + 5), 4 * 8 * 10
    # The hidden layer before and after its activation are alive together.
    assert plan.memory == parameters + inputs + 2 * 4 * 8 * 20


@pytest.mark.parametrize("share", [0.9, 0.7, 0.5, 0.3])
def test_a_plan_stays_within_its_limit_and_covers_every_node_once(share, residual):
    whole = plan_of(residual, 16, "1GiB").memory
    least = smallest(residual, 16)
    limit = int(least + share * (whole - least))
    plan = plan_of(residual, 16, limit)
    assert plan.memory <= limit < plan.whole_memory
    assert plan.splits
    assert plan.segments[0].first == 0
    assert all(a.stop == b.first for a, b in itertools.pairwise(plan.segments))
    assert all(sum(each.pieces) == 16 for each in plan.segments)


def test_less_memory_never_takes_less_time(residual):
    whole, least = plan_of(residual, 16, "1GiB").memory, smallest(residual, 16)
    times = [plan_of(residual, 16, int(limit)).time_s for limit in np.linspace(whole, least, 6)]
    assert times == sorted(times)


def test_the_error_for_an_impossible_limit_states_the_smallest_possible(residual):
    least = smallest(residual, 16)
    assert plan_of(residual, 16, least).memory <= least
    with pytest.raises(UsageError, match="the smallest possible limit"):
        plan_of(residual, 16, least - 1)


def test_the_smallest_possible_limit_includes_what_a_plan_has_to_leave(residual):
    assert smallest(residual, 16, spare=5_000_000) == smallest(residual, 16) + 5_000_000


def test_the_plan_is_the_fastest_possible(residual):
    """Compared with all ways to cut and split, tried one by one."""
    network = bind(residual, 4)
    profile = Profile(network, batch_axes(residual), 4, "none")
    nodes = len(profile.nodes)
    costs = _Costs(profile, SpeedModel(), None)
    limit = (costs.of(0, nodes)[0][0] + smallest(residual, 4, workspace="none")) / 2
    known = {(first, stop): costs.of(first, stop) for stop in range(nodes + 1) for first in range(stop)}
    times = {place: np.where(peaks <= limit, found, np.inf).min() for place, (peaks, found) in known.items()}
    least = np.inf
    for inner in itertools.product([False, True], repeat=nodes - 1):
        cuts = [0, *(at + 1 for at, cut in enumerate(inner) if cut), nodes]
        least = min(least, sum(times[place] for place in itertools.pairwise(cuts)))
    assert make_plan(profile, int(limit), reserve=0.0).time_s == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("batch", [2, 5, 9])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_outputs_gradients_and_buffers_are_those_of_the_whole_batch(batch, share, residual, backend):
    whole, least = plan_of(residual, batch, "1GiB").memory, smallest(residual, batch)
    done, _ = check_transform(
        transforms.make("microbatch", memory=int(least + share * (whole - least)), batch=batch), residual, backend
    )
    assert done.details.splits


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_network_in_training_mode_keeps_its_batch_statistics_whole(share, residual, backend):
    training = residual.with_loss("mse").training()
    whole, least = plan_of(training, 6, "1GiB").memory, smallest(training, 6)
    done, report = check_transform(
        transforms.make("microbatch", memory=int(least + share * (whole - least)), batch=6), training, backend
    )
    norms = [each for each in done.network.nodes if each.op_type == "BatchNormalization"]
    assert len(norms) == 3
    assert "buffer" in {each.kind for each in report.differences}


def test_a_network_in_training_mode_infers_in_pieces_too(residual):
    training = residual.with_loss("mse").training()
    done = transforms.make("microbatch", memory=smallest(training, 6), batch=6).apply(training)
    assert any(each.op_type == "Slice" for each in done.network.for_inference.nodes)


def test_weights_are_shared_by_the_pieces(residual):
    done = transforms.make("microbatch", memory=smallest(residual, 8), batch=8).apply(residual)
    assert done.network.parameters == residual.parameters
    assert done.parameters is None


def test_a_batch_in_a_reshape_target_becomes_that_of_the_piece(backend):
    g = GraphBuilder("heads")
    x = g.input("x", ("batch", 4, 6))
    batch = g.node("Slice", g.node("Shape", x), g.constant([0]), g.constant([1]))
    shape = g.node("Concat", batch, g.constant([4, 2, 3]), axis=0)
    x = g.node("Transpose", g.node("Reshape", x, shape), perm=[0, 2, 1, 3])
    g.output(g.node("Softmax", g.node("MatMul", x, g.node("Transpose", x, perm=[0, 1, 3, 2])), axis=-1), "y")
    network = g.build()
    done, _ = check_transform(transforms.make("microbatch", memory=smallest(network, 7), batch=7), network, backend)
    assert done.details.splits


def test_a_recurrent_network_is_split_on_its_second_axis(backend):
    g = GraphBuilder("recurrent")
    x = g.node("Transpose", g.input("x", ("batch", 9, 3)), perm=[1, 0, 2])
    w, r = (g.parameter(name, (1, 16, size), Draw("normal", 0.3)) for name, size in (("w", 3), ("r", 4)))
    states, last, _ = g.node("LSTM", x, w, r, outputs=3, hidden_size=4)
    g.output(g.node("ReduceMax", g.node("Squeeze", states, g.constant([1])), g.constant([0]), keepdims=0), "most")
    g.output(g.node("Squeeze", last, g.constant([0])), "last")
    network = g.build()
    done, _ = check_transform(transforms.make("microbatch", memory=smallest(network, 5), batch=5), network, backend)
    assert [each.op_type for each in done.network.nodes].count("LSTM") > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-tiny"])
def test_a_transformer_of_the_zoo_is_split_and_stays_the_same(name, backend):
    network = zoo.build(name)
    sizes = {"length": 8}
    least = smallest(network, 3, sizes=sizes)
    done, _ = check_transform(
        transforms.make("microbatch", memory=least, batch=3, sizes=sizes), network, backend, sizes=sizes
    )
    assert done.details.splits


def test_measured_times_decide_the_pieces(residual, backend):
    """If a call costs nothing, many pieces are as good as few; if it costs a lot, few are used."""
    limit = int(0.6 * plan_of(residual, 16, "1GiB").memory)
    names = [each.outputs[0] for each in residual.nodes]
    dear = TimeTable({name: {1: 1.0, 16: 1.0} for name in names})
    plan = plan_of(residual, 16, limit, times=dear)
    counts = sum(len(each.operators) * len(each.pieces) for each in plan.segments)
    possible = [
        sum(len(each.operators) * len(each.pieces) for each in plan_of(residual, 16, limit, machine=m).segments)
        for m in (SpeedModel(call_s=0.0, bytes_per_s=1e6), SpeedModel(flops_per_s=1e6))
    ]
    assert counts <= min(possible)


def test_times_are_measured_by_operator_and_size(residual, backend):
    table = measure_times(backend, residual, [1, 4], repeats=2)
    first = residual.nodes[0].outputs[0]
    assert table.seconds(first, 1) > 0
    assert table.seconds("nothing", 1) is None
    low, high = sorted((table.seconds(first, 1), table.seconds(first, 4)))
    assert low <= table.seconds(first, 2) <= high
    assert table.seconds(first, 8) == pytest.approx(2 * table.seconds(first, 4))


def test_the_plan_is_printed_with_its_parts_and_sizes(residual):
    text = plan_of(residual, 7, smallest(residual, 7)).text()
    assert re.search(r"nodes +operators +micro-batches +memory", text)
    assert re.search(r"0-\d+ +Conv BatchNormalization Relu", text)
    assert "unsplit" in text
    assert "predicted time +" in text


def test_a_fixed_batch_is_refused_with_a_remedy(residual):
    fixed = transforms.make("batch", size=4).apply(residual).network
    with pytest.raises(UsageError, match="batch size is fixed"):
        plan_of(fixed, 4, "1GiB")


def test_convolutions_as_rows_take_more_than_convolutions_in_blocks(residual):
    by_kind = {kind: plan_of(residual, 16, "1GiB", workspace=kind).memory for kind in ("none", "reorder", "im2col")}
    assert by_kind["none"] < by_kind["reorder"] < by_kind["im2col"]


@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_pieces_equal_the_whole_on_other_frameworks_too(framework, residual):
    pytest.importorskip(framework)
    # A limit that needs few pieces: XLA compiles each of them, and twice for the gradients.
    limit = int(0.7 * plan_of(residual, 5, "1GiB").memory)
    transform = transforms.make("microbatch", memory=limit, batch=5)
    done, _ = check_transform(transform, residual, open_framework(framework))
    assert done.details.splits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "vgg16"])
def test_published_networks_fit_in_less_memory(name):
    network = zoo.build(name)
    plan = plan_of(network, 64, "1000GiB")
    least = smallest(network, 64)
    assert least < 0.6 * plan.memory
