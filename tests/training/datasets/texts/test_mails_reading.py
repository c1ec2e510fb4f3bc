"""Any bytes are read as a mail, for its subject and the text that a reader sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.datasets.texts.corpus import mail

from levelbench.training.datasets import mails as formats
from levelbench.training.datasets.mails import read_mail

PLAIN = b"From: a@b.example\nSubject: Hello\nX-Spam: yes\n\nCome  and\nsee.\n"


def test_subject_and_text_are_read_and_other_headers_are_not():
    read = read_mail(PLAIN)
    assert (read.subject, read.text) == ("Hello", "Come and see.")


def test_html_is_read_for_its_text_and_what_a_browser_hides_is_not():
    body = "<head><title>T</title></head><script>steal()</script><style>p{}</style><p>Buy&nbsp;<b>now</b>&amp;save</p>"
    assert read_mail(mail(body=body, kind="text/html")).text == "Buy now &save"


def test_all_text_parts_are_read_and_attachments_are_not():
    parts = "".join(
        f"--cut\nContent-Type: {kind}\nContent-Transfer-Encoding: {encoding}\n\n{content}\n"
        for kind, encoding, content in (
            ("text/plain", "7bit", "first"),
            ("text/html", "base64", "PGI+c2Vjb25kPC9iPg=="),
            ("application/octet-stream", "base64", "AAECAw=="),
        )
    )
    read = read_mail(mail(kind='multipart/mixed; boundary="cut"', body=f"{parts}--cut--\n"))
    assert read.text == "first second"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"Content-Type: text/plain; charset=iso-8859-1\n\ncaf\xe9", "café"),
        (b"Content-Type: text/plain; charset=utf-8\n\ncaf\xe9", "café"),
        (b"Content-Type: text/plain; charset=made-up\n\ncaf\xc3\xa9", "café"),
        (b"\n\ncaf\xe9", "café"),
        (b"Content-Type: text/plain; charset=rot13\n\nabc", "abc"),
    ],
)
def test_a_wrong_or_unknown_encoding_is_no_error(content, text):
    assert read_mail(content).text == text


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        (b"=?iso-8859-1?q?caf=E9?=", "café"),
        (b"=?made-up?q?abc?=", "abc"),
        (b"=?utf-8?b?not base64?=", "=?utf-8?b?not base64?="),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_a_subject_is_decoded_whatever_it_claims(header, subject):
    assert read_mail(b"Subject: " + header + b"\n\nx").subject == subject


@given(st.binary(max_size=300))
def test_any_bytes_are_a_mail(content):
    assert isinstance(read_mail(content).text, str)
    assert isinstance(read_mail(b"Subject: " + content + b"\nContent-Type: text/html\n\n" + content).subject, str)


def test_any_html_is_read_to_its_end():
    for body in ("<![if x]>a", "<!DOCTYPE [<!ELEMENT", "<!-- ", "&#xFFFFFFFF;", "<a href='", "<![CDATA[x]]>"):
        assert isinstance(read_mail(mail(body=body, kind="text/html")).text, str)


def nested(depth):
    """Multiparts in each other."""
    heads = [f'Content-Type: multipart/mixed; boundary="b{at}"\n\n--b{at}\n' for at in range(depth)]
    return f"Subject: deep\n{''.join(heads)}\nx".encode()


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (nested(1200), ("deep", None)),
        (b"Subject: a\nContent-Type: text/plain; charset*0=a; charset*=b\n\nx", ("a", None)),
        (b"Subject: a\nContent-Type: text/plain; charset*=x%00y''abc\n\nx", ("a", "x")),
        (b"Subject: a\nContent-Type: text/plain; charset*" + b"9" * 5000 + b"=x\n\nx", ("a", None)),
        (b'Subject: a\nContent-Type: text/plain; charset="a\0b"\n\ncaf\xc3\xa9', ("a", "café")),
    ],
)
def test_what_pythons_parser_gives_up_on_is_no_error(content, read):
    found = read_mail(content)
    assert found.subject == read[0]
    assert read[1] in {None, found.text}


def test_encodings_that_are_slow_or_no_text_are_not_used():
    slow = b"Content-Type: text/plain; charset=punycode\n\n" + b"abc-" + b"k" * 240_000
    assert read_mail(slow).text == "abc-" + "k" * 240_000
    assert read_mail(b"Subject: =?idna?q?xn--caf-dma?=\n\nx").subject == "xn--caf-dma"


@pytest.mark.parametrize("piece", ["<!--", "<![", "<a ", "</", "<b a='"])
def test_html_is_read_so_far_that_it_takes_no_long_time(piece):
    body = "seen " + piece * 30_000
    pieces = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats._Seen, "feed", lambda self, source: pieces.append(source))
        read_mail(mail(body=body, kind="text/html"))
    assert len(pieces[0]) <= formats.MOST_HTML
    assert pieces[0].count("<") == formats.MOST_OPEN
