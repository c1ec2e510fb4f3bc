"""How long the lists and dictionaries of a submission may be, and which of them is longer.

The one idea: what one entry may hold is bounded, so that no file makes a rule, a page or a chart endless; nearly all
are so short that a look at the file's length says so.
"""

from __future__ import annotations

from levelbench.records.submissions.schema import Curve, Inference, Submission, SubmittedRun

__all__ = ["POINT_LIMIT", "RUN_LIMIT", "lengths", "seen"]

RUN_LIMIT = 1000
"""How many runs or measurements of inference an entry may have."""
POINT_LIMIT = 100_000
"""How many evaluations a curve may have."""
_ENTRY_LIMIT = 2000
"""How many entries a dictionary or list of texts may have."""


def lengths(submission: Submission, raw: bytes) -> list[tuple[str, int, int]]:
    """Every list and dictionary: its name, its length, and how long it may be; none where ``raw`` is short enough."""
    if _is_short(submission, raw):
        return []
    origin, provenance = submission.origin, submission.provenance
    found = [
        ("runs", len(submission.runs), RUN_LIMIT),
        ("inference", len(submission.inference), RUN_LIMIT),
        ("settings", len(submission.settings), _ENTRY_LIMIT),
        ("provenance.software", len(provenance.software), _ENTRY_LIMIT),
        ("provenance.environment", len(provenance.environment), _ENTRY_LIMIT),
        ("provenance.checksums", len(provenance.checksums), 10 * _ENTRY_LIMIT),
    ]
    if origin is not None:
        found += [("origin.doubts", len(origin.doubts), _ENTRY_LIMIT)]
        found += [("origin.fields", len(origin.fields), _ENTRY_LIMIT)]
    for at, run in enumerate(submission.runs[: RUN_LIMIT + 1]):
        found += _lengths_of_run(run, f"runs[{at}]")
    for at, each in enumerate(submission.inference[: RUN_LIMIT + 1]):
        found += _lengths_of_inference(each, f"inference[{at}]")
    return found


def _lengths_of_run(run: SubmittedRun, at: str) -> list[tuple[str, int, int]]:
    curve: Curve = run.curve
    found = [
        (f"{at}.curve.time_s", len(curve.time_s), POINT_LIMIT),
        (f"{at}.curve.quality", len(curve.quality), POINT_LIMIT),
        (f"{at}.curve.epoch", len(curve.epoch or ()), POINT_LIMIT),
        (f"{at}.curve.samples", len(curve.samples or ()), POINT_LIMIT),
        (f"{at}.curve.others", len(curve.others), 100),
        (f"{at}.suspect", len(run.suspect), _ENTRY_LIMIT),
    ]
    for name, values in curve.others.items():
        found.append((f"{at}.curve.others.{seen(name, 40)}", len(values), POINT_LIMIT))
    parts = {"phases_s": run.phases_s, "excluded_s": run.excluded_s, "test_quality": run.test_quality}
    return found + [(f"{at}.{name}", len(values), 200) for name, values in parts.items()]


def _lengths_of_inference(inference: Inference, at: str) -> list[tuple[str, int, int]]:
    return [
        (f"{at}.quantiles_s", len(inference.quantiles_s), 200),
        (f"{at}.includes", len(inference.includes), 200),
    ]


def _is_short(submission: Submission, raw: bytes) -> bool:
    """Whether a look at the file's length and at a few others' is enough: no list or dictionary can be too long."""
    origin, provenance = submission.origin, submission.provenance
    software, environment = len(provenance.software), len(provenance.environment)
    return (
        len(raw) < 2 * POINT_LIMIT  # a comma and a digit a point
        and len(submission.runs) <= RUN_LIMIT
        and not submission.inference
        and max(len(submission.settings), software, environment, len(provenance.checksums)) <= _ENTRY_LIMIT
        and (origin is None or max(len(origin.doubts), len(origin.fields)) <= _ENTRY_LIMIT)
        and not any(
            run.curve.others or run.suspect or len(run.phases_s) + len(run.excluded_s) + len(run.test_quality) > 200
            for run in submission.runs
        )
    )


def seen(text: str, most: int = 60) -> str:
    """``text`` cut to ``most`` characters, with escapes for what cannot be seen: it is printed, in one line."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
