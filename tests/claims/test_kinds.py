"""What is to be linted is told by its content, and what is no file selects runs."""

import json
import tarfile
from pathlib import Path

import pytest

from levelbench.claims.reading import kind_of, read
from levelbench.errors import RecordError, UsageError

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
        ("results.tar.gz", "", "mlperf"),
        ("process.jsonlines", RECORD, "inference"),
    ],
)
def test_a_file_is_told_by_its_content(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    assert kind_of(tmp_path / name) == kind


@pytest.mark.parametrize("text", ["we are 5 times faster", "", "[1, 2]"])
def test_a_file_that_is_nothing_of_this_is_refused(tmp_path, text):
    (tmp_path / "note.dat").write_text(text)
    with pytest.raises(UsageError, match="lint --template"):
        kind_of(tmp_path / "note.dat")


@pytest.mark.parametrize(("name", "kind"), [("digits/run.jsonl", "records"), ("digits/training/me.json", "folder")])
def test_a_folder_of_records_is_a_store(tmp_path, name, kind):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(RECORD)
    assert kind_of(tmp_path) == kind


def test_a_claim_in_a_file_is_read(tmp_path):
    (tmp_path / "claim.toml").write_text('title = "t"\nsides = [{name = "ours", time_s = 9.0}]\n')
    (claim,) = read(tmp_path / "claim.toml")
    assert (claim.title, claim.where) == ("t", str(tmp_path / "claim.toml"))


@pytest.mark.parametrize(("name", "said"), [("clam.toml", "claim.toml"), ("other.json", "check the path")])
def test_a_file_that_is_not_there_is_answered_with_the_nearest(tmp_path, name, said):
    (tmp_path / "claim.toml").write_text('title = "t"')
    with pytest.raises(UsageError) as error:
        read(str(tmp_path / name))
    assert said in error.value.do


@pytest.mark.parametrize(("beside", "said"), [(True, "net.json"), (False, "the entry's .json")])
def test_a_curve_alone_leads_to_its_entry(tmp_path, beside, said):
    (tmp_path / "net.tsv").write_text("epoch\thours\ttop1Accuracy\n1\t0.1\t94\n")
    if beside:
        (tmp_path / "net.json").write_text("{}")
    with pytest.raises(UsageError) as error:
        kind_of(tmp_path / "net.tsv")
    assert said in error.value.do


def test_an_archive_without_a_log_is_said_to_have_none(tmp_path):
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz"):
        pass
    with pytest.raises(RecordError, match="no result_"):
        read(tmp_path / "logs.tar.gz")


def test_a_pipe_is_no_claim(tmp_path):
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        kind_of(Path("/dev/null"))
