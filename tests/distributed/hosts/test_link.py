import pytest

from levelbench.distributed.launching.namespaces import Link, discipline
from levelbench.errors import UsageError


def test_a_link_is_read_in_the_words_of_tc():
    link = Link("2.5gbit", "200us", "0.5%")
    assert (link.bits_per_s, link.delay_s, link.loss_share) == (2.5e9, pytest.approx(2e-4), 0.005)


def test_a_link_without_words_has_no_limit():
    assert (Link().bits_per_s, Link().delay_s, Link().loss_share) == (None, 0, 0)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("100mbyte",), "its unit must be one of bit, kbit, mbit, gbit"),
        (("fast",), "its unit must be"),
        (("0mbit",), "nothing would get through"),
        (("", "5"), "its unit must be one of us, ms, s"),
        (("10",), "its unit must be"),
        (("", "", "1"), "its unit must be one of %"),
        (("", "", "101%"), "no more than 100%"),
    ],
)
def test_a_link_that_cannot_be_is_refused(words, found):
    with pytest.raises(UsageError, match=found):
        Link(*words)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (Link(), ""),
        (Link("1mbit"), "tbf rate 1000000bit burst 3200 limit 262144"),
        (Link("1gbit"), "tbf rate 1000000000bit burst 125000 limit 25000000"),
        (Link(delay="5ms"), "netem limit 100000 delay 5000us loss 0%"),
        (Link("100mbit", "1ms", "2%"), "netem limit 100000 delay 1000us loss 2% rate 100000000bit"),
    ],
)
def test_a_link_becomes_a_queueing_discipline(link, words):
    assert discipline(link) == words
