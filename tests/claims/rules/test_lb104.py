"""LB104: two machines of which one is better."""

from pathlib import Path

from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import environment, specification, write_runs

from levelbench.claims.rules.lb104_unequal_hardware import rule
from levelbench.claims.view import HardwareView, Operations

C, BASE, NEW = "comparisons[0]", "sides[1].hardware", "sides[0].hardware"
A100 = clean_claim().sides[0].hardware
XEON = HardwareView(processor="Intel Xeon Platinum 8180", cores=28, release_year=2018, peak_flops={"float32": 3e12})
HALF = HardwareView(
    accelerator="half of it",
    accelerators=2,
    release_year=2020,
    peak_flops={name: peak / 2 for name, peak in A100.peak_flops.items()},
)
SINGLE = {"threads_used": 1, "accelerators": 0}
UNKNOWN = HardwareView(description="Frobnicator 9000")


def xeon(**more):
    stated = {name: getattr(XEON, name) for name in ("processor", "cores", "release_year", "peak_flops")}
    return HardwareView(**{**stated, **more})


THREADS = {BASE: xeon(threads_used=1), NEW: xeon(threads_used=28)}
FPGA = HardwareView(description="Alveo U280")


def named(new, base):
    """The claim with its sides called so."""
    return {"sides[0].name": new, "sides[1].name": base, f"{C}.new": new, f"{C}.base": base, "scaling": []}


MACHINES = {**named("H100", "NVIDIA A100"), f"{C}.base_kind": None, "sides[1].framework": None}

HALF_WIDTH = {f"sides[{at}].performance.options": {"precision": used} for at, used in ((0, "fp16"), (1, "fp32"))} | {
    f"sides[{at}].operations": Operations() for at in (0, 1)
}

GUILTY = {
    "a narrower precision on the same machine, of which the claim says nothing": (
        {**HALF_WIDTH, "title": "Our compiler is 3 times faster"},
        ("warning", "sides[0].operations.precisions"),
    ),
    "a method on two machines, by whose names its sides are called": (
        {
            NEW: HardwareView(description="1x H100 SXM"),
            BASE: HardwareView(description="1x A100"),
            **MACHINES,
            "title": "Our compiler is 3 times faster",
        },
        ("warning", NEW),
    ),
    "one core against what only the side's name calls an accelerator": (
        {NEW: FPGA, BASE: xeon(**SINGLE), **named("FPGA", "CPU")},
        [("not-stated", f"{NEW}.description"), ("error", f"{BASE}.threads_used")],
    ),
    "nodes of a kind that nobody names": (
        {NEW: HardwareView(nodes=64), BASE: HardwareView(nodes=8), f"{C}.base_kind": "other-system"},
        [("not-stated", f"{NEW}.description"), ("not-stated", f"{BASE}.description"), ("warning", f"{NEW}.nodes")],
    ),
    "one core against four accelerators": (
        {BASE: xeon(**SINGLE)},
        [("error", f"{BASE}.threads_used"), ("warning", NEW)],
    ),
    "a few of the cores": (
        {BASE: xeon(threads_used=4, accelerators=0)},
        [("warning", f"{BASE}.threads_used"), ("warning", NEW)],
    ),
    "a single core by its description, from no table": (
        {BASE: HardwareView(description="a single CPU core")},
        [("error", f"{BASE}.threads_used")],
    ),
    "one thread of the processor whose other cores the new side uses": (
        {**THREADS, f"{C}.base_kind": "other-system"},
        [("warning", f"{BASE}.threads_used")],
    ),
    "one thread in a claim of something else": (
        {**THREADS, f"{C}.base_kind": None},
        [("warning", f"{BASE}.threads_used")],
    ),
    "an accelerator of years before": (
        {f"{BASE}.release_year": 2014},
        [("warning", f"{BASE}.release_year")],
    ),
    "half the accelerators": ({BASE: HALF}, [("warning", NEW)]),
    "fewer devices of another method, by whose numbers the sides are called": (
        {
            **named("ours on 8 GPUs", "theirs on 1 GPU"),
            NEW: HardwareView(accelerator="V100", accelerators=8),
            BASE: HardwareView(accelerator="V100", accelerators=1),
        },
        [("warning", NEW)],
    ),
    "older and weaker, by the table alone": (
        {BASE: HardwareView(description="4 x NVIDIA Tesla P100")},
        [("warning", f"{BASE}.release_year"), ("warning", NEW)],
    ),
    "dearer, and nothing else is known": (
        {BASE: HardwareView(price_per_hour=3.0), NEW: HardwareView(price_per_hour=20.0)},
        [("warning", NEW)],
    ),
}
INNOCENT = {
    "the same machine": {},
    "the same machine, of which nothing is in any table": {BASE: UNKNOWN, NEW: UNKNOWN},
    "the new side has the weaker machine": {NEW: HALF},
    "qualities are compared": {BASE: XEON, f"{C}.of": "quality"},
    "costs are compared": {BASE: HALF, f"{C}.of": "cost"},
    "a little more of the same years": {
        f"{BASE}.bandwidth": A100.bandwidth / 1.3,
        f"{BASE}.release_year": 2018,
    },
    "one accelerator against four of its kind, which is said to be scaling": {
        f"{BASE}.description": "1 x NVIDIA A100-SXM4-40GB",
        f"{BASE}.accelerators": 1,
        f"{BASE}.peak_flops": {name: peak / 4 for name, peak in A100.peak_flops.items()},
        f"{C}.base_kind": "one-process",
    },
    "sides that are called by their number of devices alone": {
        **named("8 GPUs", "1 GPU"),
        NEW: HardwareView(accelerator="V100", accelerators=8),
        BASE: HardwareView(accelerator="V100", accelerators=1),
        f"{C}.base_kind": None,
        "sides[1].framework": None,
    },
    "all cores of a processor against another processor": {
        BASE: XEON,
        NEW: xeon(threads_used=28),
    },
    "threads are what is claimed": {
        **THREADS,
        f"{C}.base_kind": None,
        "title": "28 threads are 9 times as fast as one",
    },
    "one process is the base": {**THREADS, f"{C}.base_kind": "one-process"},
    "machines are what is compared": {
        NEW: HardwareView(description="1x H100 SXM"),
        BASE: HardwareView(description="1x A100"),
        **MACHINES,
        "title": "An H100 is 3 times as fast as an A100",
    },
    "a narrower precision is what is claimed": {**HALF_WIDTH, "title": "FP16 is 3 times faster"},
    "the base has the narrower precision": {
        "sides[0].performance.options": {"precision": "fp32"},
        "sides[1].performance.options": {"precision": "fp16"},
        "sides[0].operations": Operations(),
        "sides[1].operations": Operations(),
        "title": "Our compiler is 3 times faster",
    },
    "one core against one core": {BASE: xeon(**SINGLE), NEW: xeon(**SINGLE)},
}
UNSTATED = {
    "hardware that nobody states": ({BASE: HardwareView()}, f"{BASE}.description"),
    "hardware that is in no table": ({BASE: UNKNOWN}, f"{BASE}.description"),
    "the peak of a processor of which only the cores are known, against an accelerator": (
        {BASE: HardwareView(processor="Frobnicator X", cores=4)},
        f"{BASE}.description",
    ),
    "how many there are": ({BASE: HardwareView(description="NVIDIA A100-SXM4-40GB")}, f"{BASE}.accelerators"),
}


K80 = HardwareView(
    description="1 x NVIDIA Tesla K80",
    nodes=1,
    accelerators=1,
    accelerator="NVIDIA Tesla K80",
    release_year=2014,
    peak_flops={"float32": 8.74e12},
    bandwidth=480e9,
    power_w=300.0,
    price_per_hour=0.90,
    price_source="AWS on-demand, us-east-1, 2026-11-01",
)

PLANTED = (
    "the baseline ran on a card of 2014",
    {"sides[1].hardware": K80, "sides[1].operations": Operations(to_target=1.4e16)},
)


def planted_in(store: Path) -> str:
    for at, name in enumerate(("Tesla K80", "Tesla V100-SXM2-16GB")):
        spec = specification(device="cuda", framework=("torch", "jax")[at])
        env = environment(accelerators={"nvidia_driver": "550", "names": [name]})
        write_runs(store, start=20 * at, spec=spec, env=env, epoch_s=6.0 - 4.0 * at)
    return "digits"


IN_RECORDS = "the base ran on a K80, the other side on a V100", planted_in


def test_without_a_comparison_there_is_nothing_unequal():
    assert found(rule, changes(clean_claim(), {"comparisons": [], "sides": clean_claim().sides[:1]})) == []


def test_the_ratios_of_the_machines_stand_beside_the_one_that_is_claimed():
    (finding,) = rule.check(changes(clean_claim(), {BASE: HALF, f"{C}.ratio": 3.0}))
    assert "bfloat16 peak 2 times" in finding.found
    assert "of the claimed ratio of 3, the hardware can explain up to 2" in finding.found
    (finding,) = rule.check(changes(clean_claim(), {BASE: HALF, f"{C}.ratio": 1.9}))
    assert "the hardware alone can explain the claimed 1.9" in finding.found


def test_figures_from_the_table_say_how_they_were_matched():
    planted = {BASE: HardwareView(description="1 x Tesla V100"), NEW: HardwareView(description="8 x Tesla V100")}
    (finding,) = rule.check(changes(clean_claim(), planted))
    assert "8 times" in finding.found
    assert "'8 x Tesla V100' is assumed to be V100" in finding.found


def test_a_stated_figure_goes_before_the_table():
    planted = {
        BASE: HardwareView(description="1 x Tesla V100", peak_flops={"float32": 1e15}),
        NEW: HardwareView(description="1 x Tesla V100", peak_flops={"float32": 2e15}),
    }
    (finding,) = rule.check(changes(clean_claim(), planted))
    assert "float32 peak 2 times" in finding.found


OLD = HardwareView(accelerator="old card", accelerators=4, peak_flops={"float32": A100.peak_flops["float32"]})
SAID = {"sides[1].operations.precisions": {"fp32": 1.0}}
UNSAID = {f"sides[{at}].{name}": {} for at in (0, 1) for name in ("operations.precisions", "performance.options")}


def test_peaks_are_compared_at_the_precisions_that_are_used():
    (finding,) = rule.check(changes(clean_claim(), {BASE: OLD, **SAID}))
    assert "peak as used (bfloat16 against float32) 16 times" in finding.found


def test_a_precision_of_the_settings_is_the_one_that_is_used():
    planted = {BASE: HALF, **UNSAID, **{f"sides[{at}].performance.options": {"precision": "tf32"} for at in (0, 1)}}
    (finding,) = rule.check(changes(clean_claim(), planted))
    assert "tf32 peak 2 times" in finding.found
    assert "float32 peak" not in finding.found


def test_where_it_is_not_said_peaks_are_compared_in_the_widest_precision_that_both_have():
    assert list(rule.check(changes(clean_claim(), {BASE: OLD, **UNSAID}))) == []
    (finding,) = rule.check(changes(clean_claim(), {BASE: HALF, f"{C}.ratio": 3.0, **UNSAID}))
    assert "base: float32 peak 2 times" in finding.found
    assert "the hardware can explain up to 2, more where a narrower precision was used" in finding.found


def test_machines_without_a_precision_in_common_are_held_by_what_else_is_known():
    other = HardwareView(accelerator="a chip", accelerators=4, peak_flops={"int8": 1e12}, bandwidth=1e12)
    (finding,) = rule.check(changes(clean_claim(), {BASE: other}))
    assert "peak" not in finding.found
    assert "memory bandwidth 6.22 times" in finding.found


def test_a_rented_machine_is_as_old_as_its_processor_and_not_as_its_name():
    planted = {BASE: HardwareView(description="60 GB / 16 CPU (Google Cloud [n1-standard-16])")}
    assert all(not each.field.endswith("release_year") for each in rule.check(changes(clean_claim(), planted)))


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{BASE}.release_year": 2014})) == []
