import hashlib
import json
import struct
import zlib

import pytest

from levelbench.training.datasets.places import DataFile


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")


class Sword:
    """Writes modules as SWORD keeps them."""

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
    """Questions on the colours of things, in SQuAD's format: the answer stands somewhere in the paragraph."""
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
    """Writes both files; what a ``Squad`` needs to know of them."""

    def write(training=40, test=10):
        files = []
        for name, content in (("train-v1.1.json", made_squad(training, 1)), ("dev-v1.1.json", made_squad(test, 2))):
            text = json.dumps(content).encode()
            (tmp_path / name).write_bytes(text)
            files.append(DataFile(name, hashlib.sha256(text).hexdigest()))
        return files

    return write
