"""DAWNBench's CIFAR-10 entries at a sweep of targets, against what was read from them by hand."""

import json

import pytest

from levelbench.analysis.threshold import SHOWN_RULES
from levelbench.cli import main


@pytest.fixture(scope="module")
def swept(real):
    """The command's answer for the 31 entries that train on CIFAR-10."""
    import io
    from contextlib import redirect_stdout

    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main(["analyze", "threshold", str(real / "CIFAR10"), "--targets", "0.9,0.93,0.94,0.945,0.95", "--json"])
    assert ended.value.code == 0
    return json.loads(out.getvalue())


def times(swept, name):
    """The time of an entry to 94 % under each rule, in seconds."""
    at = [each["label"] for each in swept["arms"]].index(name)
    cells = swept["crossings"][at]
    return {rule: cell["time_s"] and cell["time_s"]["value"] for rule, cell in zip(SHOWN_RULES, cells, strict=True)}


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("apple_resnet9_8v100_pytorch", 9.43),
        ("kakaobrain_custom-resnet9_4v100-braincloud_pytorch", 27.98),
        ("davidcpage_resnet9_1v100-ec2_pytorch", 74.04),
        ("dawn_resnet164_b_16vCPUs-gc_tensorflow", 370_087.79),
    ],
)
def test_the_first_crossing_is_the_published_time(swept, name, seconds):
    assert times(swept, name)["first"] == pytest.approx(seconds, abs=0.005)


def test_an_entry_that_falls_back_arrives_later_under_the_stricter_rule(swept):
    found = times(swept, "diux_cifar_p3")
    assert found["first"] / 3600 == pytest.approx(1.131944, abs=1e-6)
    assert found["sustained"] / 3600 == pytest.approx(1.561111, abs=1e-6)
    assert found["interpolated"] < found["first"] < found["confirmed"]


def test_ten_of_the_31_entries_fall_back_below_94_percent(swept):
    names = [each["label"] for each in swept["arms"]]
    assert len(names) == 31
    differ = [name for name in names if times(swept, name)["sustained"] != times(swept, name)["first"]]
    assert len(differ) == 10


def test_six_entries_end_where_they_reach_94_percent_and_have_no_confirmation(swept):
    names = [each["label"] for each in swept["arms"]]
    unconfirmed = [name for name in names if times(swept, name)["confirmed"] is None]
    assert len([name for name in unconfirmed if times(swept, name)["sustained"] is not None]) == 6


def test_the_fastest_to_94_percent_is_not_the_fastest_to_95(swept):
    fastest = {each["target"]: each["ranking"] for each in swept["orders"]}
    assert fastest[0.94][0] == "apple_resnet9_8v100_pytorch"
    assert fastest[0.95] == ["KRes34_1GTX1080Ti_pytorch"]


def test_entries_of_one_run_are_doubted(swept):
    assert any("31 of 31 entries have one run" in line for line in swept["lines"])
