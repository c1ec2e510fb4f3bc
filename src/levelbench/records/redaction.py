"""What a record may hold of texts that come from elsewhere: never an address with its key, a token or a home folder.

An exception's text may quote anything that a program had in hand. Of one that ends a run a record keeps its type and
its place (:func:`fault`); a sentence that is worth keeping, as a framework's reason why an operator does not run, goes
through :func:`redact`. Whoever is at the terminal sees the whole text.
"""

from __future__ import annotations

import re
import socket
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

__all__ = ["fault", "outline", "redact", "redacted"]

S = TypeVar("S", bound=msgspec.Struct)

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = tuple(Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib", "purelib", "platlib"))

_HIDDEN = "..."
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # An address: who is asked, and nothing of what is asked for or by whom.
    (re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\"<>)\]]+", re.IGNORECASE), rf"\1://{_HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/._~=-]{6,}", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (
        re.compile(
            r"([\w-]*(?:token|secret|passw(?:or)?d|passphrase|credential|authorization|api[_-]?key|access[_-]?key"
            r"|private[_-]?key|signature)[\w-]*)(['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]+",
            re.IGNORECASE,
        ),
        rf"\1\2{_HIDDEN}",
    ),
    # Tokens by the form that their issuers give them.
    (
        re.compile(
            r"\b(?:hf_\w{16,}|gh[a-z]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|xox[a-z]-[\w-]{10,}"
            r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?)"
        ),
        _HIDDEN,
    ),
    (re.compile(r"\b((?:GPU|MIG)-)[0-9a-f]{8}-[0-9a-f-]{8,}", re.IGNORECASE), rf"\1{_HIDDEN}"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), _HIDDEN),
    (re.compile(r"(?<![\w/])(?:/(?:home|Users)/[^/\s'\":,;)]+|/root)(?=[/\s'\":,;)]|$)"), "~"),
    (re.compile(r"\b[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s'\":,;)]+"), "~"),
    # An address of a machine, with its port, or one that stands by a word for it; a version has no port.
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}\b"), _HIDDEN),
    (re.compile(r"\b(host|hostname|address|rendezvous)(\s*[=:]\s*)[^\s,\]]+", re.IGNORECASE), rf"\1\2{_HIDDEN}"),
)


def redact(text: str) -> str:
    """``text`` without addresses and what they ask for, tokens, home folders, and the name of this machine."""
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    for known, instead in ((str(_home()), "~"), (socket.gethostname(), _HIDDEN)):
        # A short name may be a word of any sentence.
        if len(known) > 4:
            text = re.sub(rf"(?<![\w.-]){re.escape(known)}(?![\w-])", instead, text)
    return text


def redacted(value: S) -> tuple[S, list[str]]:
    """``value`` with all of its texts redacted, and where something was taken out: ``runs.0.error``."""
    places: list[str] = []
    plain = _each(msgspec.to_builtins(value, str_keys=True), "", places)
    return (msgspec.convert(plain, type(value)) if places else value), places


def _each(value: Any, place: str, places: list[str]) -> Any:
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
    """The type of what ended a run, and where: ``ValueError in mine.py, line 12, in small``.

    It is that of the first cause. Where is the last frame in ``file``, the user's own; else in any file that is neither
    ours nor installed; else the last one of all. Names of files stand without their folders.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    kind = type(error).__name__
    if not frames:
        return kind
    own = [each for each in frames if file is not None and Path(each.filename).resolve() == file.resolve()]
    users = [each for each in frames if not _installed(each.filename)]
    frame = (own or users or frames)[-1]
    return f"{kind} in {_short(frame.filename)}, line {frame.lineno}, in {frame.name}"


_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)


def outline(error: str) -> str:
    """The error of a record as :func:`fault` would have it, where an older version wrote down a whole traceback."""
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
    """Within a package the path below it, which says more than the name of the file alone."""
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
