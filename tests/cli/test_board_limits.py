"""What ``board submit`` states of machine and network, and what is known of other systems' entries."""

import json

import msgspec
import pytest
from tests.competition.test_ceilings import head
from tests.competition.test_ceilings import write as write_heads
from tests.records.stores import resealed

from levelbench import __version__
from levelbench.cli.board_limits import known_limits
from levelbench.competition.entries import (
    Author,
    Hardware,
    Origin,
    Provenance,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    encode,
    read_submission,
)
from levelbench.competition.leaderboard import check
from levelbench.experiments.request import load_task, source_of
from levelbench.records.schema import Target

WHO = ("--author", "Ada", "--email", "ada@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
MLP = 2 * (64 * 128 + 128 * 10)
"""Operations of digits' recipe in its two matrix products."""


@pytest.fixture
def own_source(store):
    """The records of the store as runs of the task's present source leave them."""
    source = source_of(load_task("digits"), "mlp")
    for path in store.rglob("*.jsonl"):
        first, rest = path.read_text().split("\n", 1)
        header = json.loads(first)
        header["source"] |= {"digest": source.digest, "text": source.text}
        path.write_bytes(resealed(f"{json.dumps(header)}\n{rest}".encode()))
    return store


@pytest.fixture
def submit(call, store, tmp_path):
    def run(*words):
        code = call("board", "submit", "digits[framework=numpy]", *WHO, *words, "--store", store, "-o", tmp_path / "b")
        written = [read_submission(each) for each in (tmp_path / "b").rglob("*.json")]
        return code[0], written[0] if written else code[1]

    return run


def ceiling(store, flop_s):
    machine = {"environment": {"machine": {"id": "m1"}}}
    write_heads(store, {**head(flop_s), **machine})


def test_an_entry_states_what_a_step_costs_and_what_the_machine_was_measured_to_do(submit, own_source):
    ceiling(own_source, 1e12)
    code, entry = submit()
    assert code == 0
    assert entry.settings["flops_per_sample"] == pytest.approx(3 * MLP, rel=0.1)
    assert entry.provenance.environment["ceiling.flop_s"] == "1e+12"
    assert entry.provenance.environment["ceiling.record"] == "m1cpu1e+12 (float32)"


def test_runs_that_are_ten_times_faster_than_the_machine_are_not_written(submit, own_source):
    # 640 samples of 57,216 operations in 31 ms are 1.2e9 a second.
    ceiling(own_source, 1e8)
    code, out = submit()
    assert code == 1
    assert "error B190 runs[0].curve.time_s: " in out
    assert "not written: " in out


def test_a_task_whose_source_has_changed_since_is_not_counted(submit, store):
    ceiling(store, 1e12)
    _, entry = submit()
    assert "flops_per_sample" not in entry.settings
    assert entry.provenance.environment["ceiling.flop_s"] == "1e+12"


def test_a_stated_cost_of_a_sample_is_left_alone(submit, own_source):
    assert submit("--flops-per-sample", "7")[1].settings["flops_per_sample"] == 7.0


def imported(task="cifar10", model="ResNet 56", hardware="1 K80 / 61 GB / 4 CPU", hours=1.0, **parts):
    rules = "mlperf-training-like-1.0" if task == "resnet" else "dawnbench-1.0"
    target = Target("top1", 0.94, split="test")
    run = SubmittedRun(SubmittedCurve([3600 * hours], [0.95], epoch=[100.0]))
    base = Submission(
        schema=1, ruleset=rules, task=task, mode="training", author=Author("A"), submitted="2026-01-02", model=model,
        framework="torch", hardware=Hardware(hardware), target=target, runs=[run], origin=Origin("dawnbench", "a"),
    )  # fmt: skip
    return msgspec.structs.replace(base, **parts)


def found(entry):
    return [each.severity for each in check(entry, limits=known_limits) if each.code == "B190"]


@pytest.mark.parametrize(
    "hardware",
    [
        Hardware("dgx1_n8", nodes=8, accelerators=64, accelerator="Tesla V100-SXM2-16GB"),
        Hardware("DGX-1", nodes=8, accelerators=64),
        Hardware("DGX-1", nodes=8),
    ],
    ids=["stated", "stated and described", "described"],
)
def test_the_peak_of_several_nodes_counts_each_accelerator_once(hardware):
    """MLPerf's 8 DGX-1: 64 V100 at 125 TFLOP/s."""
    limits = known_limits(msgspec.structs.replace(imported("resnet", "resnet"), hardware=hardware))
    assert (limits.machine, limits.flop_s) == ("64 x V100-SXM2", 64 * 125e12)


def test_of_an_import_the_table_knows_the_peak_and_the_zoo_the_network():
    limits = known_limits(imported())
    assert (limits.machine, limits.flop_s, limits.network) == ("1 x K80", 4.37e12, "resnet56")
    assert limits.flops_per_sample == pytest.approx(3 * 2 * 125.75e6, rel=0.01)


def test_an_import_that_is_faster_than_its_machine_is_doubted():
    # 100 epochs of 50,000 images at 7.58e8 operations take a K80 868 s at least.
    assert found(imported(hours=0.24)) == []
    assert found(imported(hours=0.024)) == ["warning"]


def test_mlperfs_resnet_is_the_network_that_its_rules_prescribe():
    limits = known_limits(imported("resnet", "resnet", "tpu-v3-2048"))
    assert (limits.machine, limits.network, limits.samples_per_epoch) == ("1024 x TPU v3", "resnet50", 1_281_167)
    assert limits.flops_per_sample == pytest.approx(3 * 2 * 4.1e9, rel=0.01)


@pytest.mark.parametrize("stated", [1, True, "x"])
def test_no_stated_cost_of_a_sample_hides_the_network(stated):
    assert found(imported(hours=0.024, settings={"flops_per_sample": stated}))[-1:] == ["warning"]


def test_under_rules_of_ones_own_a_task_called_resnet_is_not_mlperfs():
    limits = known_limits(imported("resnet", "resnet50", "tpu-v3-2048", ruleset="club-1.0"))
    assert (limits.network, limits.flops_per_sample, limits.samples_per_epoch) == ("", None, None)


@pytest.mark.parametrize(
    "parts",
    [
        {"model": "Custom ResNet 9"},
        {"model": "ResNet50"},
        {"task": "squad"},
        {"hardware": "V100"},
        {"hardware": "60 GB / 16 CPU"},
    ],
    ids=["no network of the zoo", "of other images", "another task", "how many is not said", "no accelerator"],
)
def test_what_no_name_says_clearly_is_not_concluded(parts):
    assert found(imported(hours=1e-5, **parts)) == []


def test_a_closed_entry_is_compared_with_the_tasks_own_recipe():
    entry = imported("digits", "mlp", "2 cores", division="closed", origin=None, settings={"recipe": "mlp"})
    own = load_task("digits").settings("mlp", {})
    assert known_limits(entry).recipe == {**own, "evaluate_every": "1 epoch"}
    assert known_limits(msgspec.structs.replace(entry, mode="inference")).recipe == own
    assert known_limits(msgspec.structs.replace(entry, origin=Origin("loadgen", "a"))).recipe is not None
    assert known_limits(msgspec.structs.replace(entry, settings={"recipe": "mine"})).recipe == {}
    assert known_limits(msgspec.structs.replace(entry, task="chess")).recipe is None
    assert known_limits(msgspec.structs.replace(entry, division="open")).recipe is None


def test_a_check_of_a_leaderboard_or_of_one_entry_knows_the_hardware(call, tmp_path):
    path = tmp_path / "board" / "cifar10" / "training" / "a_ResNet-56.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(imported(hours=0.024)))
    for place in (tmp_path / "board", path):
        found = json.loads(call("board", "check", place, "--no-lint", "--json")[1])["findings"]
        assert "B190" in {each["code"] for each in found}


def on_cores(**parts):
    """An entry of the digits recipe on two cores."""
    base = Submission(
        schema=1, ruleset="levelbench-1.0", task="digits", mode="training", author=Author("Ada"), model="mlp",
        submitted="2026-11-21", framework="numpy", hardware=Hardware("2 cores", accelerators=0, cores=2),
        target=Target("top1", 0.96), settings={"recipe": "mlp"},
    )  # fmt: skip
    return msgspec.structs.replace(base, **parts)


@pytest.mark.parametrize(("instructions", "precision", "a_cycle"), [
    ("avx2 fma avx512f", None, 64), ("avx2 fma", None, 32), ("", None, 64), ("avx2 avx512f amx_bf16", None, 64),
    ("avx2 avx512f amx_bf16", "bfloat16", 2048), ("avx512f avx512_bf16", "bfloat16", 128), ("", "bfloat16", 2048),
])  # fmt: skip
def test_cores_have_a_ceiling_that_nobody_has_to_state(instructions, precision, a_cycle):
    environment = {"machine.instructions": instructions}
    settings = {"recipe": "mlp", **({"precision": precision} if precision else {})}
    limits = known_limits(on_cores(settings=settings, provenance=Provenance(environment=environment)))
    assert (limits.flop_s, limits.machine) == (2 * a_cycle * 6e9, "2 cores at 6 GHz")


@pytest.mark.parametrize("changes", [
    {"hardware": Hardware("1 GPU", accelerators=1, cores=2)}, {"hardware": Hardware("a machine")},
    {"settings": {"recipe": "mlp", "device": "cuda"}},
])  # fmt: skip
def test_cores_say_nothing_of_an_accelerator_and_nothing_if_they_are_not_counted(changes):
    assert known_limits(on_cores(**changes)).flop_s is None


@pytest.mark.parametrize(("recipe", "fixed"), [("mlp", False), ("onecycle", True)])
def test_whether_an_installed_recipe_has_a_fixed_length_is_known(recipe, fixed):
    assert known_limits(on_cores(settings={"recipe": recipe})).fixed_length is fixed


def test_an_idle_accelerator_does_not_raise_the_ceiling_of_cores():
    idle = Hardware("2 cores", accelerators=1, accelerator="Tesla V100-SXM2-16GB", cores=2)
    limits = known_limits(on_cores(hardware=idle, settings={"recipe": "mlp", "device": "cpu"}))
    assert limits.machine == "2 cores at 6 GHz"


@pytest.mark.parametrize(("ranks", "cores"), [(None, 2), (4, 8), (100, 16)])
def test_only_nodes_that_have_a_rank_raise_the_ceiling(ranks, cores):
    settings = {"recipe": "mlp", **({} if ranks is None else {"ranks": ranks})}
    limits = known_limits(on_cores(hardware=Hardware("2 cores", cores=2, nodes=8), settings=settings))
    assert limits.machine == f"{cores} cores at 6 GHz"


@pytest.mark.parametrize(("ranks", "doubted"), [(1, True), (8, False)])
def test_nodes_without_a_rank_are_doubted(ranks, doubted):
    entry = on_cores(hardware=Hardware("2 cores", cores=2, nodes=8), settings={"recipe": "mlp", "ranks": ranks})
    assert ("hardware.nodes" in {each.field for each in check(entry) if each.code == "B185"}) == doubted


@pytest.mark.parametrize("hidden", ["many", 128.0, None])
def test_a_setting_of_another_kind_does_not_hide_the_cost(hidden):
    settings = {"recipe": "mlp", **({} if hidden is None else {"hidden": hidden})}
    assert known_limits(on_cores(settings=settings)).flops_per_sample == pytest.approx(3 * MLP, rel=0.1)


def test_the_recipes_of_an_installed_task_are_known():
    assert "mlp" in known_limits(on_cores()).recipes
    assert known_limits(on_cores(task="chess")).recipes is None


def test_the_cost_of_the_recipe_that_an_entry_names_is_known():
    limits = known_limits(on_cores())
    assert limits.flops_per_sample == pytest.approx(3 * MLP, rel=0.1)
    assert (limits.network, limits.certain, limits.fast) == ("the recipe mlp", False, 1.0)
    smaller = known_limits(on_cores(settings={"recipe": "mlp", "hidden": 32}))
    assert smaller.flops_per_sample == pytest.approx(3 * MLP / 4, rel=0.1)


@pytest.mark.parametrize("settings", [{}, {"recipe": "another"}])
def test_a_recipe_that_is_not_known_has_no_cost(settings):
    assert known_limits(on_cores(settings=settings)).flops_per_sample is None


def test_no_entry_asks_for_a_network_of_any_size():
    huge = known_limits(on_cores(settings={"recipe": "mlp", "hidden": 10**12}))
    assert huge.flops_per_sample == known_limits(on_cores()).flops_per_sample


def test_times_that_no_two_cores_could_reach_are_refused_without_a_statement():
    curve = SubmittedCurve([5.5e-5, 1.1e-4], [0.9, 0.97], samples=[1079, 2158])
    entry = on_cores(runs=[SubmittedRun(curve, seed=0)], provenance=Provenance(version=__version__))
    (finding,) = [each for each in check(entry, limits=known_limits) if each.code == "B190"]
    assert (finding.severity, finding.field) == ("error", "runs[0].curve.time_s")
    assert finding.found.endswith("the peak of 2 cores at 6 GHz is 7.68e+11")


@pytest.mark.parametrize("changes", [
    {"hardware": Hardware("2 cores of a processor")},
    {"hardware": Hardware("a machine"), "provenance": Provenance(environment={"machine.cores_allowed": "2"})},
])  # fmt: skip
def test_cores_are_counted_wherever_an_entry_states_them(changes):
    assert known_limits(on_cores(**changes)).machine == "2 cores at 6 GHz"


def test_an_accelerator_is_known_from_its_own_field_if_the_description_does_not_name_it():
    limits = known_limits(
        on_cores(hardware=Hardware("our machine", accelerators=8, accelerator="Tesla V100-SXM2-16GB"))
    )
    assert limits.machine == "8 x V100-SXM2"


def test_an_entry_that_hides_its_hardware_is_reported():
    curve = SubmittedCurve([1.0, 2.0], [0.9, 0.97], samples=[1079, 2158])
    entry = on_cores(runs=[SubmittedRun(curve, seed=0)], hardware=Hardware("a machine"))
    (finding,) = [each for each in check(entry, limits=known_limits) if each.code == "B191"]
    assert (finding.severity, finding.field) == ("warning", "hardware")
