"""levelbench scale: points on more and more ranks, and the words that go wrong."""

import json
import re

import pytest
from benchmarks.analysis import scaled_point

from levelbench.analysis.scaling import scaling
from levelbench.cli.scale_verb import _print


@pytest.mark.slow
def test_two_points_are_measured_shown_drawn_and_not_made_again(call, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    store, plot, page = tmp_path / "store", tmp_path / "scaling.svg", tmp_path / "scaling.md"
    words = ["scale", "digits", "--framework", "numpy", "--ranks", "1,2", "-n", "1", "--target", "0.3"]
    words += ["--epochs", "2", "--store", str(store)]
    code, out, _ = call(*words, "--plot", str(plot), "--markdown", str(page))
    assert code == 0
    assert "digits[ranks=2]" in out
    assert "What the ranks did" in out
    assert plot.read_text().startswith("<?xml")
    assert page.read_text().startswith("# Scaling of digits")
    code, out, err = call(*words, "--json")
    assert "2 wanted · 2 done · 0 to go" in err
    one, two = json.loads(out)["points"]
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert json.loads(out)["predictions"] == []
    (team,) = two["teamwork"]
    assert team["sent_bytes"] == team["predicted_bytes"] > 0


def test_what_is_said_of_the_points_is_wrapped_to_the_terminal(width, capsys):
    points = [scaled_point(1, [1.0, 1.1]), scaled_point(2, [2.0, 2.1], epoch_s=2.0)]
    _print(scaling("t", [group for group, _ in points], [record for _, records in points for record in records]))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert "three parameters" in " ".join(lines)
    assert max(map(len, lines)) <= width


def test_more_ranks_are_predicted_from_those_that_were_measured_and_said_to_be(call, tmp_path):
    pytest.importorskip("greenlet")
    words = ["scale", "digits", "--framework", "numpy", "--ranks", "1", "-n", "1", "--target", "0.3", "--epochs", "2"]
    words += ["--store", str(tmp_path / "store"), "--scheme", "all-reduce,local-sgd"]
    words += ["--simulate", "2,8", "--network", "alpha=2us,beta=1GB/s"]
    code, out, _ = call(*words)
    assert code == 0
    assert "nothing here was measured" in out
    code, out, _ = call(*words, "--json")
    found = json.loads(out)["predictions"]
    assert [(each["label"], each["ranks"]) for each in found] == [
        ("all-reduce", 2),
        ("all-reduce", 8),
        ("local-sgd", 2),
        ("local-sgd", 8),
    ]
    assert all(each["predicted"] is True for each in found)
    # One process says how many examples a consistent scheme takes, and nothing about another.
    assert found[0]["time_to_target_s"]["value"] > 0
    assert found[2]["time_to_target_s"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "0,2"], "not a number of ranks"),
        (["--ranks", "two"], "write --ranks 1,2,4"),
        (["--ranks", "2", "--scheme", "all-reduce,,top-k"], "several separated by commas"),
        (["--ranks", "2", "--scheme", "gossipp"], "gossip"),
        (["--ranks", "2", "--engine", "spark"], "engine"),
        (["--ranks", "2", "--lr-scale", "linear"], "weak scaling"),
        (["--ranks", "2", "--plot", "scaling.doc"], ".svg"),
        (["--simulate", "8"], "--network alpha"),
        (["--ranks", "2", "--simulate", "8", "--network", "alpha=2us,beta=1GB/s"], "--ranks 1,2"),
        (["--ranks", "1,2", "--engine", "torchrun[nodes=2]"], "leave 1 out"),
        (["--network", "alpha=2us,beta=1GB/s"], "--simulate"),
        (["--simulate", "8", "--network", "alpha=2us"], "beta"),
        (["--ranks", "1", "--simulate", "8", "--network", "measured"], "--ranks 1,2"),
    ],
)
def test_words_that_cannot_be_meant_are_refused_before_anything_runs(call, tmp_path, words, said):
    code, _, err = call("scale", "digits", "--framework", "numpy", *words, "--store", str(tmp_path / "store"))
    assert code == 2
    assert said in err
    assert not (tmp_path / "store").exists()


def test_ranks_of_a_run_are_said_with_the_run(call, tmp_path):
    code, _, err = call(
        "run", "digits", "--framework", "numpy", "--scheme", "top-k", "--store", str(tmp_path / "store")
    )
    assert code == 2
    assert "--ranks 2" in err


def test_schemes_are_listed_once_with_their_aliases_promises_and_settings(call):
    code, out, _ = call("list", "schemes", "--json")
    rows = {row["scheme"]: row for row in json.loads(out)["schemes"]}
    assert code == 0
    assert rows["all-reduce"]["also called"] == ["allreduce", "dsgd"]
    assert rows["all-reduce"]["promises"] == ["consistent", "replicated", "lockstep"]
    assert "ratio=0.01" in rows["top-k"]["settings"]
    for name in ("parameter-server", "gossip", "local-sgd", "diloco", "qsgd", "power-sgd"):
        assert rows[name]["source"]


def test_engines_are_listed_with_what_each_lacks(call):
    code, out, _ = call("list", "engines", "--json")
    rows = {row["engine"]: row for row in json.loads(out)["engines"]}
    assert code == 0
    assert set(rows) == {"process", "torchrun", "mpi", "slurm", "hosts"}
    assert rows["process"]["communicators"][0] == "gloo"
