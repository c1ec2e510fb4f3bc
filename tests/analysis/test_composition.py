import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from benchmarks.analysis import FACTORS, experiment, fractional

from levelbench.analysis.composition import CompositionKind, compose, lesions
from levelbench.analysis.factorial import designs, fraction, one_at_a_time
from levelbench.errors import IncomparableError, UsageError
from levelbench.records import Distribution

OFF = {"smooth": 0.0, "half": False}
ON = {"smooth": 0.1, "half": True}


@pytest.fixture
def study(run, group):
    """``study(seconds)``: five runs of each arm by the factors that are on, seconds as a function of them."""

    def make(seconds, off=None, n=5, spread=0.02, seed=0, **replaced):
        names = tuple(off or OFF)
        generator = np.random.default_rng(seed)
        luck = np.exp(generator.normal(0, 0.3, n))
        groups = []
        for on in designs(names):
            settings = {name: (ON | {"wide": 2})[name] if name in on else (off or OFF)[name] for name in names}
            times = seconds(on) * luck * np.exp(generator.normal(0, spread, n))
            runs = [run(float(time), seed=at, settings=settings, **replaced) for at, time in enumerate(times)]
            groups.append(group("+".join(sorted(on)) or "none", runs, settings=settings))
        return groups

    return make


def product(on, smooth=0.8, half=0.5):
    return 10 * (smooth if "smooth" in on else 1) * (half if "half" in on else 1)


def test_factors_whose_gains_multiply_are_composable(study):
    found = compose(study(product), OFF)
    assert found.kind is CompositionKind.COMPOSABLE
    assert found.predicted == pytest.approx(0.4, rel=0.05)
    assert found.together.ratio == pytest.approx(0.4, rel=0.05)
    assert found.departure.ratio == pytest.approx(found.together.ratio / found.predicted)


def test_factors_that_gain_less_together_are_sub_multiplicative(study):
    found = compose(study(lambda on: product(on) * (1.4 if len(on) == 2 else 1)), OFF)
    assert found.kind is CompositionKind.SUB_MULTIPLICATIVE
    assert found.departure.low > 1.1


def test_factors_that_gain_more_together_are_super_multiplicative(study):
    assert (
        compose(study(lambda on: product(on) * (0.6 if len(on) == 2 else 1)), OFF).kind
        is CompositionKind.SUPER_MULTIPLICATIVE
    )


def test_too_much_noise_is_unclear_and_says_how_many_runs_would_settle_it(study):
    found = compose(study(product, spread=0.3), OFF)
    assert found.kind is CompositionKind.UNCLEAR
    assert found.runs_to_settle > 5
    assert "more runs per arm" in found.lines()[0]


@pytest.mark.parametrize(("n", "kind", "alone"), [(5, "UNCLEAR", "UNCLEAR"), (60, "COMPOSABLE", "SAME")])
def test_factors_whose_runs_all_tie_at_an_evaluation_need_as_many_as_could_undo_the_answer(study, n, kind, alone):
    found = compose(study(lambda on: 10.0, n=n, spread=0.005, evaluations=3), OFF, margin=0.1)
    assert found.kind == kind
    assert {each.verdict.kind for each in found.alone} == {alone}
    if kind == "UNCLEAR":
        assert found.reason == "all pairs tie at an evaluation, and up to 45 % may differ by one or more"


def test_samples_of_runs_that_tie_at_an_evaluation_allow_for_as_many_as_could_be_late(study):
    def counted(group):
        # The luck of a seed is the same in all arms, but for an example.
        samples = [100 * (5 + run.seed) + (run.seed == len(group.label) % 3) for run in group.runs]
        pairs = zip(group.runs, samples, strict=True)
        return replace(group, runs=tuple(msgspec.structs.replace(run, samples_to_target=each) for run, each in pairs))

    found = compose([counted(each) for each in study(product, spread=0.005, evaluations=5)], OFF)
    # No pair of five is late: up to 1 - 0.05 ** (1 / 5) of all may be, by two of five evaluations.
    late = (1 - 0.05 ** (1 / 5)) * math.log(7 / 5)
    alone, joint = found.alone[0].split.samples, found.effects[0].split.samples
    assert alone.ratio == pytest.approx(1, rel=1e-2)
    assert math.log(alone.high / alone.ratio) == pytest.approx(late)
    assert math.log(alone.ratio / alone.low) == pytest.approx(late)
    assert joint.low < alone.low < alone.high < joint.high


def test_each_factor_alone_has_a_verdict_in_pairs(study):
    found = compose(study(product), OFF)
    assert [(each.factor, each.verdict.kind) for each in found.alone] == [("smooth", "FASTER"), ("half", "FASTER")]
    assert all("paired" in each.verdict.reason for each in found.alone)


def test_the_effects_of_a_full_factorial_are_those_that_were_planted(study):
    off = {**OFF, "wide": 1}
    groups = study(lambda on: product(on) * (1.3 if "wide" in on else 1) * (1.5 if on >= {"half", "wide"} else 1), off)
    effects = {each.factors: each.found for each in compose(groups, off).effects}
    assert effects["smooth",].ratio == pytest.approx(0.8, rel=0.05)
    assert effects["half",].ratio == pytest.approx(0.5 * 1.5**0.5, rel=0.05)
    assert effects["half", "wide"].ratio == pytest.approx(1.5, rel=0.05)
    assert effects["smooth", "wide"].low < 1 < effects["smooth", "wide"].high
    assert {each.level for each in effects.values()} == {1 - 0.05 / 6}


def test_of_two_factors_the_interaction_is_the_departure(study):
    found = compose(study(lambda on: product(on) * (1.2 if len(on) == 2 else 1)), OFF)
    assert found.effects[-1].found.ratio == pytest.approx(found.departure.ratio)


def test_one_at_a_time_tells_whether_they_compose_but_no_effects(study):
    off = {**OFF, "wide": 1}
    kept = [
        g
        for g in study(product, off, spread=0.005)
        if g.label == "none" or "+" not in g.label or g.label.count("+") == 2
    ]
    found = compose(kept, off)
    assert len(kept) == len(one_at_a_time(tuple(off))) == 5
    assert found.kind is CompositionKind.COMPOSABLE
    assert found.effects == ()


def test_a_combination_that_misses_its_target_bounds_the_answer_and_is_not_dropped(study, run):
    groups = study(product)
    last = groups[-1]
    missed = [
        msgspec.structs.replace(each, time_to_accuracy_s=None, reached=False, given_up_s=90.0) for each in last.runs
    ]
    groups[-1] = type(last)(last.label, last.key, last.specification, tuple(missed))
    found = compose(groups, OFF)
    assert found.kind is CompositionKind.SUB_MULTIPLICATIVE
    assert found.departure.high is None
    assert found.predicted is None
    assert any("15 of 20 runs reached" in line for line in found.lines())


def test_a_base_that_never_arrives_leaves_the_answer_open_on_one_side(study):
    groups = study(product)
    first = groups[0]
    missed = [
        msgspec.structs.replace(each, time_to_accuracy_s=None, reached=False, given_up_s=5.0) for each in first.runs[:1]
    ]
    groups[0] = type(first)(first.label, first.key, first.specification, (*missed, *first.runs[1:]))
    found = compose(groups, OFF)
    assert found.departure.ratio is None
    assert found.departure.low is not None
    assert found.departure.high is None


def test_an_arm_whose_runs_all_failed_gives_no_answer(study):
    groups = study(product)
    each = groups[1]
    failed = [
        msgspec.structs.replace(
            one, status="failed", time_to_accuracy_s=None, reached=False, given_up_s=0.0, hopeless=True
        )
        for one in each.runs
    ]
    groups[1] = type(each)(each.label, each.key, each.specification, tuple(failed))
    found = compose(groups, OFF)
    assert found.kind is CompositionKind.UNCLEAR
    assert "failed" in found.reason


def test_a_missing_arm_is_named(study):
    with pytest.raises(UsageError, match="no runs with half, smooth"):
        compose(study(product)[:-1], OFF)


def test_a_factor_that_never_varies_is_named(study):
    with pytest.raises(UsageError, match="half is on in all runs, so it never varies"):
        compose(study(product)[2:], OFF)


def test_one_factor_composes_with_nothing(study):
    with pytest.raises(UsageError, match="two factors"):
        compose(study(product), {"smooth": 0.0})


def test_arms_that_differ_in_more_than_the_factors_are_refused(study, group):
    groups = study(product)
    last = groups[-1]
    other = group("other", last.runs, settings={**last.specification.settings, "lr": 1.0})
    with pytest.raises(IncomparableError, match="in other settings too"):
        compose([*groups[:-1], other], OFF)


def test_runs_of_several_machines_are_refused_unless_it_is_wished(study):
    groups = [*study(product)[:-1], study(product, environment={"machine": {"id": "m2"}})[-1]]
    with pytest.raises(IncomparableError, match="several machines"):
        compose(groups, OFF)
    assert compose(groups, OFF, across_machines=True).kind is CompositionKind.COMPOSABLE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        (1.0, (CompositionKind.SUB_MULTIPLICATIVE, CompositionKind.SUPER_MULTIPLICATIVE)),
        (1.1, (CompositionKind.COMPOSABLE, CompositionKind.SUPER_MULTIPLICATIVE)),
        (1 / 1.1, (CompositionKind.COMPOSABLE, CompositionKind.SUB_MULTIPLICATIVE)),
    ],
)
def test_the_answer_is_wrong_no_more_often_than_the_level_allows(study, truth, wrong):
    def seconds(on):
        return product(on) * (truth if len(on) == 2 else 1)

    wrongs = sum(compose(study(seconds, spread=0.05, seed=seed), OFF).kind in wrong for seed in range(100))
    # At most 5 % of 100, and four standard deviations.
    assert wrongs <= 13


def test_with_little_noise_the_answer_is_found(study):
    kinds = [compose(study(product, spread=0.02, seed=seed), OFF).kind for seed in range(20)]
    assert kinds.count(CompositionKind.COMPOSABLE) >= 17


def test_the_designs():
    assert len(designs("abc")) == 8
    assert designs("ab") == [frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")]
    assert one_at_a_time("abc") == [frozenset(), *map(frozenset, "abc"), frozenset("abc")]
    assert math.comb(3, 2) == len([each for each in designs("abc") if len(each) == 2])


def test_a_fraction_finds_the_effects_and_interactions_that_were_planted():
    found = compose(experiment(fractional(), spread=0.005), FACTORS)
    effects = {each.factors: each for each in found.effects}
    assert len(effects) == 5 + 10
    # Averaged over the other factor of an interaction, half of it is in each main effect.
    assert effects["a",].found.ratio == pytest.approx(0.7 * 1.3**0.5, rel=0.01)
    assert effects["b",].found.ratio == pytest.approx(0.9, rel=0.01)
    assert effects["a", "c"].found.ratio == pytest.approx(1.3, rel=0.02)
    assert found.design.startswith("2^(5-1) of resolution V (e = a x b x c x d)")
    assert found.departure.ratio == pytest.approx(1.3, rel=0.02)
    assert found.kind is CompositionKind.SUB_MULTIPLICATIVE


def test_of_six_factors_interactions_are_given_with_their_aliases():
    names = tuple("abcdef")
    arms = list(dict.fromkeys([*one_at_a_time(names), *fraction(names).arms]))
    off = dict.fromkeys(names, 0)
    groups = experiment(arms, lambda on: 10 * 0.8 ** ({"c", "e"} <= on), names=names, spread=0.005)
    effects = {each.factors: each for each in compose(groups, off).effects}
    assert effects["a", "b"].aliases == (("c", "e"),)
    assert effects["a", "b"].found.ratio == pytest.approx(0.8, rel=0.02)
    assert len(effects) == 6 + 7


def test_both_efficiencies_multiply_to_the_effect():
    found = compose(experiment(designs("ab"), names=tuple("ab")), {"a": 0, "b": 0})
    for each in (*found.effects, *found.alone):
        ratio = each.found.ratio if hasattr(each, "found") else each.verdict.ratio
        assert each.split.samples.ratio * each.split.per_sample.ratio == pytest.approx(ratio)
    assert found.alone[0].split.samples.ratio == pytest.approx(0.7**0.5, rel=0.01)


def test_runs_that_missed_have_no_split_and_it_says_why():
    found = compose(experiment(designs("ab"), budget=8.0, names=tuple("ab")), {"a": 0, "b": 0})
    assert found.alone[0].split.samples.ratio is None
    assert "not every run reached" in found.alone[0].split.reason


def test_a_lesion_says_what_each_factor_gains_among_the_others():
    every = frozenset("abc")
    groups = experiment([every, *(every - {each} for each in "abc")], names=tuple("abc"))
    found = lesions(groups, {"a": 0, "b": 0, "c": 0})
    gains = {each.factor: each.verdict.ratio for each in found.against}
    assert gains == pytest.approx({"a": 0.7 * 1.3, "b": 0.9, "c": 1.2 * 1.3}, rel=0.05)
    assert [each.verdict.kind for each in found.against][-1] == "SLOWER"
    assert found.against[0].verdict.level == pytest.approx(1 - 0.05 / 3)


def test_a_lesion_without_one_of_its_arms_is_refused():
    every = frozenset("abc")
    arms = [every, frozenset("bc"), frozenset("ac"), frozenset("a")]
    with pytest.raises(UsageError, match="there are no runs with a, b"):
        lesions(experiment(arms, names=tuple("abc")), dict.fromkeys("abc", 0))


def test_a_lesion_of_single_runs_says_why_it_is_unclear():
    every = frozenset("abc")
    groups = experiment([every, *(every - {each} for each in "abc")], names=tuple("abc"), n=1)
    assert all("too few runs" in line for line in lesions(groups, dict.fromkeys("abc", 0)).lines())


def test_framework_device_and_ranks_are_factors(run, group):
    two = Distribution(2, "all-reduce", {}, "process", "gloo")
    groups = []
    for framework, slower in (("numpy", 1.0), ("torch", 0.5)):
        for team, faster in ((None, 1.0), (two, 0.8)):
            runs = [
                run(10 * slower * faster * (1 + 0.2 * at), seed=at, framework=framework, distribution=team)
                for at in range(5)
            ]
            groups.append(group(f"{framework} {team is not None}", runs, framework=framework, distribution=team))
    found = compose(groups, {"framework": "numpy", "ranks": 1})
    assert [each.verdict.ratio for each in found.alone] == pytest.approx([0.5, 0.8])
    assert found.kind is CompositionKind.COMPOSABLE
    with pytest.raises(IncomparableError):
        compose(groups, {"framework": "numpy", "lr": 1})


def schemes(run, group, *teams):
    """Five runs of each team with and without smoothing."""
    groups = []
    for at, team in enumerate(teams):
        for smooth in (0.0, 0.1):
            settings = {"smooth": smooth}
            runs = [
                run(10 * (1 - 0.2 * at) * (1 + 0.2 * seed) * (1 - 5 * smooth), seed=seed, settings=settings)
                for seed in range(5)
            ]
            groups.append(group(f"{at} {smooth}", runs, settings=settings, distribution=team))
    return groups


def team_of(scheme, **settings):
    return Distribution(2, scheme, settings, "process", "gloo")


SERVED = team_of("parameter-server", servers=1)
BROKEN_UP = team_of("all-reduce", bucket_mb=25.0, overlap=False)
OVERLAPPED = team_of("all-reduce", bucket_mb=25.0, overlap=True)


@pytest.mark.parametrize(
    ("off", "on", "word", "shown"),
    [
        (BROKEN_UP, SERVED, "all-reduce", "parameter-server"),
        (BROKEN_UP, OVERLAPPED, "all-reduce[overlap=false]", "all-reduce[overlap=true]"),
        (OVERLAPPED, BROKEN_UP, "all-reduce[bucket_mb=25,overlap=true]", "all-reduce[bucket_mb=25.0,overlap=false]"),
    ],
)
def test_a_scheme_is_a_factor_with_the_settings_of_its_own(run, group, off, on, word, shown):
    found = compose(schemes(run, group, off, on), {"scheme": word, "smooth": 0.0})
    assert [each.verdict.ratio for each in found.alone] == pytest.approx([0.8, 0.5])
    assert found.values["scheme"] == (word, shown)


def test_runs_of_one_scheme_with_other_settings_are_refused_though_the_scheme_is_a_factor(run, group):
    groups = schemes(run, group, BROKEN_UP, SERVED)
    more = msgspec.structs.replace(groups[-1].specification, distribution=team_of("parameter-server", servers=2))
    with pytest.raises(IncomparableError, match="in other settings too"):
        compose([*groups[:-1], replace(groups[-1], specification=more)], {"scheme": "all-reduce", "smooth": 0.0})
    with pytest.raises(IncomparableError, match="in other settings too"):
        compose(schemes(run, group, BROKEN_UP, OVERLAPPED), {"lr": 1, "smooth": 0.0})
