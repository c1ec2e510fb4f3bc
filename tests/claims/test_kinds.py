"""What is to be linted is told by its content, and what is no file selects runs."""

import json
from pathlib import Path

import pytest

from levelbench.claims.reading import kind_of, read
from levelbench.errors import UsageError

RECORD = json.dumps({"type": "header", "schema": 1, "id": "aaaa0001", "specification": {"task": "digits"}}) + "\n"
LOG = "NCCL version 2.8\n" * 3 + ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "x"}\n'


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("claim.toml", 'title = "t"', "claim"),
        ("run.jsonl", RECORD, "record"),
        ("run.txt", RECORD, "record"),
        ("cut.jsonl", "", "record"),
        ("entry.json", '{"schema": 1}', "submission"),
        ("entry", ' \n{"schema": 1}', "submission"),
        ("result_0.txt", LOG, "mlperf"),
        ("v06.log", ':::MLL 1557.1 run_start: {"value": null}', "mlperf"),
        ("v05.log", ":::MLPv0.5.0 resnet 1541.4 (a.py:3) run_start", "mlperf"),
        ("mlperf.json", LOG, "mlperf"),
    ],
)
def test_a_file_is_told_by_its_content(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    assert kind_of(tmp_path / name) == kind


@pytest.mark.parametrize("text", ["we are 5 times faster", "", "[1, 2]"])
def test_a_file_that_is_nothing_of_this_is_refused(tmp_path, text):
    (tmp_path / "note.md").write_text(text)
    with pytest.raises(UsageError, match="lint --template"):
        kind_of(tmp_path / "note.md")


@pytest.mark.parametrize(("name", "kind"), [("digits/run.jsonl", "records"), ("digits/training/me.json", "folder")])
def test_a_folder_of_records_is_a_store(tmp_path, name, kind):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(RECORD)
    assert kind_of(tmp_path) == kind


def test_a_claim_in_a_file_is_read(tmp_path):
    (tmp_path / "claim.toml").write_text('title = "t"\nsides = [{name = "ours"}]\n')
    (claim,) = read(tmp_path / "claim.toml")
    assert (claim.title, claim.where) == ("t", str(tmp_path / "claim.toml"))


@pytest.mark.parametrize(("name", "said"), [("clam.toml", "claim.toml"), ("other.json", "check the path")])
def test_a_file_that_is_not_there_is_answered_with_the_nearest(tmp_path, name, said):
    (tmp_path / "claim.toml").write_text('title = "t"')
    with pytest.raises(UsageError) as error:
        read(str(tmp_path / name))
    assert said in error.value.do


def test_a_pipe_is_no_claim(tmp_path):
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        kind_of(Path("/dev/null"))
