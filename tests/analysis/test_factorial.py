"""Designs of experiments: the fractions against what Box, Hunter & Hunter print, and against the definition."""

from itertools import combinations
from math import prod

import pytest

from levelbench.analysis.factorial import designs, fraction, lesion, one_at_a_time
from levelbench.errors import UsageError

NAMES = "ABCDEFGHJKL"
# Box, Hunter & Hunter (2005), chapter 6: runs and resolution.
TABLE = {5: (16, 5), 6: (16, 4), 7: (16, 4), 8: (16, 4), 9: (32, 4), 10: (32, 4), 11: (32, 4)}


def test_the_simple_designs():
    assert [set(each) for each in lesion("ABC")] == [{*"ABC"}, {*"BC"}, {*"AC"}, {*"AB"}]
    assert len(one_at_a_time("ABCD")) == 6
    assert len(designs("ABCD")) == 16


@pytest.mark.parametrize("count", TABLE)
def test_a_fraction_has_the_size_and_resolution_of_the_table(count):
    found = fraction(NAMES[:count])
    runs, resolution = TABLE[count]
    assert (len(set(found.arms)), found.resolution) == (runs, resolution)
    assert frozenset(NAMES[:count]) in found.arms


@pytest.mark.parametrize("count", TABLE)
def test_main_effects_are_orthogonal_to_each_other_and_to_interactions_of_two(count):
    found, names = fraction(NAMES[:count]), NAMES[:count]
    subsets = [each for size in (1, 2) for each in combinations(names, size)]
    columns = {each: [prod(1 if name in arm else -1 for name in each) for arm in found.arms] for each in subsets}
    assert all(sum(columns[each,]) == 0 for each in names)
    for one, other in combinations(subsets, 2):
        inner = sum(a * b for a, b in zip(columns[one], columns[other], strict=True))
        aliased = other in found.aliases(one)
        # Aliased columns are equal, all others orthogonal: from the definition, not from the words.
        assert inner == (len(found.arms) if aliased else 0)
        if len(one) == 1:
            assert not aliased


def test_the_aliases_of_the_six_factors_in_the_book():
    # 2^(6-2) IV with E = ABC, F = BCD: AB = CE, AC = BE, AD = EF, AE = BC = DF, AF = DE, BD = CF, BF = CD.
    found = fraction("ABCDEF")
    pairs = {subset: aliased for subset, aliased in found.effects() if len(subset) == 2}
    assert pairs["A", "B"] == (("C", "E"),)
    assert pairs["A", "E"] == (("B", "C"), ("D", "F"))
    assert pairs["B", "D"] == (("C", "F"),)
    assert len(pairs) == 7
    assert found.name == "2^(6-2) of resolution IV"
    assert found.generators == ("E = A x B x C", "F = B x C x D")


def test_five_factors_have_all_interactions_apart():
    assert all(not aliased for _, aliased in fraction("ABCDE").effects())


@pytest.mark.parametrize("count", [2, 4, 12])
def test_other_numbers_are_refused(count):
    with pytest.raises(UsageError, match="5 to 11"):
        fraction([f"f{at}" for at in range(count)])
