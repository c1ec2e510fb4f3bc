"""A local web server that misbehaves on request, and an environment without other places."""

from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from tests.training.datasets.served import CONTENT, SHA256

from levelbench.training.datasets.download import fetch
from levelbench.training.datasets.places import DataFile


class Server:
    """Serves ``files`` by path. Request k is answered by ``script[k]``, later ones by ``whole``."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.script: list[Callable[[BaseHTTPRequestHandler, bytes], None]] = []
        self.ranges: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.ranges.append(self.headers.get("Range"))
                behaviour = server.script.pop(0) if server.script else whole
                behaviour(self, server.files.get(self.path, b""))

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # a client that goes away is part of the plan
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def _send(handler: BaseHTTPRequestHandler, code: int, body: bytes, **headers: object) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()


def whole(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """As a well-behaved server, including ranges."""
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    if not content:
        _send(handler, 404, b"", Content_Length=0)
    elif asked is None:
        _send(handler, 200, content, Content_Length=len(content))
    elif int(asked[1]) >= len(content):
        _send(handler, 416, b"", Content_Range=f"bytes */{len(content)}", Content_Length=0)
    else:
        body = content[int(asked[1]) :]
        where = f"bytes {asked[1]}-{len(content) - 1}/{len(content)}"
        _send(handler, 206, body, Content_Length=len(body), Content_Range=where)


class Behaviours:
    """The ways to answer a request."""

    whole = staticmethod(whole)

    @staticmethod
    def ignores_range(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, content, Content_Length=len(content))

    @staticmethod
    def truncates(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, content[: len(content) // 2], Content_Length=len(content))

    @staticmethod
    def resets(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, content[: len(content) // 2], Content_Length=len(content))
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    @staticmethod
    def hangs_up(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def corrupts(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, bytes([content[0] ^ 1]) + content[1:], Content_Length=len(content))

    @staticmethod
    def sends_more(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, content + b"more", Content_Length=len(content))

    @staticmethod
    def sends_more_without_length(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, content + b"more")

    @staticmethod
    def sends_without_length(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        _send(handler, 200, content)

    @staticmethod
    def another_range(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        where = f"bytes 0-{len(content) - 1}/{len(content)}"
        _send(handler, 206, content, Content_Length=len(content), Content_Range=where)

    @staticmethod
    def answers(code: int) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
        return lambda handler, _: _send(handler, code, b"no", Content_Length=2)

    @staticmethod
    def redirects(to: str) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
        return lambda handler, _: _send(handler, 302, b"", Location=to, Content_Length=0)

    @staticmethod
    def stalls(until: threading.Event) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
        def half(handler: BaseHTTPRequestHandler, content: bytes) -> None:
            _send(handler, 200, content[: len(content) // 2], Content_Length=len(content))
            until.wait()

        return half


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def behave() -> type[Behaviours]:
    return Behaviours


@pytest.fixture(autouse=True)
def _nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    mirrors = ("LEVELBENCH_FASHION_MNIST_URL", "LEVELBENCH_CIFAR10_URL", "LEVELBENCH_CIFAR100_URL")
    for name in ("LEVELBENCH_DATA", "LEVELBENCH_OFFLINE", "XDG_CACHE_HOME", *mirrors):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def get(server, tmp_path):
    """Fetch CONTENT from the server to tmp_path/file, without waiting between attempts."""
    server.files["/file"] = CONTENT
    waits = []

    def call(path=tmp_path / "file", sha256=SHA256, **options):
        return fetch(f"{server.url}/file", path, sha256, sleep=waits.append, **options)

    call.path, call.part, call.waits = tmp_path / "file", tmp_path / "file.part", waits
    return call


@pytest.fixture
def encode():
    """``encode(pixels, "PNG")``: the file of pixels (h, w) or (h, w, channels) uint8; ``how`` goes to Pillow."""
    image = pytest.importorskip("PIL.Image")

    def made(pixels, form="PNG", mode=None, **how):
        stored = io.BytesIO()
        picture = image.fromarray(np.asarray(pixels))
        (picture.convert(mode) if mode else picture).save(stored, form, **how)
        return stored.getvalue()

    return made


@pytest.fixture
def noise():
    def made(height, width, seed=0):
        return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)

    return made


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")


class Sword:
    """Writes modules in SWORD's format."""

    def testament(self, folder, name, books):
        """``books``: for each a list of entries, which make a block; the two entries of the testament come first."""
        folder.mkdir(parents=True, exist_ok=True)
        blocks, entries, packed = [], [struct.pack("<IIH", 0, 0, 0)] * 2, b""
        for number, texts in enumerate(books):
            start = 0
            for text in texts:
                entries.append(struct.pack("<IIH", number, start, len(text.encode())))
                start += len(text.encode())
            squeezed = zlib.compress("".join(texts).encode())
            blocks.append(struct.pack("<III", len(packed), len(squeezed), start))
            packed += squeezed
        for suffix, content in ((".bzs", b"".join(blocks)), (".bzv", b"".join(entries)), (".bzz", packed)):
            (folder / f"{name}{suffix}").write_bytes(content)

    def chapter(self, name, verses):
        """The entries of a chapter: its heading, then its verses, the last of which ends it."""
        *others, last = verses
        return [f'<chapter n="1" osisID="{name}" sID="{name}"/>', *others, f'{last}<chapter eID="{name}"/>']

    def bible(self, folder, chapters):
        """Both testaments: the chapters ``Matt.*`` in the new one, the others in the old one."""
        for testament in ("ot", "nt"):
            book = ['<div type="book"/><title>A book</title>']
            for name, verses in chapters.items():
                if name.startswith("Matt") == (testament == "nt"):
                    book += self.chapter(name, verses)
            self.testament(folder, testament, [book])


@pytest.fixture
def sword():
    return Sword()


COLOURS = ("red", "blue", "green", "black", "white", "brown")
THINGS = ("box", "door", "ship", "house", "hat", "cup", "tree", "wall")


def made_squad(articles, seed):
    """Questions on the colours of things, in SQuAD's format, with the answer somewhere in the paragraph."""
    data, number = [], seed * 1000
    for article in range(articles):
        number += 1
        state = zlib.crc32(f"{seed}.{article}".encode())
        things = [THINGS[(state + at * 3) % len(THINGS)] for at in range(3)]
        colours = [COLOURS[(state // (7**at)) % len(COLOURS)] for at in range(3)]
        context = " ".join(f"The {thing} is {colour}." for thing, colour in zip(things, colours, strict=True))
        qas = []
        for thing, colour in zip(things, colours, strict=True):
            start = context.index(f"{thing} is {colour}") + len(f"{thing} is ")
            answers = [{"text": colour, "answer_start": start}]
            qas.append({"id": f"{number}-{thing}", "question": f"Which colour is the {thing}?", "answers": answers})
        data.append({"title": f"Article {number}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "1.1", "data": data}


@pytest.fixture
def squad_files(tmp_path):
    """Writes both files; returns what a ``Squad`` needs to know about them."""

    def write(training=40, test=10):
        files = []
        for name, content in (("train-v1.1.json", made_squad(training, 1)), ("dev-v1.1.json", made_squad(test, 2))):
            text = json.dumps(content).encode()
            (tmp_path / name).write_bytes(text)
            files.append(DataFile(name, hashlib.sha256(text).hexdigest()))
        return files

    return write
