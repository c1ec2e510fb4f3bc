"""Inference from a plan to records: finished processes count, files are checked, answers are measured and judged."""

from dataclasses import replace
from time import sleep
from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.errors import DataError, DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.experiments.inference import answers, measuring
from levelbench.experiments.inference.measuring import (
    _thinned,
    audit_cache,
    decode_times,
    drive,
    make_inference_record,
    scenario_of,
)
from levelbench.experiments.inference.processes import InferenceBenchmarks
from levelbench.experiments.inference.subject import (
    Examples,
    Subject,
    digest_of_data,
    generation_of,
    make_subject,
    refuse_quality,
)
from levelbench.experiments.kernel import make_plan
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import capture
from levelbench.networks import Draw, GraphBuilder, zoo
from levelbench.networks.files import save
from levelbench.networks.inference import Answerer, PreparedFeed, Span
from levelbench.operators.frameworks import open_framework
from levelbench.records.inference import (
    Data,
    Generation,
    InferenceArm,
    InferenceRecord,
    InferenceSpecification,
    Model,
    PeakTrial,
    ScenarioSettings,
)
from levelbench.records.inference_summary import summarise_inference
from levelbench.report.inference import inference_table
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.quality import Bleu, Reconstruction, Top1

pytestmark = pytest.mark.sampled(3)

NETWORK = zoo.mlp(4, 3, 2)
ROWS = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
LABELS = np.arange(90) % 2


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.onnx"
    save(NETWORK.stored(NETWORK.initialise(0)), path)
    return path


@pytest.fixture
def examples(tmp_path):
    path = tmp_path / "examples.npz"
    np.savez(path, input=ROWS, labels=LABELS)
    return path


def scenario(name="single-stream", **parts):
    given = {"quantile": 0.9, "duration_s": 0.0, "queries": 70, "batch": 1, **parts}
    return ScenarioSettings(name, **given)


def specification(model, data, settings=None, framework="numpy", **parts):
    named = Model("small", "file", str(model), digest_of_data(model))
    found = Data("file", data.name, str(data), digest_of_data(data)) if data else Data("synthetic", "made-up inputs")
    return InferenceSpecification("small", named, found, settings or scenario(), InferenceArm(framework), **parts)


def plan_of(arms, count, store, environment, **options):
    return make_plan(InferenceBenchmarks(store), arms, range(count), environment, **options)


def measured(spec, store, seed=0, crashed=""):
    stages = []
    path = make_inference_record(
        spec, seed, f"id{seed}", store, None, lambda _, stage, __: stages.append(stage), crashed
    )
    return InferenceRecord.read(path), stages


@pytest.mark.parametrize(
    ("settings", "queries", "latencies"),
    [
        (scenario(), 70, 70),
        (scenario("multi-stream", samples_per_query=8, batch=8), 70, 70),
        (scenario("offline", batch=16, queries=90), 1, 96),
        (scenario("dawnbench", queries=1), 90, 90),
        (scenario("server", qps=5000.0, bound_s=5.0, quantile=0.9, workers=2), 70, 70),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_each_scenario_leaves_every_latency_and_the_quality_of_its_answers(
    model, examples, tmp_path, settings, queries, latencies
):
    record, stages = measured(specification(model, examples, settings), tmp_path / "store")
    assert record.outcome.status == "measured", record.outcome.reason
    assert record.driven.queries == queries
    assert len(record.latencies_s) == latencies
    assert (record.latencies_s > 0).all()
    logits = open_framework("numpy").executor(NETWORK, NETWORK.initialise(0), trains=False).infer(ROWS)[0]
    assert record.accuracy.value == (logits.argmax(1) == LABELS).mean()
    assert stages[1:5] == ["open", "build", "prepare", "first"]
    assert ("lateness" in record.samples) == (settings.name == "server")
    assert ("queueing" in record.facts.includes) == (settings.name == "server")


@pytest.fixture
def language(tmp_path):
    network = zoo.build("gpt2-tiny", vocabulary=29, width=16, positions=12)
    save(network.stored(network.initialise(0)), tmp_path / "language.onnx")
    np.savez(tmp_path / "rows.npz", input_ids=np.random.default_rng(0).integers(29, size=(20, 12)))
    return tmp_path / "language.onnx", tmp_path / "rows.npz"


@pytest.mark.parametrize(
    ("settings", "latencies"),
    [
        (scenario(queries=20), 20),
        (scenario("multi-stream", samples_per_query=3, batch=3, queries=20), 20),
        (scenario("offline", batch=8, queries=20), 24),
        (scenario("dawnbench", queries=1), 20),
        (scenario("server", qps=100.0, bound_s=60.0, workers=2, queries=20), 20),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_generation_has_the_time_of_its_first_token_and_of_those_after_it(language, tmp_path, settings, latencies):
    spec = specification(*language, settings, generation=Generation(prompt=4, tokens=5))
    record, _ = measured(spec, tmp_path / "store")
    assert record.outcome.status == "measured", record.outcome.reason
    first, each, whole = (record.seconds(name) for name in ("first_token", "per_token", "latency"))
    assert [len(first), len(each), len(whole)] == [latencies] * 3
    assert (first > 0).all()
    assert (each > 0).all()
    # Whole nanoseconds of four tokens.
    np.testing.assert_allclose(first + 4 * each, whole, atol=4e-9)


def test_times_of_tokens_of_two_workers_belong_to_the_queries_in_the_order_in_which_they_began():
    spans = [Span((7,), 30, 300), Span((2,), 10, 100), Span((7,), 20, 200)]
    result = SimpleNamespace(scenario="server", indices=np.array([[2], [7], [7]]))
    assert decode_times(result, spans).tolist() == [100, 200, 300]


def test_times_of_tokens_offline_are_those_of_the_calls_after_the_rate_was_measured():
    spans = [Span((0, 1), 0, 9), Span((0, 1), 1, 5), Span((2,), 2, 6)]
    assert decode_times(SimpleNamespace(scenario="offline", latencies_ns=np.arange(3)), spans).tolist() == [5, 5, 6]


def test_a_network_that_sees_later_tokens_generates_nothing(tmp_path):
    g = GraphBuilder("both-ways")
    g.size("length", 6)
    ids = g.input("ids", ("batch", "length"), "int64", high=5)
    rows = g.node("Gather", g.parameter("table", (5, 5), Draw("normal", 1.0)), ids)
    g.output(g.node("Add", rows, g.node("ReduceMean", rows, g.constant([1]), keepdims=1)), "scores")
    network = g.build()
    save(network.stored(network.initialise(0)), tmp_path / "both.onnx")
    np.savez(tmp_path / "rows.npz", ids=np.ones((3, 6), np.int64))
    wanted = Generation(prompt=2, tokens=3)
    record, _ = measured(
        specification(tmp_path / "both.onnx", tmp_path / "rows.npz", generation=wanted), tmp_path / "store"
    )
    assert record.outcome.status == "unsupported"
    assert "depend on the tokens after it" in record.outcome.reason


@pytest.mark.parametrize(("tokens", "prompt", "begin"), [(5, None, 7), (5, 3, 3), (11, None, 1)])
def test_a_prompt_is_what_a_row_has_besides_the_tokens(language, tmp_path, tokens, prompt, begin):
    subject = make_subject(specification(*language), tmp_path)
    assert generation_of(subject, tokens, prompt) == Generation(begin, tokens)


@pytest.mark.parametrize(("tokens", "prompt"), [(12, None), (5, 8)])
def test_more_tokens_than_a_row_has_are_refused(language, tmp_path, tokens, prompt):
    with pytest.raises(UsageError, match="a row has 12 tokens"):
        generation_of(make_subject(specification(*language), tmp_path), tokens, prompt)


def test_a_network_that_is_no_language_model_generates_nothing(model, examples, tmp_path):
    with pytest.raises(UnsupportedError, match="it takes float32"):
        generation_of(make_subject(specification(model, examples), tmp_path), 2, None)


@pytest.mark.slow
def test_processes_query_in_different_orders_and_give_the_same_answers(model, examples, tmp_path):
    spec = specification(model, examples)
    one, other = (measured(spec, tmp_path / "store", seed)[0] for seed in (0, 1))
    assert one.accuracy == other.accuracy
    assert one.header.key == other.header.key


@pytest.mark.slow
def test_a_query_that_is_padded_to_the_networks_batch_says_so(model, examples, tmp_path):
    record, _ = measured(specification(model, examples, scenario(batch=4)), tmp_path / "store")
    assert "takes 4 samples at once, so a query of 1 sample is padded" in record.facts.clock
    record, _ = measured(specification(model, examples), tmp_path / "store")
    assert "padded" not in record.facts.clock


def test_synthetic_inputs_have_no_quality_and_say_so(model, tmp_path):
    record, _ = measured(specification(model, None), tmp_path / "store")
    assert record.facts.synthetic
    assert record.accuracy.value is None
    assert "synthetic" in record.accuracy.reason


class Remembering(NumpyBackend):
    """Answers every input with the outputs of its first call."""

    def executor(self, *given, **options):
        found = super().executor(*given, **options)
        infer, held = found.infer, []
        found.infer = lambda *inputs: held[0] if held else held.append(infer(*inputs)) or held[0]
        return found


@pytest.mark.parametrize("batch", [1, 32])
def test_old_answers_to_made_up_inputs_are_not_valid(model, tmp_path, monkeypatch, batch):
    spec = specification(model, None, scenario(batch=batch))
    honest, _ = measured(spec, tmp_path / "store")
    assert honest.driven.valid
    assert f"{4 * batch} of the answers agree with those of numpy" in honest.accuracy.reason
    monkeypatch.setattr(measuring, "open_framework", lambda *_: Remembering())
    record, _ = measured(spec, tmp_path / "other")
    assert not record.driven.valid
    assert "its answers are wrong: output 0 is off by" in record.driven.reasons[0]


def test_times_of_wrong_answers_are_not_shown_and_get_no_verdict(model, tmp_path, monkeypatch):
    honest, _ = measured(specification(model, None, scenario()), tmp_path / "store")
    monkeypatch.setattr(measuring, "open_framework", lambda *_: Remembering())
    record, _ = measured(specification(model, None, scenario()), tmp_path / "other")
    entry = summarise_inference([[honest], [record]]).entries[1]
    assert (entry.status, entry.mean.estimate, entry.throughput.estimate, entry.verdict) == ("wrong", None, None, None)
    assert "its answers are wrong" in str(inference_table(summarise_inference([[honest], [record]])).rows[1])


def test_answers_that_take_the_reference_too_long_are_said_to_be_unchecked(model, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "LIMIT_FLOPS", 100.0)
    record, _ = measured(specification(model, None, scenario(batch=8)), tmp_path / "store")
    assert record.driven.valid
    assert "the answers were not checked: a batch of 8 takes the reference too long" in record.accuracy.reason


class Slow(PreparedFeed):
    """Takes a millisecond for every new sample; with ``forgets`` for every sample."""

    def __init__(self, backend, sources, forgets):
        super().__init__(backend, sources)
        self.seen, self.forgets = set(), forgets

    def inputs(self, indices):
        wanted = set(indices.tolist())
        if self.forgets or not wanted <= self.seen:
            sleep(0.001)
        self.seen |= wanted
        return super().inputs(indices)


def slow(samples, forgets):
    backend = open_framework("numpy")
    feed = Slow(backend, [np.zeros((samples, 4), np.float32)], forgets)
    return Answerer(backend, lambda: backend.executor(NETWORK, NETWORK.initialise(0), trains=False), feed)


class Events(list):
    """A record that is not written."""

    add = list.append

    def add_ns(self, name, values):
        self.append((name, len(values)))


def test_the_highest_rate_is_that_of_the_fastest_run_within_the_bound():
    settings = scenario("server", bound_s=0.03, quantile=0.5, find_peak=True, queries=60)
    events = Events()
    result = drive(settings, slow(20, True), 20, 0, events, HOST)
    tried = [each for each in events if isinstance(each, PeakTrial)]
    assert result.valid
    assert result.target_per_s == max(each.qps for each in tried if each.valid)
    assert any(not each.valid for each in tried)


@pytest.mark.slow
def test_an_impossible_bound_is_reported_before_any_rate_is_tried(model, examples, tmp_path):
    settings = scenario("server", bound_s=1e-9, find_peak=True)
    record, _ = measured(specification(model, examples, settings), tmp_path / "store")
    assert record.outcome.status == "failed"
    assert "without any load" in record.outcome.reason
    assert not record.peaks


@pytest.mark.slow
def test_each_audit_is_recorded_with_its_finding(model, examples, tmp_path):
    record, _ = measured(specification(model, examples, audit=True), tmp_path / "store")
    by_name = {each.name: each for each in record.audits}
    assert by_name["answers under the clock"].passed is True
    assert set(by_name) == {"answers under the clock", "the same sample again", "the same result"}


@pytest.mark.parametrize(("forgets", "passed"), [(True, True), (False, False)])
def test_a_caching_feed_fails_the_audit_and_an_honest_one_passes(forgets, passed):
    assert audit_cache(slow(150, forgets), 150, 20, 0, HOST).passed in (passed, None if passed else False)


def test_a_process_that_crashed_before_is_recorded_and_not_tried_again(model, examples, tmp_path):
    record, stages = measured(specification(model, examples), tmp_path / "store", crashed="killed by signal 11")
    assert (record.outcome.status, record.outcome.reason) == ("failed", "killed by signal 11")
    assert "queries" not in stages


def test_an_unknown_mode_is_an_outcome_and_not_a_crash(model, examples, tmp_path):
    spec = specification(model, examples)
    arm = InferenceArm("numpy", "compiled")
    record, _ = measured(InferenceSpecification("small", spec.model, spec.data, spec.scenario, arm), tmp_path / "store")
    assert record.outcome.status == "failed"
    assert "compiled" in record.outcome.reason
    assert record.status == "done"


def test_finished_processes_are_not_repeated_and_the_others_are_interleaved(model, examples, tmp_path):
    spec = specification(model, examples)
    store = tmp_path / "store"
    measured(spec, store)
    other = InferenceSpecification("small", spec.model, spec.data, spec.scenario, InferenceArm("numpy", "eager"))
    plan = plan_of([spec, other], 2, store, capture())
    assert list(plan.done) == [(0, 0)]
    places = [turn.place for turn in plan.to_go]
    assert places in ([(1, 0), (0, 1), (1, 1)], [(1, 0), (1, 1), (0, 1)])
    assert not plan_of([spec], 1, store, capture()).to_go
    assert len(plan_of([spec], 1, store, capture(), fresh=True).to_go) == 1


def test_an_interrupted_process_is_repeated_and_the_plan_says_why(model, examples, tmp_path):
    spec = specification(model, examples)
    record, _ = measured(spec, tmp_path / "store")
    lines = record.path.read_bytes().splitlines(keepends=True)
    record.path.write_bytes(b"".join(lines[:-1]))
    plan = plan_of([spec], 1, tmp_path / "store", capture())
    assert len(plan.to_go) == 1
    assert "interrupted" in plan.lines()[1]


def test_a_failed_process_is_repeated_and_an_unsupported_one_is_not(model, examples, tmp_path):
    spec = specification(model, examples)
    measured(spec, tmp_path / "store", crashed="killed by signal 11")
    plan = plan_of([spec], 1, tmp_path / "store", capture())
    assert len(plan.to_go) == 1
    assert "it failed before: killed by signal 11" in plan.lines()[1]


def test_the_same_arm_twice_and_a_missing_device_are_refused(model, examples, tmp_path):
    spec = specification(model, examples)
    with pytest.raises(UsageError, match="named twice"):
        plan_of([spec, spec], 1, tmp_path, {})
    gpu = InferenceSpecification("small", spec.model, spec.data, spec.scenario, InferenceArm("numpy", "", "cuda"))
    with pytest.raises(MissingError, match="cpu only"):
        plan_of([gpu], 1, tmp_path, {})


@pytest.mark.parametrize("framework", ["numpy", "onnxruntime"])
def test_raw_pixels_are_normalised_alike_on_the_clock_and_before_it(framework):
    # ONNX Runtime's arrays have no arithmetic, so the host normalises.
    if framework != "numpy":
        pytest.importorskip(framework)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 4), np.uint8)
    split = Split.of(pixels, np.zeros(12, np.int64))
    dataset = Dataset("d", split, split, split, 2, {}, "", "", "", normalisation=Normalisation((0.4,), (0.3,)))
    subject = Subject(NETWORK, Examples((pixels,), 12), split, Top1(target=0.0), dataset)
    backend = open_framework(framework)
    make = lambda: backend.executor(NETWORK, NETWORK.initialise(0), trains=False)  # noqa: E731
    during, before = (Answerer(backend, make, subject.feed(backend, framework, each), 4) for each in ("in", "out"))
    before.load(np.arange(12))
    numpy = open_framework("numpy").executor(NETWORK, NETWORK.initialise(0), trains=False)
    wanted = numpy.infer(((pixels / 255 - 0.4) / 0.3).astype(np.float32))[0]
    np.testing.assert_array_equal(during.outputs(np.arange(12))[0], before.outputs(np.arange(12))[0])
    np.testing.assert_allclose(before.outputs(np.arange(12))[0], wanted, rtol=1e-4, atol=1e-5)
    assert subject.judge(before).value == (wanted.argmax(1) == 0).mean()


def test_a_quality_that_looks_at_the_network_is_measured_by_the_answers_of_the_measured_path():
    inputs = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
    executor = open_framework("numpy").executor(NETWORK, NETWORK.initialise(0), trains=False)
    split = Split((inputs, 1 + executor.infer(inputs)[0]))
    width = split.columns[1].shape[1]
    subject = Subject(NETWORK, Examples((inputs,), 12), split, Reconstruction(target=1.0, code=width))
    backend = open_framework("numpy")
    answerer = Answerer(backend, lambda: executor, subject.feed(backend, "numpy", "out"), 4)
    answerer.load(np.arange(12))
    assert subject.judge(answerer).value == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(UnsupportedError, match="its code has"):
        replace(subject, quality=Reconstruction(target=1.0, code=1)).judge(answerer)


def test_a_model_that_changed_since_it_was_named_is_refused(model, examples, tmp_path):
    spec = specification(model, examples)
    save(NETWORK.stored(NETWORK.initialise(1)), model)
    with pytest.raises(DefinitionError, match="it changed"):
        make_subject(spec, tmp_path)


def test_answers_decoded_token_by_token_are_refused():
    with pytest.raises(UnsupportedError, match="token by token"):
        refuse_quality("translation", Bleu(target=20.0))


def test_scenario_settings_are_passed_to_the_driver():
    server = scenario_of(scenario("server", qps=200.0, bound_s=0.015, workers=3))
    assert (server.qps, server.bound_s, server.workers, server.min_queries) == (200.0, 0.015, 3, 70)
    assert scenario_of(scenario("offline", batch=16, queries=5)).min_samples == 5
    assert scenario_of(scenario("offline", batch=16, queries=0)).min_samples is None
    assert scenario_of(scenario("server", bound_s=0.1, most_s=30.0, find_peak=True), 5.0).max_duration_s is None


def test_more_latencies_than_a_record_holds_are_thinned_in_order_of_size():
    values = np.random.default_rng(0).permutation(1000)
    kept, every = _thinned(values, 300)
    assert every == 4
    assert kept.tolist() == list(range(2, 1000, 4))
    kept, every = _thinned(values, 1000)
    assert (kept.tolist(), every) == (values.tolist(), 1)


def test_data_of_a_task_that_changed_since_the_plan_are_refused(model, tmp_path):
    mine = Model("digits[mlp]", "task", str(model), digest_of_data(model), task="digits", reference="digits")
    data = Data("task", "the test split of digits", checksums={"digits": "0" * 64})
    spec = InferenceSpecification("digits", mine, data, scenario(), InferenceArm("numpy"))
    with pytest.raises(DataError, match="since the measurement was planned"):
        make_subject(spec, tmp_path)
