"""A page as a browser reads it, and what is shown on it."""

from html.parser import HTMLParser

import pytest

from levelbench.measure.verdict import verdict
from levelbench.report import run_figures as figures

VOID = {"meta", "br", "wbr"}
PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "</style></svg></title><iframe src=//e.example>",
    "${7*7}{{7*7}}$x^2$\\frac",
    "\x00\x1b[31m\u202eevil\ud800",
    'style="font-size: 3px; font-family: a',
    "&lt;script&gt;&#60;",
    "😀 任务 \u202e",
]


class Page(HTMLParser):
    """Reads a page as a browser would: elements with their attributes, balance, and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.text, self.unbalanced = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        if not self.open or self.open.pop() != name:
            self.unbalanced.append(name)

    def handle_data(self, data):
        self.text.append(data)

    def all(self, name):
        return [attributes for each, attributes in self.elements if each == name]


def compared(groups):
    (a, _), (b, _) = groups
    return [(a.label, b.label, verdict(a.times(), b.times()))]


needs_matplotlib = pytest.mark.skipif(not figures.can_draw(), reason="matplotlib is not installed (extra: plot)")
