"""Throws mutated files at every reader of other people's files: none may crash, hang or take what it should refuse.

A reader may answer with a value or with one of our errors; anything else is a crash, and its input is
saved. Mutations are drawn from a seed, so a crash comes back with the same arguments.

    python benchmarks/fuzz_readers.py --count 100000
    python benchmarks/fuzz_readers.py --count 2000 --only dawnbench-tsv --seed 3 --save found
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path

from fuzz_targets import Reader, readers
from levelbench.errors import LevelbenchError

SLOWEST_S = 2.0
"""A file of a few kilobytes that takes longer counts as a hang."""

TOKENS = [
    *(
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"1e-999",
        b"9" * 400,
        b"0",
        b"-0.0",
        b"null",
        b"true",
        b'""',
        b"{}",
        b"[]",
    ),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\t", b",", b'"', b"\\ud800", "\u202e".encode(), b"'"),
    *(
        b"[" * 5000,
        b'{"a":' * 3000,
        b"../../etc",
        b"=1+1",
        b"\x1b[2J",
        b"</script>",
        b"1_000",
        b"0.5",
        b"94.1",
        b"0x10",
        b"\xc2\xa0",
    ),
]
VALUES: list[object] = [
    *(None, True, 0, -1, 2**63, 10**40, 1e308, -1e308, 5e-324, "", "\x00", "x" * 5000, [], {}, [[]], {"": None}),
    *(
        [None] * 3,
        {"a": {"b": {"c": [1]}}},
        "nan",
        "1",
        float("nan"),
        float("inf"),
        "2020-02-30",
        "\u202e",
        ["x"] * 600,
    ),
]


def mutated(good: bytes, draw: random.Random) -> bytes:
    """One to four mutations of ``good``: of its values where it is JSON, of its bytes anywhere; or bytes of nothing."""
    if draw.random() < 0.02:
        return draw.randbytes(draw.randrange(200))
    data = good
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        data = (_value if draw.random() < 0.4 else _byte)(data, draw)
    return data


def _byte(data: bytes, draw: random.Random) -> bytes:
    at, to = draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)
    return draw.choice(
        [
            lambda: data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :],
            lambda: data[:at] + draw.choice(TOKENS) + data[at:],
            lambda: data[:at] + draw.choice(TOKENS) + data[min(len(data), at + draw.randint(1, 12)) :],
            lambda: data[: min(at, to)] + data[max(at, to) :],
            lambda: data[:at] + data[min(at, to) : max(at, to)] + data[at:],
            lambda: data[:at],
            lambda: data.replace(b"\n", b"\r\n") if draw.random() < 0.5 else b"\xef\xbb\xbf" + data,
        ]
    )()


def _value(data: bytes, draw: random.Random) -> bytes:
    """One value of JSON replaced, removed or doubled; other formats get a token in place of one of their words."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        words = data.split(b" ") if b"\t" not in data else data.split(b"\t")
        words[draw.randrange(len(words))] = draw.choice(TOKENS)
        return (b" " if b"\t" not in data else b"\t").join(words)
    places: list[tuple[dict | list, str | int]] = []
    pending = [found]
    while pending:
        node = pending.pop()
        if isinstance(node, dict | list):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            places += [(node, key) for key in keys]
            pending += [node[key] for key in keys]
    if places:
        node, key = draw.choice(places)
        if draw.random() < 0.2:
            del node[key]  # type: ignore[arg-type]
        else:
            node[key] = draw.choice([*VALUES, found if draw.random() < 0.1 else 1])  # type: ignore[index]
    try:
        return json.dumps(found).encode()
    except (ValueError, RecursionError):
        return data


def feed(reader: Reader, data: bytes, save: Path | None, at: int) -> None:
    reader.path.write_bytes(data)
    began = time.perf_counter()
    try:
        reader.read()
        reader.accepted += 1
    except LevelbenchError:
        reader.refused += 1
    except Exception as error:  # noqa: BLE001  # what a crash is, is the question
        reader.crashed += 1
        print(f"CRASH {reader.name} input {at}: {type(error).__name__}: {error}"[:300])
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"{reader.name}-{at}").write_bytes(data)
            (save / f"{reader.name}-{at}.txt").write_text(traceback.format_exc())
    reader.slowest_s = max(reader.slowest_s, time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10_000, help="inputs over all readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers whose name holds this pattern")
    parser.add_argument("--save", type=Path, help="folder for the inputs that crash")
    given = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        chosen = [each for each in readers(Path(name)) if re.search(given.only, each.name)]
        for reader in chosen:
            reader.read()  # a good file is read, or the mutations would say nothing
        began = time.perf_counter()
        for at in range(given.count):
            reader = chosen[at % len(chosen)]
            draw = random.Random(f"{given.seed} {reader.name} {at}")
            feed(reader, mutated(reader.good, draw), given.save, at)
            reader.path.write_bytes(reader.good)
    for reader in chosen:
        counts = f"{reader.accepted:7} read {reader.refused:7} refused {reader.crashed:4} crashed"
        print(f"{reader.name:32} {counts}  slowest {reader.slowest_s * 1000:8.1f} ms")
    crashed, slow = sum(each.crashed for each in chosen), [each.name for each in chosen if each.slowest_s > SLOWEST_S]
    print(f"{given.count} inputs in {time.perf_counter() - began:.0f} s: {crashed} crashes, {len(slow)} readers hung")
    return 1 if crashed or slow else 0


if __name__ == "__main__":
    sys.exit(main())
