"""Measures one process's part of an inference benchmark: start, the scenario's queries, quality, audits, into a record.

The network is opened, warmed up, driven and judged in one process over one path, so the quality is that
of the very answers whose time is told. Whatever a framework does ends in an outcome that says so.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import LevelbenchError, MissingError, UnsupportedError
from levelbench.experiments.inference.audits import audit_answers, audit_cache
from levelbench.experiments.inference.driving import drive, scenario_of
from levelbench.experiments.inference.processes import check_threads
from levelbench.experiments.inference.subject import Subject, make_subject
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.scenarios import ScenarioResult
from levelbench.networks.benchmark.measuring import Footprint, meter_of
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.inference import Answerer
from levelbench.operators.frameworks import open_framework
from levelbench.records.inference import (
    InferenceFacts,
    InferenceOutcome,
    InferenceSpecification,
    InferenceWriter,
)
from levelbench.records.processes import ProcessEnd
from levelbench.records.redaction import redact
from levelbench.records.schema import Measurement

__all__ = ["STAGES", "make_inference_record"]

STAGES = ("open", "build", "prepare", "first", "warm-up", "audit", "queries", "accuracy")
"""What a process is at, in order; the first four are phases of the record. An audit comes before and after the rest."""

OnStage = Callable[[Path, str, InferenceOutcome | None], None]


def make_inference_record(
    specification: InferenceSpecification,
    seed: int,
    identity: str,
    store: Path,
    folder: Path | None,
    on_stage: OnStage,
    crashed: str = "",
    planned: tuple[float | None, int] = (None, 0),
) -> Path:
    """Measure, write the record and answer with its path.

    ``seed`` is the number of the process; ``folder`` that of the task's data. ``on_stage`` gets the record's path with
    each stage as it begins, and the outcome with an empty one. ``crashed`` says how a process before this one was
    brought down: it is recorded, and not tried again. ``planned`` are the effect and number of the header.
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
        """All stages, each event recorded as it is known."""
        specification, arm, writer = self._spec, self._spec.arm, self._writer
        with self._phase("open"):
            opened = open_framework(arm.framework, arm.device)
        if not isinstance(opened, Backend):
            raise UnsupportedError(f"a network on {arm.framework}", "it runs single operators only", "use another")
        check_threads(arm, opened.describe())
        mode = opened.chosen_mode(arm.mode or None)
        with self._phase("build"):
            subject = make_subject(specification, self._store, self._folder)
        footprint = Footprint(meter_of(opened, arm.device))
        with self._phase("prepare"):
            answerer = _answerer(opened, subject, specification, mode)
        loaded = self._loaded(answerer, subject)
        with self._phase("first"):
            answerer.answer(loaded[: self._per_query()].tolist())
        self._begin("warm-up")
        said = _warm(answerer, loaded, self._per_query())
        writer.add(self._facts(opened, mode, subject, answerer, len(loaded), said))
        # What was made so far is not the queries': without this a collection of it falls on one of them.
        gc.collect()
        gc.freeze()
        seed, count = specification.seed + self._seed, len(loaded)
        if specification.audit:
            self._begin("audit")
            writer.add(audit_cache(answerer, count, _asked(self._per_query()), seed, self._clock))
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
        """The scenario, and the quality of the answers."""
        scenario = self._spec.scenario
        results: list[ScenarioResult] = []
        if scenario.name == "dawnbench" and subject.quality is not None:
            answerer.keep_answers()
        self._begin("queries")

        def queries() -> None:
            results.append(drive(scenario, answerer, samples, seed, self._writer, self._clock, self._begin))

        self._writer.add(footprint.of(queries))
        self._begin("accuracy")
        self._writer.add(subject.judge(answerer, answerer.kept_answers()))
        return results[0]

    def _per_query(self) -> int:
        scenario = self._spec.scenario
        return scenario.batch if scenario.name == "offline" else scenario.samples_per_query

    def _loaded(self, answerer: Answerer, subject: Subject) -> NDArray[np.int64]:
        """The samples that the queries are drawn from, made ready: the first ones."""
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
        """A stretch that ends with its work done; nothing is recorded of one that raises."""
        self._begin(name)
        before_ns = self._clock.now_ns()
        yield
        seconds = (self._clock.now_ns() - before_ns) * 1e-9
        self._writer.add(Measurement(f"phase/{name}", "s", seconds, "host clock"))


def _answerer(backend: Backend, subject: Subject, specification: InferenceSpecification, mode: str) -> Answerer:
    network, scenario = subject.network, specification.scenario
    parameters = network.initialise(0)

    def make() -> Executor:
        return backend.executor(network, parameters, mode=mode, trains=False)

    feed = subject.feed(backend, specification.arm.framework, specification.preprocessing)
    return Answerer(backend, make, feed, scenario.batch, scenario.workers, fixed=True)


def _calls(per_query: int) -> int:
    return 20 if per_query == 1 else 5


def _asked(per_query: int) -> int:
    """Up to which sample the warm-up asks."""
    return _calls(per_query) * per_query


def _warm(answerer: Answerer, loaded: NDArray[np.int64], per_query: int) -> str:
    """Answer as the queries will ask, on each executor, a few times; what was done, in words."""
    calls = _calls(per_query)
    order = np.resize(loaded, calls * per_query)
    for start in range(0, len(order), per_query):
        answerer.warm_up(order[start : start + per_query].tolist())
    return f"{calls} queries on each executor, off the clock"


def _clock_words(specification: InferenceSpecification, subject: Subject) -> str:
    """What a latency goes from and to."""
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
        filled = f"; the network takes {scenario.batch} samples at once, so a query of {query} is filled up to them"
    return f"from the query to the outputs on the host; {beforehand}{filled}"
