"""Whatever a server announces or answers, no more is believed, read or followed than should be."""

from __future__ import annotations

import pytest
from tests.training.datasets.served import CONTENT, HALF

from levelbench.errors import DataError, MissingError


def test_a_server_that_ignores_the_range_is_read_from_the_beginning(get, server, behave):
    server.script = [behave.truncates, behave.ignores_range]
    assert get().read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_an_answer_with_another_range_is_not_pasted_in(get, server, behave):
    server.script = [behave.truncates, behave.another_range]
    with pytest.raises(MissingError, match="another range than the one asked for"):
        get(attempts=2)
    assert not get.part.exists()
    assert get().read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", None]


def test_nothing_of_a_longer_part_stays_behind_when_the_range_is_ignored(get, server, behave):
    get.part.write_bytes(CONTENT + b"more")
    server.script = [behave.ignores_range]
    assert get().read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_a_file_that_is_announced_as_too_large_is_not_begun(get):
    seen = []
    with pytest.raises(DataError, match="more than the 1,000 bytes"):
        get(most_bytes=1000, progress=lambda done, total: seen.append(done))
    assert seen == []


def test_bytes_beyond_the_announced_length_are_not_read(get, server, behave):
    server.script = [behave.sends_more]
    assert get().read_bytes() == CONTENT


def test_a_length_that_nobody_announced_is_no_obstacle(get, server, behave):
    server.script = [behave.sends_without_length]
    assert get().read_bytes() == CONTENT


def test_too_many_bytes_without_an_announced_length_fail_the_checksum(get, server, behave):
    server.script = [behave.sends_more_without_length]
    with pytest.raises(DataError, match="another SHA-256"):
        get()


@pytest.mark.parametrize("behaviour", ["whole", "sends_without_length"])
def test_more_bytes_than_allowed_stop_the_download(get, server, behave, behaviour):
    server.script = [getattr(behave, behaviour)]
    with pytest.raises(DataError, match="more than the 1,000 bytes"):
        get(most_bytes=1000)
    assert not get.path.exists()
    assert not get.part.exists()


def test_a_redirect_is_followed_and_keeps_the_range(get, server, behave):
    server.script = [behave.truncates, behave.redirects("/file")]
    assert get().read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF}-"]


def test_a_circle_of_redirects_ends(get, server, behave):
    server.script = [behave.redirects("/file")] * 50
    with pytest.raises(MissingError, match="answered 302"):
        get()


def test_a_redirect_to_no_address_is_missing(get, server, behave):
    server.script = [behave.redirects("http://[")]
    with pytest.raises(MissingError, match="leads to no address"):
        get()


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/file"])
def test_a_redirect_out_of_http_is_refused(get, server, behave, target):
    server.script = [behave.redirects(target)]
    with pytest.raises(MissingError):
        get(attempts=1)
    assert not get.path.exists()


@pytest.mark.parametrize("length", ["9" * 5000, "\u0663", "-1"])
def test_a_length_that_is_none_is_not_believed(get, server, length):
    def announces(handler, content):
        handler.send_response(200)
        handler._headers_buffer.append(f"Content-Length: {length}\r\n".encode())
        handler.end_headers()
        handler.wfile.write(content)

    server.script = [announces]
    assert get().read_bytes() == CONTENT


def test_a_range_of_thousands_of_digits_is_another_range(get, server, behave):
    def announces(handler, content):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {HALF}-{'9' * 5000}/*")
        handler.end_headers()

    server.script = [behave.truncates, announces]
    with pytest.raises(MissingError, match="another range"):
        get(attempts=2)
