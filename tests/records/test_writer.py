from __future__ import annotations

import errno
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from levelbench.errors import RecordError, StoreError
from levelbench.records import Measurement, RecordWriter, Samples, lines, new_id, read_folder, read_record

# Writes events for ever; says which number is safely written, one byte string a line.
WRITES_AND_TELLS = """
import sys, msgspec
from pathlib import Path
from levelbench.records import Header, Measurement, RecordWriter
header = msgspec.json.decode(sys.argv[2], type=Header)
with RecordWriter.create(Path(sys.argv[1]), header) as writer:
    print(writer.path, flush=True)
    for number in range(int(sys.argv[3])):
        writer.append(Measurement("m", "", float(number), "x" * (number * 37 % 3000)))
        print(number, flush=True)
"""

FILLS_THE_DISK = """
import sys, msgspec
from pathlib import Path
from levelbench.errors import StoreError
from levelbench.records import Header, RecordWriter, Samples, read_record
header = msgspec.json.decode(sys.argv[2], type=Header)
written = 0
with RecordWriter.create(Path(sys.argv[1]), header) as writer:
    try:
        for number in range(10_000):
            writer.append(Samples("x", "s", [float(number)] * 300))
            written += 1
    except StoreError as error:
        message = str(error)
    last = writer.path.read_bytes()[-1:]
print(written, len(read_record(writer.path).samples["x"].values), last, message)
"""


def child(program: str, store: Path, header, *more: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", program, str(store), lines.encode(header).decode(), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def test_a_record_is_filed_by_task_and_day_and_named_after_key_seed_and_id(tmp_path, make_header):
    header = make_header(seed=7, id="0123abcd", started="2026-03-01T23:30:00+00:00")
    with RecordWriter.create(tmp_path, header) as writer:
        assert writer.path == tmp_path / "digits" / "2026-03-01" / f"{header.key[:8]}-s7-0123abcd.jsonl"
        assert [path.name for path in writer.path.parent.iterdir()] == [writer.path.name]
        assert read_record(writer.path).header == header


@pytest.mark.parametrize("task", ["../../etc", "/etc/passwd", "..", "", "a\0b", ".hidden", "a/b", "x" * 300])
def test_no_task_name_leads_out_of_the_store_or_hides_its_records(tmp_path, make_header, task):
    store = tmp_path / "store"
    with RecordWriter.create(store, make_header(task=task)) as writer:
        pass
    assert len(writer.path.relative_to(store).parts) == 3
    assert not writer.path.parent.parent.name.startswith(".")
    assert [record.header.specification.task for record in read_folder(store)[0]] == [task]


def test_a_specification_that_would_not_be_read_back_is_refused_without_a_file(tmp_path, make_header):
    header = make_header()
    header.specification.settings["lr"] = math.nan
    with pytest.raises(RecordError, match="read"):
        RecordWriter.create(tmp_path, header)
    with pytest.raises(RecordError, match="started at 'yesterday'"):
        RecordWriter.create(tmp_path, make_header(started="yesterday"))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_id_is_never_overwritten(tmp_path, make_header, make_run):
    header = make_header(id="00000001")
    path = make_run(tmp_path, header)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        RecordWriter.create(tmp_path, header)
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_ids_are_sixteen_hexadecimal_digits_and_differ():
    ids = {new_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in ids)


def test_a_killed_run_loses_no_acknowledged_event(tmp_path, make_header):
    instants = random.Random(20260301)
    for attempt in range(30):
        process = child(WRITES_AND_TELLS, tmp_path, make_header(seed=attempt), "1000000")
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        told = "".join(process.stdout.readline() for _ in range(instants.randrange(0, 150)))
        time.sleep(instants.random() * 0.003)
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read()
        process.wait()
        process.stdout.close()
        record = read_record(path)
        assert record.status == "interrupted"
        numbers = [measurement.value for measurement in record.measurements]
        assert numbers == [float(number) for number in range(len(numbers))]
        # A last acknowledgement that was itself cut off has no newline.
        acknowledged = [int(line) for line in told.splitlines(keepends=True) if line.endswith("\n")]
        assert len(numbers) > max(acknowledged, default=-1)
    records, problems = read_folder(tmp_path)
    assert len(records) == 30
    assert problems == []


def test_two_processes_that_write_to_one_store_lose_nothing(tmp_path, make_header):
    processes = [child(WRITES_AND_TELLS, tmp_path, make_header(seed=seed), "300") for seed in (1, 1)]
    for process in processes:
        process.communicate()
    records, problems = read_folder(tmp_path)
    assert problems == []
    assert [len(record.measurements) for record in records] == [300, 300]


def test_a_limit_on_the_file_size_is_a_clear_error_and_leaves_complete_lines(tmp_path, make_header):
    # In the child itself: what would run between fork and exec does not go with a framework's threads.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    process = child(limit + FILLS_THE_DISK, tmp_path, make_header())
    written, values, last, message = process.communicate()[0].split(" ", 3)
    assert process.returncode == 0
    assert int(values) == 300 * int(written) > 0
    assert last == r"b'\n'"
    assert "ulimit" in message


def mounted(folder: Path, kind: str, program: str, header) -> subprocess.CompletedProcess[str]:
    """Run ``program`` with ``folder`` mounted so, in a mount namespace of its own; skip where that is not allowed."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")
    script = f'{kind} && exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(folder), sys.executable, program]
    return subprocess.run([*command, lines.encode(header).decode()], capture_output=True, text=True)


def test_a_full_disk_is_a_clear_error_and_leaves_complete_lines(tmp_path, make_header):
    done = mounted(tmp_path, 'mount -t tmpfs -o size=64k none "$1"', FILLS_THE_DISK, make_header())
    if "mount" in done.stderr:
        pytest.skip("mounting is not allowed here")
    written, values, last, message = done.stdout.split(" ", 3)
    assert int(values) == 300 * int(written) > 0
    assert last == r"b'\n'"
    assert "the disk is full" in message
    assert "make room" in message.lower()


def test_a_read_only_disk_is_a_clear_error(tmp_path, make_header):
    program = WRITES_AND_TELLS.replace("sys.argv[3]", "'1'")
    done = mounted(tmp_path, 'mount -t tmpfs -o ro none "$1"', program, make_header())
    if "mount:" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 1
    assert "StoreError" in done.stderr
    assert "the file system is read-only" in done.stderr


def test_a_read_only_folder_is_a_clear_error(make_header):
    with pytest.raises(StoreError, match=r"beginning a record in /sys/kernel: .*(permi|read-only).*another store"):
        RecordWriter.create(Path("/sys/kernel"), make_header())


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_nothing_is_left_behind_when_a_record_cannot_begin(tmp_path, make_header, monkeypatch, code):
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(StoreError, match="beginning a record"):
        RecordWriter.create(tmp_path, make_header())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_store_that_is_a_file_is_a_clear_error(tmp_path, make_header):
    store = tmp_path / "store"
    store.write_text("not a folder")
    with pytest.raises(StoreError, match="store is a file, not a folder"):
        RecordWriter.create(store, make_header())
    assert store.read_text() == "not a folder"


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_an_incomplete_event_is_removed_so_that_the_next_is_complete(tmp_path, make_header, monkeypatch, failure):
    whole_write = os.write
    with RecordWriter.create(tmp_path, make_header()) as writer:
        writer.append(Measurement("a", "", 1.0, None))

        def half(descriptor: int, data: bytes) -> int:
            monkeypatch.setattr(os, "write", fail)
            return whole_write(descriptor, data[: len(data) // 2])

        def fail(descriptor: int, data: bytes) -> int:
            raise failure

        monkeypatch.setattr(os, "write", half)
        with pytest.raises((StoreError, KeyboardInterrupt)):
            writer.append(Measurement("b", "", 2.0, None))
        monkeypatch.setattr(os, "write", whole_write)
        writer.append(Measurement("c", "", 3.0, None))
    assert [each.name for each in read_record(writer.path).measurements] == ["a", "c"]


def test_a_short_write_is_continued(tmp_path, make_header, monkeypatch):
    whole_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole_write(descriptor, data[:7]))
    with RecordWriter.create(tmp_path, make_header()) as writer:
        writer.append(Measurement("a", "", 1.0, None))
    assert len(read_record(writer.path).measurements) == 1


def test_a_file_system_without_hard_links_or_locks_is_enough(tmp_path, make_header, make_run, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr("levelbench.records.locks.fcntl.flock", refuse)
    header = make_header(id="00000001")
    path = make_run(tmp_path, header)
    assert read_record(path).status == "done"
    with pytest.raises(StoreError, match="exists already"):
        RecordWriter.create(tmp_path, header)
    assert len(list(path.parent.iterdir())) == 1


def test_an_event_too_long_to_be_read_back_is_refused(tmp_path, make_header, monkeypatch):
    with RecordWriter.create(tmp_path, make_header()) as writer:
        monkeypatch.setattr(lines, "LINE_LIMIT", 1000)
        with pytest.raises(RecordError, match="smaller blocks"):
            writer.append(Samples("x", "s", [1.0] * 1000))


def test_a_closed_record_refuses_events_and_may_be_closed_again(tmp_path, make_header):
    with RecordWriter.create(tmp_path, make_header()) as writer:
        pass
    writer.close()
    with pytest.raises(StoreError, match="is closed"):
        writer.append(Measurement("a", "", 1.0, None))
