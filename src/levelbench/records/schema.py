"""The lines of a record: a header first, then events, an end last.

A record holds what happened (phase totals, evaluations, raw samples), never a conclusion. Time to accuracy, verdicts
and tables are computed on reading, so a better rule can be applied to old runs. Durations are integer nanoseconds on
the run's own timeline; qualities are on the scale of the target.

The key of a run is a digest of its specification: equal specifications have equal keys everywhere, so the key shows
whether a run is already done.

Texts from elsewhere must not bring credentials, tokens or home folders into a record. An exception's text can quote
anything, so a record keeps only its type and place (:func:`fault`). Sentences worth keeping, such as a framework's
reason for refusing an operator, go through :func:`redact`. The terminal shows the full text.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import socket
import struct
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from levelbench.errors import UsageError

__all__ = ["SCHEMA", "DatasetFacts", "Distribution", "End", "Evaluation", "Event", "Header", "Measurement"]
__all__ += ["RankSamples", "Samples", "Sight", "Source", "Specification", "Target", "Witness", "around_recipes"]
__all__ += ["fault", "instant_s", "key_of", "outline", "redact", "redacted", "secret_settings", "source_of_text"]


SCHEMA = 2
"""2: every line carries a checksum that covers the line before it (see ``records.lines``)."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A count, or an amount in whole numbers: not negative, and within 64 bits."""


def instant_s(text: Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 time (UTC by default); ``None`` for anything else."""
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


class Target(Struct, frozen=True, forbid_unknown_fields=True):
    """The quality to reach: ``metric`` on ``split`` at ``threshold`` or better, on a scale from ``low`` to ``high``.

    ``high`` is ``None`` for a metric without an upper limit, such as a perplexity, and ``low`` for one without a lower
    limit, such as a reward: JSON has no infinity.
    """

    metric: str
    threshold: float
    direction: Literal["higher", "lower"] = "higher"
    low: float | None = 0.0
    high: float | None = 1.0
    split: str = "validation"

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value of the scale, which may be infinite."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    @property
    def scale(self) -> str:
        """The scale in words: ``from 0 to infinity``."""
        return "from {:g} to {:g}".format(*self.ends).replace("inf", "infinity")

    @property
    def best(self) -> float | None:
        """The best value, for estimates and figures; ``None`` if there is none.

        A metric without a lower limit whose target is positive, such as most losses, hardly falls below 0.
        """
        if self.direction == "higher":
            return self.high
        return 0.0 if self.low is None and self.threshold > 0 else self.low

    def is_per_cent(self, value: float) -> bool:
        """Whether a value off the scale is probably in per cent, where the scale is not."""
        return self.high == 1 and 1 < value <= 100

    def name(self, scored_by: str | None) -> str:
        """What the quality is called: ``validation accuracy``; the metric alone if a program reported it.

        Nobody but its author knows which data a program's ``accuracy`` or ``test_acc`` is of.
        """
        return self.metric if scored_by else f"{self.split} {self.metric}"

    def read(self, value: float) -> float:
        """A quality that a program has reported: the threshold if both are equal in single precision.

        38 of 40 is 0.949999988 when divided in float32, and must not miss a target of 0.95.
        """
        try:
            one = struct.pack("f", value) == struct.pack("f", self.threshold)
        except OverflowError:
            one = False
        return self.threshold if one else value

    def require_on_scale(self, otherwise: str = "") -> None:
        """Raise ``UsageError`` if the threshold is not on the scale; ``otherwise`` is another way out."""
        low, high = self.ends
        if not low <= self.threshold <= high:
            percent = f" (did you mean {self.threshold / 100:g}?)" if self.is_per_cent(self.threshold) else ""
            raise UsageError(
                f"target {self.threshold:g} for {self.metric}",
                f"its scale goes {self.scale}{percent}",
                f"give a target on that scale{otherwise}",
            )


_NEGATIVE = re.compile("neg|negative|minus")
_LOWER = re.compile(
    "[a-z]*(loss|error|entropy)|err|perplexity|ppl|nll|bits|bp[bcd]|[wct]er|eer|ece|s?map?e|r?ms(l)?e|msle|[fk]id|brier|"
    "xent|b?ce|deviance|kl|divergence|distance|regret|cost|residual|f[pn]r"
)
_SHARE = re.compile("[a-z]*acc(uracy)?|top|f1|auc|auroc|auprc|m?ap|m?iou|dice|jaccard|precision|recall|t[pn]r|hr|em")
_HIGHER = re.compile(
    "bleu|rouge|meteor|chrf|cider|rewards?|returns?|psnr|ssim|kappa|mcc|ndcg|mrr|hits|spearman|pearson|"
    "corr(elation)?|success|win|exact|sensitivity|specificity|likelihood|elbo|r2"
)
_NOT_NEGATIVE = re.compile(
    "[a-z]*error|err|perplexity|ppl|bits|bp[bcd]|[wct]er|eer|ece|s?map?e|r?ms(l)?e|msle|fid|brier|f[pn]r|distance|"
    "bleu|rouge|meteor|chrf|cider|ndcg|mrr|hits|success|win|exact|sensitivity|specificity"
)
_SIGNED = re.compile("log|delta|diff(erence)?|change|gain|improvement")


def better_of(metric: str) -> Literal["higher", "lower"] | None:
    """Which direction is better, by the words of a metric's name (``val_loss``); ``None`` if they do not say."""
    words = _words(metric)
    if any(_NEGATIVE.fullmatch(each) for each in words):
        return None
    if any(_LOWER.fullmatch(each) for each in words):
        return "lower"
    return "higher" if any(_SHARE.fullmatch(each) or _HIGHER.fullmatch(each) for each in words) else None


def scale_of(metric: str) -> tuple[float | None, float | None]:
    """The lowest and the highest value of a metric, by the words of its name; ``None`` for an end that is unknown.

    >>> scale_of("val_accuracy"), scale_of("wer"), scale_of("r2"), scale_of("val_loss")
    ((0.0, 1.0), (0.0, None), (None, 1.0), (None, None))
    """
    words, better = _words(metric), better_of(metric)
    if better == "higher" and any(map(_SHARE.fullmatch, words)):
        return 0.0, 1.0
    if better == "higher" and "r2" in words:
        return None, 1.0
    known = better is not None and any(map(_NOT_NEGATIVE.fullmatch, words)) and not any(map(_SIGNED.fullmatch, words))
    return 0.0 if known else None, None


def _words(metric: str) -> set[str]:
    """The words of a metric's name in lower case, with and without numbers: ``f1`` and ``f``."""
    parts = re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z][a-z])", metric)
    return {each for part in parts for each in (part.lower(), part.lower().rstrip("0123456789")) if each}


class DatasetFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """The data: name, sizes by split, SHA-256 by file, split rule, licence, and whether it is synthetic."""

    name: str
    sizes: dict[str, int]
    checksums: dict[str, str]
    split_rule: str
    licence: str
    synthetic: bool = False
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the labels by split, as used in training and evaluation; empty in older records."""
    inputs: dict[str, str] = field(default_factory=dict)
    """SHA-256 of evenly spaced inputs by split."""
    whole_inputs: dict[str, str] = field(default_factory=dict)
    """SHA-256 of all inputs by split, without splits that are too large; empty in older records."""


class Distribution(Struct, frozen=True, forbid_unknown_fields=True):
    """How several processes train together.

    The number of ranks, the scheme with its settings, the engine that starts them (with its options in brackets), the
    communicator, and whether the batch (``weak``) and the learning rate grow with the ranks.
    """

    ranks: int
    scheme: str
    settings: dict[str, int | float | str | bool]
    engine: str
    communicator: str
    scaling: Literal["strong", "weak"] = "strong"
    lr_scale: Literal["none", "linear", "sqrt"] = "none"
    digest: str = ""
    """SHA-256 of the file that defines the scheme; empty for an installed one."""

    def words(self) -> dict[str, int | float | str | bool]:
        """Its parts by the names that select and label runs; settings of the scheme as ``scheme.NAME``."""
        parts = {name: getattr(self, name) for name in ("ranks", "scheme", "communicator", "scaling", "lr_scale")}
        engine, bracket, options = self.engine.partition("[")
        parts["engine"] = engine
        if bracket:
            parts["engine.options"] = options.removesuffix("]")
        return parts | {f"scheme.{name}": value for name, value in self.settings.items()}


class Specification(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run does. The key of a run is the digest of this alone, without seed, machine, order or path."""

    task: str
    recipe: str
    framework: str
    device: str
    settings: dict[str, int | float | str | bool]
    target: Target
    crossing: Literal["confirmed", "final", "first", "sustained"]
    clock: str
    evaluate_every: str
    budget_epochs: float
    budget_s: float | None = None
    budget_samples: int | None = None
    budget_j: float | None = None
    plateau: int | None = None
    distribution: Distribution | None = None
    scored_by: Literal["program", "held-out"] | None = None
    """For a user's own program: ``program`` if it reports its quality itself, ``held-out`` if levelbench scored its
    predictions on ``held_out`` at its end."""
    held_out: str | None = None
    """Which inputs it was given without labels, and when, and whether the labels are public."""

    def team(self) -> dict[str, int | float | str | bool]:
        """The words of its distribution; ``ranks=1`` for a single process."""
        return self.distribution.words() if self.distribution else {"ranks": 1}


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """The task's source: its module or file name, the SHA-256 of its text, and the text.

    The text is that of the module that defines the recipe, which may differ from the task's. ``quality`` and ``data``
    are digests of what the task fixes for all recipes: how a network is scored and how the data is loaded. ``modules``
    maps the user's own modules that the text imports to the SHA-256 of their files. All three are empty in older
    records.
    """

    name: str
    digest: str
    text: str
    quality: str = ""
    data: str = ""
    modules: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """The digest of the text and the modules that it imports; if it imports none, the digest of the text."""
        if not self.modules:
            return self.digest
        parts = [self.digest, *(f"{name} {digest}" for name, digest in sorted(self.modules.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def source_of_text(name: str, text: str, **more: Any) -> Source:
    """``text`` with its digest, without what looks like a key: quoted passwords, tokens, addresses with a password.

    Nor has an address the key that it asks with.
    """
    for pattern, instead in (_PASSWORD, _QUERY, _BEARER, _PAIR, _IN_THREE, _IN_QUOTES, _TOKEN):
        text = pattern.sub(instead, text)
    return Source(name, hashlib.sha256(text.encode()).hexdigest(), text, **more)


class Header(Struct, frozen=True, tag="header", tag_field="kind"):
    """The first line: everything that was decided before the run began.

    ``planned_effect`` is set for runs of ``run --until-clear``: the relative difference that the looks were planned
    for, which determines how wide the intervals must be. ``planned_runs`` is how many runs of each arm the command
    asked for, and ``replaced`` how many ended runs of this arm and seed it has replaced so far. They reveal runs that
    were added after a look, and results that were repeated until one pleased. Both are 0 if unknown. ``chosen`` has the
    settings that differ from the recipe's defaults, and ``recipe`` if it is not the task's first, for labels; ``None``
    in older records and for programs.
    """

    schema: int
    id: str
    key: str
    seed: Count
    started: str
    specification: Specification
    environment: dict[str, Any]
    source: Source
    version: str
    planned_effect: float | None = None
    planned_runs: Count = 0
    replaced: Count = 0
    chosen: list[str] | None = None


class Evaluation(Struct, frozen=True, tag="evaluation", tag_field="kind"):
    """One evaluation on held-out data. ``t_ns`` and ``phases_ns`` count from the run's start and include it.

    ``step``, ``epoch`` and ``samples`` say how much training came before; ``loss`` is the mean training loss since the
    previous evaluation, ``None`` if there was no step.
    """

    t_ns: Count
    step: Count
    epoch: float
    samples: Count
    quality: dict[str, float]
    loss: float | None
    phases_ns: dict[str, Count]


class Samples(Struct, frozen=True, tag="samples", tag_field="kind"):
    """A block of raw values of one quantity, in order, such as ``step_time`` in ``ns``."""

    name: str
    unit: str
    values: Sequence[int | float]


class RankSamples(Struct, frozen=True, tag="rank", tag_field="kind"):
    """A block of raw values that one rank observed, in order, such as ``communicate_time`` in ``ns``."""

    rank: Count
    name: str
    unit: str
    values: Sequence[int | float]


class Measurement(Struct, frozen=True, tag="measurement", tag_field="kind"):
    """The reading of a meter: a value with its method, or the reason why there is none."""

    name: str
    unit: str
    value: float | None
    method: str | None
    reason: str | None = None


Between = tuple[int, int]
"""The earliest and latest possible time of a moment, in nanoseconds."""


class Sight(Struct, frozen=True, array_like=True):
    """One moment of a run on several clocks, each with its earliest and latest possible time.

    ``evaluations`` counts the evaluations before it. ``run_ns`` is the run's own clock, ``parent_ns`` that of the
    parent process, ``second_ns`` another clock read in the run's process, ``uptime_ns`` the kernel's; each has its own
    zero.
    """

    evaluations: Count
    run_ns: Between
    parent_ns: Between | None
    second_ns: Between
    uptime_ns: Between | None


class Witness(Struct, frozen=True):
    """Readings of other clocks than the run's: at its start, at some of its evaluations, and at its end.

    ``absent`` says why its parent gave no answer; ``slept_ns`` is how long the machine was suspended in between.
    """

    sights: list[Sight]
    absent: str = ""
    slept_ns: Count = 0


class End(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line. ``done`` means that the run ended by itself, whether or not it reached the target.

    ``quality`` holds the final qualities by split, including ``test``. ``error`` is the type and place of a failure,
    never its text (:func:`fault`), or why the run diverged. ``suspect`` lists the reasons to doubt the run (phases that
    do not sum, load from elsewhere). ``stopped_by`` says why training ended. ``witness`` has the readings of other
    clocks, or is ``None``. ``before_ns`` is the part of ``t_ns`` that was on the clock when the process that wrote this
    began: the time of an earlier process up to its checkpoint, and the time lost since.
    """

    status: Literal["done", "failed"]
    t_ns: Count
    phases_ns: dict[str, Count]
    quality: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    suspect: list[str] = field(default_factory=list)
    environment_after: dict[str, Any] = field(default_factory=dict)
    dataset: DatasetFacts | None = None
    stopped_by: str | None = None
    witness: Witness | None = None
    before_ns: Count = 0


Event = Evaluation | Samples | RankSamples | Measurement | End


_ADDED = frozenset(
    {"budget_samples", "budget_j", "plateau", "distribution", "scored_by", "held_out"}
    | {"own", "source", "label", "layout", "generation"}
)
"""Fields that were added later: left out of the key if ``None``, so that keys of earlier runs stay the same."""


def key_of(spec: Struct) -> str:
    """SHA-256, as 64 hexadecimal digits, of the canonical JSON of ``spec`` (sorted keys, no white space).

    The clock is left out, because runs can be read on another clock without running again. Equal numbers are written
    alike (``1.0`` as ``1``), as in RFC 8785. Raises ``UsageError`` for a number that is not finite.
    """
    canonical = {
        name: _canonical(value)
        for name, value in msgspec.to_builtins(spec).items()
        if name != "clock" and not (value is None and name in _ADDED)
    }
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: object) -> object:
    if isinstance(value, dict):
        return {key: _canonical(each) for key, each in value.items()}
    if isinstance(value, float):
        if not math.isfinite(value):
            do = "give every setting, threshold and budget a finite value"
            raise UsageError("the key of a specification", f"a value in it is {value}", do)
        return int(value) if value.is_integer() else value
    return value


class _WithoutRecipes(ast.NodeTransformer):
    """Removes the functions decorated as recipes, and docstrings, from a module."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:  # ast prescribes the name
        calls = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
        if any(isinstance(each, ast.Attribute) and each.attr == "recipe" for each in calls):
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


@lru_cache(maxsize=256)
def around_recipes(text: str) -> str:
    """SHA-256 of a task's source without its recipe functions, comments and docstrings."""
    try:
        rest = ast.dump(_WithoutRecipes().visit(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        rest = text
    return hashlib.sha256(rest.encode("utf-8", "backslashreplace")).hexdigest()


S = TypeVar("S", bound=msgspec.Struct)

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = tuple(Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib", "purelib", "platlib"))

_HIDDEN = "..."
_Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
# Tokens, by the prefixes of their issuers.
_TOKEN: _Rule = (
    re.compile(
        r"\b(?:hf_\w{16,}|gh[a-z]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|xox[a-z]-[\w-]{10,}"
        r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?)"
    ),
    _HIDDEN,
)
_PASSWORD: _Rule = (re.compile(r"(://[^\s/:@'\"]*:)[^\s/@'\"]+@"), rf"\1{_HIDDEN}@")
_QUERY: _Rule = (
    re.compile(
        r"([?&][\w-]*(?:token|key|secret|sig|signature|passw(?:or)?d|credential)=)[^\s&#'\"]{6,}", re.IGNORECASE
    ),
    rf"\1{_HIDDEN}",
)
# In a program, names such as `tokens` usually mean something else, so only quoted values count.
_NAMED = (
    r"(?:(?:\btoken|(?:auth|api|access|hf|hub|wandb|refresh)_?token|secret|passw(?:or)?d|passphrase|(?:\b|_)pwd?"
    r"|credential|authorization|(?:api|access|private|auth)[_-]?key)['\"]?\]?\s*(?::[\w .|\[\],]*=|[=:])\s*"
)
_IN_QUOTES: _Rule = (
    re.compile(
        rf"({_NAMED}|(?:\b|_)key\s*=\s*(?=['\"]{{1,3}}[\w-]{{20,}}))[rbu]{{0,2}}(?:'{{3}}|\"{{3}}|['\"]))[^\s'\"]{{6,}}"
        r"(?=['\"])",
        re.IGNORECASE,
    ),
    rf"\1{_HIDDEN}",
)
_IN_THREE: _Rule = (
    re.compile(rf"({_NAMED})[rbu]{{0,2}}('{{3}}|\"{{3}}))(?!\2).+?(?=\2)", re.IGNORECASE | re.DOTALL),
    rf"\1{_HIDDEN}",
)
# What is sent as a header, and the pair that signs in.
_BEARER: _Rule = (
    re.compile(
        r"\b((?i:bearer)\s+|(?i:basic)\s+(?=[^\s'\"]*(?:\d|=|[a-z][A-Z])))[\w+/.~=-]{8,}(?=['\"])",
    ),
    rf"\1{_HIDDEN}",
)
_PAIR: _Rule = (
    re.compile(r"((?:\bauth\s*=\s*|\b\w*Auth)\(\s*(['\"])[^'\"\n]*\2\s*,\s*(['\"]))[^\s'\"]{4,}(?=\3)"),
    rf"\1{_HIDDEN}",
)
# The number of tokens and the tokenizer are not secret.
_SECRET = (
    r"(?:token(?!s|i[sz])|secret|passw(?:or)?d|passphrase|credential|authorization|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|signature)"
)
_RULES: tuple[_Rule, ...] = (
    # A URL: only its scheme is kept.
    (re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\"<>)\]]+", re.IGNORECASE), rf"\1://{_HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/._~=-]{6,}", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (
        re.compile(
            rf"([\w-]*{_SECRET}[\w-]*)(['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]+",
            re.IGNORECASE,
        ),
        rf"\1\2{_HIDDEN}",
    ),
    (
        re.compile(rf"((?<!\S)--?[\w-]*{_SECRET}[\w-]*\s+)(?!-)(?:'[^']*'|\"[^\"]*\"|\S+)", re.IGNORECASE),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(r"((?<!\S)(?:-u|--user)[\s=]+[\w.@+-]+:)\S+"), rf"\1{_HIDDEN}"),
    _TOKEN,
    (re.compile(r"\b((?:GPU|MIG)-)[0-9a-f]{8}-[0-9a-f-]{8,}", re.IGNORECASE), rf"\1{_HIDDEN}"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), _HIDDEN),
    (re.compile(r"(?<![\w/])(?:/(?:home|Users)/[^/\s'\":,;)]+|/root)(?=[/\s'\":,;)]|$)"), "~"),
    (re.compile(r"\b[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s'\":,;)]+"), "~"),
    # A machine's address with its port, or after a word for it; without a port it may be a version.
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}\b"), _HIDDEN),
    (re.compile(r"\b(host|hostname|address|rendezvous)(\s*[=:]\s*)[^\s,\]]+", re.IGNORECASE), rf"\1\2{_HIDDEN}"),
)


def redact(text: str) -> str:
    """``text`` without URLs, tokens, home folders, and the name of this machine."""
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    for known, instead in ((str(_home()), "~"), (socket.gethostname(), _HIDDEN)):
        # A short name may be an ordinary word.
        if len(known) > 4:
            text = re.sub(rf"(?<![\w.-]){re.escape(known)}(?![\w-])", instead, text)
    return text


_SECRET_NAME = re.compile(
    r"(?:.*_)?(?:secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|auth)_?key)(?:_.*)?", re.IGNORECASE
)
_TOKEN_NAME = re.compile(r"(?:.*_)?(?:token|key)", re.IGNORECASE)
_PLAIN_WORDS = re.compile(r"[a-z _-]*|[\[<].*[\]>]")


def secret_settings(settings: Mapping[str, object]) -> list[str]:
    """The names of the settings that hold a secret, judging by their names or the form of their values.

    A token may also be a part of a text (``token="mean"``, ``"[MASK]"``), so plain words do not count.
    """
    found = []
    for name, value in settings.items():
        if not isinstance(value, str) or not value:
            continue
        in_form = _TOKEN[0].search(value) or _PASSWORD[0].search(value) or _QUERY[0].search(value)
        token = _TOKEN_NAME.fullmatch(name) and len(value) >= _SHORTEST_TOKEN and not _PLAIN_WORDS.fullmatch(value)
        if in_form or token or _SECRET_NAME.fullmatch(name):
            found.append(name)
    return found


_SHORTEST_TOKEN = 8


def redacted(value: S) -> tuple[S, list[str]]:
    """``value`` with all texts redacted, and where something was removed: ``runs.0.error``."""
    places: list[str] = []
    plain = _each(msgspec.to_builtins(value, str_keys=True), "", places)
    return (msgspec.convert(plain, type(value)) if places else value), places


def _each(value: object, place: str, places: list[str]) -> object:
    if isinstance(value, str):
        kept = redact(value)
        if kept != value:
            places.append(place)
        return kept
    if isinstance(value, dict):
        return {key: _each(each, f"{place}.{key}".lstrip("."), places) for key, each in value.items()}
    if isinstance(value, list):
        return [_each(each, f"{place}.{at}", places) for at, each in enumerate(value)]
    return value


def fault(error: BaseException, file: Path | None = None) -> str:
    """The type and place of the exception that ended a run: ``ValueError in mine.py, line 12, in small``.

    Of an exception and its causes, it describes the first one raised that has a frame in the user's code: the last
    frame in ``file``, else the last in any file that is neither ours nor installed. If none has such a frame, it is the
    last frame of the first one raised. File names are without their folders.
    """
    causes = [error]
    while (cause := causes[0].__cause__) is not None:
        causes.insert(0, cause)
    for each in causes:
        frames = traceback.extract_tb(each.__traceback__)
        own = [frame for frame in frames if file is not None and Path(frame.filename).resolve() == file.resolve()]
        if users := own or [frame for frame in frames if not _installed(frame.filename)]:
            return _at(each, users[-1])
    frames = traceback.extract_tb(causes[0].__traceback__)
    return _at(causes[0], frames[-1]) if frames else type(causes[0]).__name__


def _at(error: BaseException, frame: traceback.FrameSummary) -> str:
    return f"{type(error).__name__} in {_short(frame.filename)}, line {frame.lineno}, in {frame.name}"


_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)


def outline(error: str) -> str:
    """The error of a record as :func:`fault` would give it: older versions stored a full traceback."""
    _, traced, rest = error.rpartition("Traceback (most recent call last):")
    if not traced:
        return redact(error)
    frames, raised = _FRAME.findall(rest), _RAISED.findall(rest)
    kind = raised[-1].rpartition(".")[2] if raised else "an exception"
    if not frames:
        return kind
    file, line, name = next((each for each in reversed(frames) if not _installed(each[0])), frames[-1])
    return f"{kind} in {_short(file)}, line {line}, in {name}"


def _installed(filename: str) -> bool:
    path = Path(filename).resolve()
    return filename.startswith("<") or any(path.is_relative_to(each) for each in (_PACKAGE, *_INSTALLED))


def _short(filename: str) -> str:
    """The path relative to its package, which says more than the file name; outside of packages the file name."""
    path = Path(filename).resolve()
    for each in (_PACKAGE.parent, *reversed(_INSTALLED)):
        if path.is_relative_to(each):
            return str(path.relative_to(each))
    return path.name


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return ""
