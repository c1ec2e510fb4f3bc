"""Measures one process's part of an inference benchmark: start, the scenario's queries, quality and audits.

The network is opened, warmed up, queried and judged in one process and through one code path, so the quality is that of
the timed answers. Whatever a framework does, the record's outcome says so. :mod:`levelbench.measure.scenarios` defines
scenarios, draws and rules.

Audits test that nothing is cached, that timed answers are right, and that other seeds change nothing (after MLPerf
Inference's compliance tests 04, 01 and 05). Earlier samples may be cached, so the caching audit comes first and leaves
out the samples of the warm-up; the others are compared with a timed run and come after it.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, LevelbenchError, MissingError, UnsupportedError
from levelbench.experiments.inference.answers import check_answers
from levelbench.experiments.inference.processes import check_threads
from levelbench.experiments.inference.subject import Subject, make_subject
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.scenarios import (
    DawnBench,
    MultiStream,
    Offline,
    Scenario,
    ScenarioResult,
    Server,
    SingleStream,
    run_scenario,
)
from levelbench.measure.scenarios import audits as scenario_audits
from levelbench.measure.scenarios.audits import KeepSome, audit_caching, audit_kept_answers, audit_same_result
from levelbench.measure.scenarios.driving import RateTrial, find_peak
from levelbench.measure.statistics.early_stopping import nearest_rank
from levelbench.networks.benchmark.measuring import Footprint, meter_of
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.inference import Answerer, Greedy, Span
from levelbench.operators.frameworks import open_framework
from levelbench.records.inference import (
    MOST_LATENCIES,
    Audit,
    Driven,
    InferenceFacts,
    InferenceOutcome,
    InferenceSpecification,
    InferenceWriter,
    PeakTrial,
    ScenarioSettings,
)
from levelbench.records.processes import Planned, ProcessEnd
from levelbench.records.schema import Measurement, redact

__all__ = ["BELOW_PEAK", "STAGES", "audit_answers", "audit_cache", "audit_seeds", "audited", "drive", "driven_of"]
__all__ += ["make_inference_record", "scenario_of"]


_MOST_KEPT = 2000
_TOLERANCE = 1e-3
"""For an output, relative to the largest value of its answer: the order of sums depends on the batch."""
_OTHER_SEED = 1_000_003
_SHORTER = 0.2
BELOW_PEAK = 0.8
"""The highest of many rates is partly luck: an honest system fails at it every third time, so audits stay below."""


class _Returning:
    """The same answers, returned one per sample."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    def answer(self, indices: Sequence[int]) -> list[tuple[object, ...]]:
        return list(zip(*self._answerer.outputs(indices), strict=True))


class _Shifted:
    """The answers for samples that are ``shift`` further on; nothing is returned."""

    def __init__(self, answerer: Answerer, shift: int) -> None:
        self._answerer, self._shift = answerer, shift

    def answer(self, indices: Sequence[int]) -> None:
        self._answerer.answer([each + self._shift for each in indices])


def audit_cache(answerer: Answerer, samples: int, asked: int, seed: int, clock: Clock) -> Audit:
    """Whether repeated samples are answered faster, using samples from number ``asked`` on, which are all new."""
    fresh = max(samples - asked, 1)
    return _recorded(audit_caching(_Shifted(answerer, asked), samples=fresh, seed=seed, clock=clock))


def audit_answers(
    scenario: Scenario,
    answerer: Answerer,
    samples: int,
    seed: int,
    first: ScenarioResult,
    clock: Clock,
    find_peak: bool = False,
) -> Iterator[Audit]:
    """Timed runs with other seeds: one to compare its speed, and a shorter one of which some answers are kept.

    These are two runs because returning answers takes time, which would look like a slower network. With ``find_peak``
    both use :data:`BELOW_PEAK` of the rate that was found.
    """
    scenario = audited(scenario, first, find_peak)
    same = audit_seeds(first, lambda by: run_scenario(scenario, answerer, samples=samples, seed=by, clock=clock), seed)
    at = f"; at {BELOW_PEAK:g} of the highest rate" if find_peak else ""
    yield structs.replace(same, said=same.said + at)
    keeping = KeepSome(_Returning(answerer), share=0.5, seed=seed, most=_MOST_KEPT)
    shorter = replace(scenario, min_duration_s=_SHORTER * scenario.min_duration_s)
    run_scenario(shorter, keeping, samples=samples, seed=seed + 2 * _OTHER_SEED, clock=clock)
    numbers = sorted({each.index for each in keeping.kept})
    wanted = _Returning(answerer).answer(numbers) if numbers else []
    yield _recorded(audit_kept_answers(keeping.kept, dict(zip(numbers, wanted, strict=True)), _agree))


def audit_seeds(first: ScenarioResult, run: Callable[[int], ScenarioResult], seed: int) -> Audit:
    """Whether a ``run`` with other seeds is as good as the ``first``, which used ``seed``.

    If it is worse, a third run uses the first seeds again: if that is no better, the machine has changed meanwhile, and
    the audit is inconclusive.
    """
    second = run(seed + _OTHER_SEED)
    found = audit_same_result(first, second)
    if found.verdict == "failed" and (again := audit_same_result(run(seed), second)).verdict != "failed":
        said = f"{found.found}; but with the first seeds again: {again.found}"
        return structs.replace(_recorded(found), passed=None, said=said)
    return _recorded(found)


def audited(scenario: Scenario, first: ScenarioResult, find_peak: bool) -> Scenario:
    """The scenario of the second run: for a server at the rate of the ``first``, or below it if that was a peak."""
    if isinstance(scenario, Server) and first.target_per_s is not None:
        return replace(scenario, qps=first.target_per_s * (BELOW_PEAK if find_peak else 1.0))
    return scenario


def _agree(a: Any, b: Any) -> bool:
    """Whether two answers, each a tuple of arrays, agree up to rounding."""
    return len(a) == len(b) and all(_close(np.asarray(one), np.asarray(other)) for one, other in zip(a, b, strict=True))


def _close(one: Any, other: Any) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    size = float(np.abs(other).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True))


def _recorded(found: scenario_audits.AuditVerdict) -> Audit:
    passed = {"passed": True, "failed": False}.get(found.verdict)
    figures = {} if found.value is None else {"value": found.value, "n": float(found.n)}
    if found.interval is not None:
        figures |= {"low": found.interval.low, "high": found.interval.high}
    return Audit(found.name, passed, found.found, figures)


_TIMEOUT_S = 600.0
_ALONE = 662


class Adds(Protocol):
    """A record that is being written."""

    def add(self, event: Any) -> None:
        """Write one line."""

    def add_ns(self, name: str, values: NDArray[np.int64]) -> None:
        """Write raw values in nanoseconds."""


def scenario_of(settings: ScenarioSettings, qps: float | None = None) -> Scenario:
    """The scenario that the settings describe; ``qps`` overrides theirs."""
    # A slow network has a low peak rate, and still has to complete its queries.
    most_s = None if settings.find_peak else settings.most_s
    common: dict[str, Any] = {"max_duration_s": most_s, "timeout_s": _TIMEOUT_S, "warmup_queries": 0}
    least: dict[str, Any] = {"min_duration_s": settings.duration_s, "min_queries": settings.queries}
    match settings.name:
        case "single-stream":
            return SingleStream(quantile=settings.quantile, **least, **common)
        case "multi-stream":
            per_query = settings.samples_per_query
            return MultiStream(samples_per_query=per_query, quantile=settings.quantile, **least, **common)
        case "server":
            return Server(
                qps=qps or settings.qps or 1.0,
                bound_s=settings.bound_s or 1.0,
                quantile=settings.quantile,
                workers=settings.workers,
                **least,
                **common,
            )
        case "offline":
            # Its single query is as long as necessary; the rate that determines its length is measured off the clock.
            common["warmup_queries"] = 1
            duration = settings.duration_s
            return Offline(
                batch=settings.batch, min_samples=settings.queries or None, min_duration_s=duration, **common
            )
        case _:
            return DawnBench(**common)


def drive(
    settings: ScenarioSettings,
    answerer: Answerer,
    samples: int,
    seed: int,
    record: Adds,
    clock: Clock,
    say: Callable[[str], None] = lambda words: None,
) -> ScenarioResult:
    """Run the scenario over the first ``samples`` samples, and record raw values.

    In a search for the highest rate, ``say`` gets each rate that is tried.
    """
    if settings.find_peak:
        result = _peak(settings, answerer, samples, seed, record, clock, say)
    else:
        if answerer.greedy is not None:
            answerer.greedy.spans.clear()
        result = run_scenario(scenario_of(settings), answerer, samples=samples, seed=seed, clock=clock)
    if answerer.greedy is not None:
        decoded = decode_times(result, list(answerer.greedy.spans))
        record.add_ns("first_token", _thinned(result.latencies_ns - decoded)[0])
        record.add_ns("per_token", _thinned(decoded // (answerer.greedy.tokens - 1))[0])
    record.add_ns("latency", _thinned(result.latencies_ns)[0])
    if settings.name == "server":
        record.add_ns("lateness", _thinned(result.lateness_ns)[0])
    return result


def driven_of(result: ScenarioResult, wrong: str = "") -> Driven:
    """What the driver observed; ``wrong`` says what is wrong with the answers, so that the run is not valid."""
    return Driven(
        queries=result.queries,
        samples=result.samples,
        duration_s=result.duration_s,
        latencies=len(result.latencies_ns),
        valid=result.valid and not wrong,
        reasons=[*([wrong] if wrong else []), *result.reasons],
        ended_by=result.ended_by,
        throughput_per_s=result.throughput_per_s or None,
        target_per_s=result.target_per_s,
        thinned=_thinned(result.latencies_ns)[1],
    )


def decode_times(result: ScenarioResult, spans: Sequence[Span]) -> NDArray[np.int64]:
    """From the first token to the last in nanoseconds, one for each latency of the result.

    Offline, latencies are by sample in order of the answers, and what the calls before the last ones measured was a
    rate. Elsewhere a query is one call; the spans of the same sample began in the order of their queries, since a free
    worker takes the query that waits longest.
    """
    if result.scenario == "offline":
        each = np.repeat([span.decode_ns for span in spans], [len(span.samples) for span in spans])
        return each[len(each) - len(result.latencies_ns) :]
    waiting: dict[int, deque[int]] = {}
    for span in sorted(spans, key=lambda span: span.began_ns):
        waiting.setdefault(span.samples[0], deque()).append(span.decode_ns)
    return np.array([waiting[int(first)].popleft() for first in result.indices[:, 0]], np.int64)


def _peak(
    settings: ScenarioSettings,
    answerer: Answerer,
    samples: int,
    seed: int,
    record: Adds,
    clock: Clock,
    say: Callable[[str], None],
) -> ScenarioResult:
    """The run at the highest rate within the bound; every rate that was tried is recorded."""
    bound_s = settings.bound_s or 1.0
    alone = DawnBench(max_queries=_ALONE, timeout_s=_TIMEOUT_S, warmup_queries=0)
    waited = run_scenario(alone, answerer, samples=samples, seed=seed, clock=clock)
    longest = nearest_rank(np.sort(waited.latencies_ns), settings.quantile) * 1e-9
    if longest > bound_s:
        # Then no rate is low enough, and finding that out by halving would take twice as long each time.
        raise CheckFailedError(
            f"the highest rate within {bound_s:g} s",
            f"the {settings.quantile:g} quantile of {waited.queries} queries without any load is {longest:.4g} s",
            "give a longer --bound, or use an idle machine",
        )
    # Half of the workers' rate if they never wait.
    scenario = scenario_of(settings, 0.5 * settings.workers / waited.mean_latency_s)
    assert isinstance(scenario, Server)

    def tell(trial: RateTrial) -> None:
        record.add(PeakTrial(trial.qps, trial.valid))
        say(f"queries, {trial.qps:.4g} per second {'kept' if trial.valid else 'exceeded'} the bound")

    return find_peak(scenario, answerer, samples=samples, seed=seed, clock=clock, progress=tell).result


def _thinned(values: NDArray[np.int64], most: int = MOST_LATENCIES) -> tuple[NDArray[np.int64], int]:
    """All values in their order if there are at most ``most``; else every k-th in order of size; and k."""
    every = -(-len(values) // most)
    if every <= 1:
        return values, 1
    return np.sort(values)[every // 2 :: every], every


STAGES = ("open", "build", "prepare", "first", "warm-up", "audit", "queries", "accuracy")
"""The stages of a process, in order; the first four are phases of the record. Audits come before and after queries."""

OnStage = Callable[[Path, str, InferenceOutcome | None], None]


def make_inference_record(
    specification: InferenceSpecification,
    seed: int,
    identity: str,
    store: Path,
    folder: Path | None,
    on_stage: OnStage,
    crashed: str = "",
    planned: Planned | None = None,
) -> Path:
    """Measure, write the record and return its path.

    ``seed`` is the number of the process; ``folder`` that of the task's data. ``on_stage`` gets the record's path with
    each stage as it begins, and the outcome with an empty stage. ``crashed`` says how an earlier process crashed: that
    is recorded, and not tried again. ``planned`` holds the effect and number of processes for the header.
    """
    environment = capture()
    with InferenceWriter.start(
        store, specification, seed=seed, identity=identity, environment=environment, planned=planned
    ) as writer:

        def begin(stage: str) -> None:
            on_stage(writer.path, stage, None)

        begin("")
        if crashed:
            outcome = InferenceOutcome("failed", redact(crashed))
        else:
            outcome = _outcome(_Process(specification, seed, store, folder, writer, begin))
        writer.add(outcome)
        on_stage(writer.path, "", outcome)
        after = capture_after()
        writer.add(ProcessEnd(list(doubts(environment, after)), after))
        return writer.path


def _outcome(process: _Process) -> InferenceOutcome:
    try:
        process.measure()
    except UnsupportedError as error:
        return InferenceOutcome("unsupported", f"{error.asked}: {error.found}")
    except (MissingError, KeyboardInterrupt):
        raise
    except MemoryError:
        return InferenceOutcome("failed", "it ran out of memory")
    except Exception as error:  # noqa: BLE001  # the boundary to a framework: one arm must not end the others
        said = redact(str(error) if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}")
        return InferenceOutcome("failed", next(iter(said.splitlines()), "")[:300])
    return InferenceOutcome("measured")


class _Process:
    """The stages of one process."""

    def __init__(
        self,
        specification: InferenceSpecification,
        seed: int,
        store: Path,
        folder: Path | None,
        writer: InferenceWriter,
        begin: Callable[[str], None],
        clock: Clock = HOST,
    ) -> None:
        self._spec, self._seed, self._store, self._folder = specification, seed, store, folder
        self._writer, self._begin, self._clock = writer, begin, clock

    def measure(self) -> None:
        """Go through all stages, and record each event as soon as it is known."""
        specification, arm, writer = self._spec, self._spec.arm, self._writer
        with self._phase("open"):
            opened = open_framework(arm.framework, arm.device)
        if not isinstance(opened, Backend):
            raise UnsupportedError(
                f"a network on {arm.framework}", "it only runs single operators", "use another framework"
            )
        check_threads(arm, opened.describe())
        mode = opened.chosen_mode(arm.mode or None)
        with self._phase("build"):
            subject = make_subject(specification, self._store, self._folder)
        footprint = Footprint(meter_of(opened, arm.device))
        with self._phase("prepare"):
            answerer = _answerer(opened, subject, specification, mode, self._clock)
        loaded = self._loaded(answerer, subject)
        with self._phase("first"):
            answerer.answer(loaded[: self._per_query()].tolist())
        if answerer.greedy is not None:
            _check_causal(answerer)
        self._begin("warm-up")
        said = _warm_up_queries(answerer, loaded, self._per_query())
        writer.add(self._facts(opened, mode, subject, answerer, len(loaded), said))
        # Otherwise the garbage so far would be collected during a query.
        gc.collect()
        gc.freeze()
        seed, count = specification.seed + self._seed, len(loaded)
        if specification.audit:
            self._begin("audit")
            writer.add(audit_cache(answerer, count, _warmup_samples(self._per_query()), seed, self._clock))
        first = self._queries(answerer, subject, footprint, count, seed)
        if specification.audit:
            self._begin("audit")
            scenario = scenario_of(specification.scenario)
            peak = specification.scenario.find_peak
            for found in audit_answers(scenario, answerer, count, seed, first, self._clock, peak):
                writer.add(found)

    def _queries(
        self, answerer: Answerer, subject: Subject, footprint: Footprint, samples: int, seed: int
    ) -> ScenarioResult:
        """Run the scenario, and judge the quality of the answers."""
        scenario = self._spec.scenario
        results: list[ScenarioResult] = []
        if scenario.name == "dawnbench" and subject.quality is not None and answerer.greedy is None:
            answerer.keep_answers()
        self._begin("queries")

        def queries() -> None:
            results.append(drive(scenario, answerer, samples, seed, self._writer, self._clock, self._begin))

        self._writer.add(footprint.of(queries))
        self._begin("accuracy")
        scored, wrong = answerer.without_greedy(), ""
        accuracy = subject.judge(scored, answerer.kept_answers())
        if accuracy.value is None:
            wrong, said = check_answers(subject, scored, samples, alone=self._spec.model.kind == "zoo")
            accuracy = structs.replace(accuracy, reason=f"{accuracy.reason}; {said}")
        self._writer.add(driven_of(results[0], wrong))
        self._writer.add(accuracy)
        return results[0]

    def _per_query(self) -> int:
        scenario = self._spec.scenario
        return scenario.batch if scenario.name == "offline" else scenario.samples_per_query

    def _loaded(self, answerer: Answerer, subject: Subject) -> NDArray[np.int64]:
        """Load the samples from which queries are drawn: the first ones."""
        count = subject.examples.count
        loaded = np.arange(min(self._spec.scenario.samples or count, count), dtype=np.int64)
        answerer.load(loaded)
        return loaded

    def _facts(
        self, backend: Backend, mode: str, subject: Subject, answerer: Answerer, samples: int, warmed: str
    ) -> InferenceFacts:
        includes = list(answerer.feed.includes)
        if self._spec.scenario.name == "server":
            includes.append("queueing")
        return InferenceFacts(
            framework=backend.describe(),
            mode=mode,
            parameters=subject.network.parameter_count(),
            includes=includes,
            clock=_clock_words(self._spec, subject),
            samples=samples,
            examples=subject.examples.count,
            synthetic=subject.examples.synthetic,
            checksums=subject.examples.checksums,
            warmup=warmed,
        )

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Time a phase; nothing is recorded if it raises."""
        self._begin(name)
        before_ns = self._clock.now_ns()
        yield
        seconds = (self._clock.now_ns() - before_ns) * 1e-9
        self._writer.add(Measurement(f"phase/{name}", "s", seconds, "host clock"))


def _answerer(
    backend: Backend, subject: Subject, specification: InferenceSpecification, mode: str, clock: Clock
) -> Answerer:
    network, scenario, wanted = subject.network, specification.scenario, specification.generation
    parameters = network.initialise(0)

    def make() -> Executor:
        return backend.executor(network, parameters, mode=mode, trains=False)

    feed = subject.feed(backend, specification.arm.framework, specification.preprocessing)
    greedy = None if wanted is None else Greedy(wanted.prompt, wanted.tokens, clock)
    return Answerer(backend, make, feed, scenario.batch, scenario.workers, fixed=True, greedy=greedy)


def _check_causal(answerer: Answerer) -> None:
    """Raise ``UnsupportedError`` for a network whose score of the next token depends on the tokens after it."""
    assert answerer.greedy is not None
    prompt, length = answerer.greedy.prompt, answerer.greedy.prompt + answerer.greedy.tokens
    row = np.asarray(answerer.backend.host(answerer.feed.inputs(np.zeros(1, np.int64))[0]))
    rows = np.repeat(row[:, :length], answerer.batch, axis=0)
    found = []
    for token in (0, 1):
        rows[:, prompt:] = token
        found.append(answerer.scores(rows)[:, prompt - 1])
    if not _close(*found):
        raise UnsupportedError(
            "generating tokens", "scores of a token depend on the tokens after it", "give a causal language model"
        )


def _warmup_calls(per_query: int) -> int:
    return 20 if per_query == 1 else 5


def _warmup_samples(per_query: int) -> int:
    """The number of samples that the warm-up uses."""
    return _warmup_calls(per_query) * per_query


def _warm_up_queries(answerer: Answerer, loaded: NDArray[np.int64], per_query: int) -> str:
    """Answer a few queries of the usual size on each executor; returns what was done, in words."""
    calls = _warmup_calls(per_query)
    order = np.resize(loaded, calls * per_query)
    for start in range(0, len(order), per_query):
        answerer.warm_up(order[start : start + per_query].tolist())
    return f"{calls} queries on each executor, off the clock"


def _clock_words(specification: InferenceSpecification, subject: Subject) -> str:
    """What a latency includes, in words."""
    work, scenario = subject.examples.prepared, specification.scenario
    preprocessing = specification.preprocessing
    if not work:
        beforehand = "the examples are kept as the network takes them, so there is nothing to preprocess"
    elif preprocessing == "in":
        beforehand = f"preprocessing on the clock ({work})"
    else:
        beforehand = f"preprocessing off the clock ({work})"
    filled = ""
    if scenario.name != "offline" and scenario.samples_per_query % scenario.batch:
        query = f"{scenario.samples_per_query} sample{'s' * (scenario.samples_per_query > 1)}"
        filled = f"; the network takes {scenario.batch} samples at once, so a query of {query} is padded"
    until = "the outputs" if specification.generation is None else "the last token"
    return f"from the query to {until} on the host; {beforehand}{filled}"
