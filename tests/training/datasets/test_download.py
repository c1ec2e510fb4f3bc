"""A download is resumed, retried and checked, and its file is complete or absent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from tests.training.datasets.served import CONTENT, HALF, SHA256

from levelbench.errors import DataError, MissingError, StoreError, UsageError
from levelbench.training.datasets import download
from levelbench.training.datasets.download import fetch, http_opener


def test_a_good_server_gives_the_file_in_one_request(get, server):
    assert get().read_bytes() == CONTENT
    assert not get.part.exists()
    assert server.ranges == [None]


def test_a_correct_file_is_not_requested_again(get, server):
    get()
    get()
    assert len(server.ranges) == 1


def test_a_wrong_file_under_the_final_name_is_replaced(get):
    get.path.write_bytes(b"old")
    assert get().read_bytes() == CONTENT


@pytest.mark.parametrize("failure", ["truncates", "resets"])
def test_a_server_that_dies_in_the_middle_is_resumed_where_it_stopped(get, server, behave, failure):
    server.script = [getattr(behave, failure)]
    assert get().read_bytes() == CONTENT
    assert server.ranges[0] is None
    # A reset may lose bytes in transit: the download then resumes from fewer, or from none.
    kept = int(server.ranges[1].removeprefix("bytes=").removesuffix("-")) if server.ranges[1] else 0
    assert kept == HALF if failure == "truncates" else kept <= HALF
    assert get.waits == [0.5]


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_temporary_server_error_is_retried(get, server, behave, code):
    server.script = [behave.answers(code), behave.answers(code)]
    assert get().read_bytes() == CONTENT
    assert get.waits == [0.5, 1.0]


@pytest.mark.parametrize("code", [204, 401, 403, 404, 410])
def test_a_refusal_is_not_retried(get, server, behave, code):
    server.script = [behave.answers(code)]
    with pytest.raises(MissingError, match=f"answered {code}"):
        get()
    assert len(server.ranges) == 1
    assert not get.path.exists()


def test_a_connection_closed_without_an_answer_is_retried(get, server, behave):
    server.script = [behave.hangs_up]
    assert get().read_bytes() == CONTENT


def test_attempts_are_bounded_and_the_part_stays_for_the_next_call(get, server, behave):
    server.script = [behave.truncates, *[behave.answers(500)] * 2]
    with pytest.raises(MissingError, match="3 attempts failed, the last because the server answered 500"):
        get(attempts=3)
    assert not get.path.exists()
    assert get.part.read_bytes() == CONTENT[:HALF]
    assert get().read_bytes() == CONTENT
    assert server.ranges[-1] == f"bytes={HALF}-"


def test_waits_double_up_to_eight_seconds(get, server, behave):
    server.script = [behave.answers(500)] * 7
    with pytest.raises(MissingError):
        get(attempts=7)
    assert get.waits == [0.5, 1, 2, 4, 8, 8]


def test_corrupt_content_is_an_error_and_leaves_nothing(get, server, behave):
    server.script = [behave.corrupts]
    with pytest.raises(DataError, match=r"SHA-256 is not the expected.*the part was removed"):
        get()
    assert not get.path.exists()
    assert not get.part.exists()


def test_a_stale_part_that_spoils_the_file_is_dropped_and_the_file_fetched_whole(get, server):
    get.part.write_bytes(b"another file")
    assert get().read_bytes() == CONTENT
    assert server.ranges == ["bytes=12-", None]


def test_a_part_longer_than_the_file_is_dropped(get, server):
    get.part.write_bytes(CONTENT + b"more")
    assert get().read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_whole_part_gets_its_name_without_a_request(get, server):
    get.part.write_bytes(CONTENT)
    assert get().read_bytes() == CONTENT
    assert server.ranges == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/x", "example.org/x", ""])
def test_only_http_and_https_are_addresses(tmp_path, url):
    with pytest.raises(UsageError, match="not an http or https address"):
        fetch(url, tmp_path / "file", SHA256)


@pytest.mark.parametrize(
    "url", ["http://", "http://[", "http://127.0.0.1:port/x", "http://127.0.0.1/a b", "http://127.0.0.1/a\n"]
)
def test_an_invalid_address_is_a_usage_error(tmp_path, url):
    with pytest.raises(UsageError):
        fetch(url, tmp_path / "file", SHA256)


def test_a_server_that_is_not_there_is_missing(tmp_path, server):
    with pytest.raises(MissingError, match="could not be reached"):
        fetch("http://127.0.0.1:1/file", tmp_path / "file", SHA256, attempts=2, sleep=lambda _: None)


@pytest.mark.slow
def test_a_silent_server_times_out(get, server, behave):
    released = threading.Event()
    server.script = [behave.stalls(released)]
    try:
        assert get(timeout_s=1.0).read_bytes() == CONTENT
    finally:
        released.set()
    assert len(server.ranges) >= 2


def test_progress_counts_up_to_the_size(get):
    seen = []
    get(progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_folder_that_cannot_be_made_is_a_store_error(get, tmp_path):
    (tmp_path / "occupied").write_bytes(b"")
    with pytest.raises(StoreError, match="Make the folder writable"):
        get(path=tmp_path / "occupied" / "file")


def test_a_full_disk_is_a_store_error_and_is_not_retried(get, server, monkeypatch, tmp_path):
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("needs /dev/full")
    (tmp_path / "file.part").symlink_to(full)
    with pytest.raises(StoreError, match="No space left"):
        get()
    assert len(server.ranges) == 1


def test_the_content_can_be_checked_instead_of_the_bytes(get):
    assert get(sha256="six", digest=lambda path: "six").read_bytes() == CONTENT


def test_a_digest_that_cannot_read_the_file_does_not_match(get):
    def unreadable(path):
        raise DataError("a", "b", "c")

    with pytest.raises(DataError, match="SHA-256 is not the expected"):
        get(digest=unreadable)
    assert not get.part.exists()


def test_concurrent_calls_cause_one_download(get, server):
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert get.path.read_bytes() == CONTENT
    assert server.ranges == [None]


def test_a_killed_download_leaves_no_file_and_another_process_resumes_it(get, server, behave):
    released = threading.Event()
    server.script = [behave.stalls(released)]
    program = f"from pathlib import Path\nfrom levelbench.training.datasets.download import fetch\n" \
              f"fetch({server.url + '/file'!r}, Path({str(get.path)!r}), {SHA256!r})"  # fmt: skip
    command = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, env=environment) as process:
        while process.poll() is None and (not get.part.exists() or get.part.stat().st_size < HALF):
            time.sleep(0.01)
        process.kill()
    released.set()
    assert not get.path.exists()
    assert get.part.read_bytes() == CONTENT[:HALF]

    subprocess.run(command, env=environment, check=True)
    assert get.path.read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_the_default_opener_speaks_only_http():
    schemes = set(http_opener().handle_open)
    assert schemes == {"http", "https", "unknown"} | (schemes & set(urllib.request.getproxies()))


def test_bytes_are_on_disk_before_the_file_is_renamed(get, monkeypatch):
    order = []
    synced, replaced = os.fsync, Path.replace
    monkeypatch.setattr(download.os, "fsync", lambda fd: (order.append("fsync"), synced(fd)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append("name"), replaced(a, b)))
    get()
    assert order == ["fsync", "name", "fsync"]


def test_a_server_that_ignores_the_range_is_read_from_the_beginning(get, server, behave):
    server.script = [behave.truncates, behave.ignores_range]
    assert get().read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_response_with_another_range_is_discarded(get, server, behave):
    server.script = [behave.truncates, behave.another_range]
    with pytest.raises(MissingError, match="different range from the one requested"):
        get(attempts=2)
    assert not get.part.exists()
    assert get().read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", None]


def test_a_longer_part_is_truncated_when_the_range_is_ignored(get, server, behave):
    get.part.write_bytes(CONTENT + b"more")
    server.script = [behave.ignores_range]
    assert get().read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_a_file_announced_as_too_large_is_not_downloaded(get):
    seen = []
    with pytest.raises(DataError, match="more than the limit of 1,000 bytes"):
        get(most_bytes=1000, progress=lambda done, total: seen.append(done))
    assert seen == []


def test_bytes_beyond_the_announced_length_are_not_read(get, server, behave):
    server.script = [behave.sends_more]
    assert get().read_bytes() == CONTENT


def test_a_missing_length_is_fine(get, server, behave):
    server.script = [behave.sends_without_length]
    assert get().read_bytes() == CONTENT


def test_too_many_bytes_without_an_announced_length_fail_the_checksum(get, server, behave):
    server.script = [behave.sends_more_without_length]
    with pytest.raises(DataError, match="SHA-256 is not the expected"):
        get()


@pytest.mark.parametrize("behaviour", ["whole", "sends_without_length"])
def test_more_bytes_than_allowed_stop_the_download(get, server, behave, behaviour):
    server.script = [getattr(behave, behaviour)]
    with pytest.raises(DataError, match="more than the limit of 1,000 bytes"):
        get(most_bytes=1000)
    assert not get.path.exists()
    assert not get.part.exists()


def test_a_redirect_is_followed_and_keeps_the_range(get, server, behave):
    server.script = [behave.truncates, behave.redirects("/file")]
    assert get().read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF}-"]


def test_a_redirect_loop_ends(get, server, behave):
    server.script = [behave.redirects("/file")] * 50
    with pytest.raises(MissingError, match="answered 302"):
        get()


def test_a_redirect_to_an_invalid_address_is_missing(get, server, behave):
    server.script = [behave.redirects("http://[")]
    with pytest.raises(MissingError, match="redirects to an invalid address"):
        get()


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/file"])
def test_a_redirect_out_of_http_is_refused(get, server, behave, target):
    server.script = [behave.redirects(target)]
    with pytest.raises(MissingError):
        get(attempts=1)
    assert not get.path.exists()


@pytest.mark.parametrize("length", ["9" * 5000, "\u0663", "-1"])
def test_an_invalid_length_is_ignored(get, server, length):
    def announces(handler, content):
        handler.send_response(200)
        handler._headers_buffer.append(f"Content-Length: {length}\r\n".encode())
        handler.end_headers()
        handler.wfile.write(content)

    server.script = [announces]
    assert get().read_bytes() == CONTENT


def test_a_range_of_thousands_of_digits_is_a_different_range(get, server, behave):
    def announces(handler, content):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {HALF}-{'9' * 5000}/*")
        handler.end_headers()

    server.script = [behave.truncates, announces]
    with pytest.raises(MissingError, match="different range"):
        get(attempts=2)
