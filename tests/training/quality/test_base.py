"""What a quality states in a record."""

import msgspec
import pytest

from levelbench.errors import UsageError
from levelbench.records.schema import Target
from levelbench.training.quality import RMSE, Bleu, Top1


def test_the_target_of_a_metric_without_a_highest_value_is_read_back_as_it_was_written():
    target = RMSE(target=0.5).as_target()
    assert msgspec.json.decode(msgspec.json.encode(target), type=Target) == target
    assert (target.direction, target.low, target.high) == ("lower", 0.0, None)


def test_a_quality_says_by_which_options_it_is_computed_only_where_those_matter():
    assert Top1(target=0.9).signature == ""
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    assert "tok:13a" in Bleu(target=8.0).signature


def test_a_target_beyond_the_scale_is_refused():
    with pytest.raises(UsageError, match="its scale goes from 0 to 1"):
        Top1(target=0.9).as_target(1.5)
