"""``levelbench analyze scaling``: runs on several numbers of ranks, entries on several accelerators, and misuse."""

import csv
import json

import msgspec
import pytest
from tests.cli.conftest import REACHES, specification, write_run
from tests.report.pages import needs_matplotlib

from levelbench.records import Distribution

STEP_MS = {1: 4.0, 2: 2.4, 4: 1.6}


@pytest.fixture
def scaled(tmp_path):
    """A store of three runs on 1, 2 and 4 ranks, whose steps have a serial share of a fifth."""
    folder = tmp_path / "scaled"
    for ranks, step_ms in STEP_MS.items():
        team = Distribution(ranks, "all-reduce", {}, "process", "gloo") if ranks > 1 else None
        spec = msgspec.structs.replace(specification(), distribution=team)
        for seed in range(3):
            identity = f"{ranks:04d}000{seed}"
            write_run(folder, spec, seed, identity, REACHES, step_ms * (1 + 0.01 * seed), minute=3 * seed + ranks // 2)
    return folder


def test_both_efficiencies_and_laws_of_a_store(call, scaled):
    code, out, _ = call("analyze", "scaling", "digits", "--store", scaled, "--json")
    assert code == 0
    (found,) = json.loads(out)["scalings"]
    assert [(point["ranks"], point["n"]) for point in found["points"]] == [(1, 3), (2, 3), (4, 3)]
    epoch, accuracy = found["laws"]
    assert epoch["serial"] == pytest.approx(0.2, abs=0.02)
    assert epoch["serial_interval"]["low"] < 0.2 < epoch["serial_interval"]["high"]
    # Evaluations and preparation are the same on any number of ranks.
    assert accuracy["serial"] > epoch["serial"]
    assert found["base"].startswith("base: digits")


def test_the_base_and_the_laws_are_printed(call, scaled):
    code, out, _ = call("analyze", "scaling", "--store", scaled, "--wide")
    assert code == 0
    assert "Laws of scaling" in out
    assert "Amdahl: t(p)" in out
    assert "s to accuracy" in next(line for line in out.splitlines() if line.startswith("base: "))


@needs_matplotlib
def test_files_have_points_laws_and_the_figure(call, scaled, tmp_path):
    words = ("--csv", tmp_path / "s.csv", "--plot", tmp_path / "s.svg", "--markdown", tmp_path / "s.md")
    code, _, _ = call("analyze", "scaling", "--store", scaled, *words)
    assert code == 0
    with (tmp_path / "s.csv").open() as file:
        assert [row["ranks"] for row in csv.DictReader(file)] == ["1", "2", "4"]
    assert "Amdahl" in (tmp_path / "s-laws.csv").read_text()
    assert "Amdahl" in (tmp_path / "s.svg").read_text()
    assert "base: digits" in (tmp_path / "s.md").read_text()


def test_runs_on_one_number_of_ranks_are_told_what_to_make(call, store):
    code, _, err = call("analyze", "scaling", "digits", "--store", store)
    assert code == 2
    assert "make them: levelbench scale digits --ranks 1,2,4" in " ".join(err.lower().split())


def test_runs_that_gain_more_than_their_share_have_no_bound_and_are_told_of_all_the_same(call, tmp_path):
    for ranks, step_ms in {1: 400.0, 2: 10.0}.items():
        team = Distribution(ranks, "all-reduce", {}, "process", "gloo") if ranks > 1 else None
        spec = msgspec.structs.replace(specification(), distribution=team)
        for seed in range(3):
            write_run(tmp_path, spec, seed, f"{ranks:04d}000{seed}", REACHES, step_ms, minute=3 * seed + ranks // 2)
    code, out, _ = call("analyze", "scaling", "--store", tmp_path, "--wide")
    assert code == 0
    assert "the laws have no loss to fit" in out
    assert "without bound" not in out


def test_runs_that_all_missed_have_no_law_of_time_to_accuracy(call, scaled):
    code, out, _ = call("analyze", "scaling", "--store", scaled, "--target", "0.99", "--json")
    _, accuracy = json.loads(out)["scalings"][0]["laws"]
    assert accuracy["serial"] is None
    assert any("no law of time to accuracy" in line for line in accuracy["lacks"])
    assert code == 0


@pytest.mark.parametrize(
    ("words", "said"), [(("--task", "digits"), "--task without a board"), (("--plot", "a.doc"), ".svg")]
)
def test_words_that_cannot_be_meant_are_refused(call, scaled, words, said):
    code, _, err = call("analyze", "scaling", *words, "--store", scaled)
    assert code == 2
    assert said in " ".join(err.split())


@pytest.fixture
def board(tmp_path):
    """Two entries to DAWNBench of one author and model, on one and on four V100."""
    folder = tmp_path / "dawn" / "CIFAR10" / "train"
    folder.mkdir(parents=True)
    for count, epochs, epoch_s in ((1, 24, 2.377), (4, 34, 0.847)):
        entry = {"version": "v1.0", "author": "clint", "authorEmail": "c@example.org", "framework": "PyTorch 1.1"}
        entry |= {"codeURL": "https://example.org", "model": "ResNet9", "hardware": f"Tesla V100 * {count} GPU"}
        entry |= {"costPerHour": "none", "timestamp": "2019-08-01", "logFilename": f"v{count}.tsv", "misc": {}}
        (folder / f"v{count}.json").write_text(json.dumps(entry))
        rows = [f"{at}\t{at * epoch_s / 3600}\t{94.1 if at == epochs else 80}" for at in range(1, epochs + 1)]
        (folder / f"v{count}.tsv").write_text("\n".join(["epoch\thours\ttop1Accuracy", *rows, ""]))
    return tmp_path / "dawn" / "CIFAR10"


def test_entries_of_one_author_scale_over_accelerators(call, board):
    code, out, _ = call("analyze", "scaling", board, "--json")
    assert code == 0
    (found,) = json.loads(out)["scalings"]
    assert [point["ranks"] for point in found["points"]] == [1, 4]
    four = found["points"][1]
    assert four["efficiency_per_epoch"]["value"] == pytest.approx(2.377 / 0.847 / 4, rel=1e-3)
    assert four["efficiency_to_accuracy"]["value"] == pytest.approx(24 * 2.377 / (34 * 0.847) / 4, rel=1e-3)
    assert found["laws"][0]["unit"] == "accelerator"


def test_accelerators_of_several_nodes_all_count(call, board):
    at = board / "train" / "v4.json"
    at.write_text(json.dumps(json.loads(at.read_text()) | {"hardware": "16 nodes with 8 x V100 each"}))
    _, out, _ = call("analyze", "scaling", board, "--json")
    (found,) = json.loads(out)["scalings"]
    assert [point["ranks"] for point in found["points"]] == [1, 128]


def test_a_board_with_one_system_says_so(call, board):
    for each in ("v4.json", "v4.tsv"):
        (board / "train" / each).unlink()
    code, _, err = call("analyze", "scaling", board)
    assert code == 2
    assert "no author has one model on two numbers of accelerators: there are 1" in " ".join(err.split())


@needs_matplotlib
def test_each_of_several_scalings_has_a_figure_of_its_own(call, board, tmp_path):
    for count in (1, 4):
        entry = json.loads((board / "train" / f"v{count}.json").read_text()) | {"model": "ResNet18"}
        (board / "train" / f"w{count}.json").write_text(json.dumps(entry | {"logFilename": f"w{count}.tsv"}))
        (board / "train" / f"w{count}.tsv").write_text((board / "train" / f"v{count}.tsv").read_text())
    code, out, _ = call("analyze", "scaling", board, "--plot", tmp_path / "s.svg", "--json")
    assert code == 0
    assert [path.name for path in sorted(tmp_path.glob("s*.svg"))] == ["s-1.svg", "s-2.svg"]
    assert json.loads(out)["plot_2"].endswith("s-2.svg")


def test_labels_have_no_settings_because_of_other_runs_that_are_not_shown(call, scaled):
    other = msgspec.structs.replace(specification(), settings={**specification().settings, "lr": 0.7})
    for seed in range(3):
        write_run(scaled, other, seed, f"9999000{seed}", REACHES, 4.0, minute=20 + seed)
    _, out, _ = call("analyze", "scaling", "--store", scaled, "--json")
    (found,) = json.loads(out)["scalings"]
    assert [point["label"] for point in found["points"]] == [f"digits[ranks={count}]" for count in (1, 2, 4)]
