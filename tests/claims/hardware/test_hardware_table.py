"""The table of hardware: sources, plausible figures, and its page."""

import re
from datetime import date
from pathlib import Path

import pytest

from levelbench.claims.hardware import lookup, table
from levelbench.claims.hardware.table import with_tables

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "hardware.md"
DEVICES = table().devices.values()
INSTANCES = table().instances.values()
ENTRIES = [*DEVICES, *INSTANCES]


def is_plausible(device):
    rising = [device.tflops[each] for each in ("float64", "float32", "tf32", "bfloat16") if each in device.tflops]
    return (
        date(2012, 1, 1) <= date.fromisoformat(device.released) <= date(2026, 12, 31)
        and rising == sorted(rising)
        and all(0.1 < each < 1e4 for each in device.tflops.values())
        and (device.gb_per_s is None or 20 < device.gb_per_s < 1e4)
        and (device.watts is None or 20 < device.watts < 1500)
    )


def is_found(entry):
    match = lookup(f"1 x {entry.name}")
    return match is not None and match.name in (
        entry.name,
        getattr(entry, "device", ""),
        getattr(entry, "processor", ""),
    )


def test_every_device_has_plausible_figures_in_order():
    assert [each.name for each in DEVICES if not is_plausible(each)] == []


def test_every_entry_cites_a_source_or_says_that_it_is_from_memory():
    assert [each.name for each in ENTRIES if each.checked != (table().sources[each.source].id != "memory")] == []


def test_every_source_is_cited_and_has_an_address_and_a_date():
    cited = {name for each in ENTRIES for name in (each.source, *each.also)}
    sources = table().sources
    assert set(sources) == cited
    assert [each.id for each in sources.values() if each.id != "memory" and not each.url.startswith("https://")] == []
    assert [each.id for each in sources.values() if not re.match(r"(read )?20\d\d-\d\d", each.date)] == []


def test_a_price_has_its_place_and_date_and_a_device_its_number():
    assert [each.name for each in INSTANCES if (each.usd_per_hour is None) != (each.priced == "")] == []
    assert [each.name for each in INSTANCES if bool(each.device) != bool(each.count)] == []


def test_every_entry_is_found_by_its_own_name():
    assert [each.name for each in ENTRIES if not is_found(each)] == []


@pytest.mark.parametrize(
    ("newer", "older"), [("P100-SXM2", "K80"), ("V100-SXM2", "P100-SXM2"), ("A100-SXM4-40GB", "V100-SXM2")]
)
def test_a_newer_generation_is_faster_and_wider(newer, older):
    one, other = table().devices[newer], table().devices[older]
    assert one.released > other.released
    assert one.tflops["float32"] > other.tflops["float32"]
    assert (one.gb_per_s or 0) > (other.gb_per_s or 0)


def test_the_page_shows_the_table_as_it_is(request):
    text = PAGE.read_text(encoding="utf-8")
    made = with_tables(text)
    if request.config.getoption("--golden"):
        PAGE.write_text(made, encoding="utf-8")
    else:
        assert text == made, "docs/reference/hardware.md differs; look at it, then pytest --golden"


def test_a_page_without_marks_is_an_error():
    with pytest.raises(ValueError, match="no <!-- tables"):
        with_tables("# The table of hardware\n")
