import re
import subprocess
from pathlib import Path

import pytest

from levelbench.measure.verdict import verdict
from levelbench.report.page import write_report

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000"),
)


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium to open the page in")
def test_a_browser_shows_the_page_without_an_error_and_not_wider_than_a_phone(two_arms, tmp_path):
    (a, _), (b, _) = two_arms
    page = write_report(two_arms, [(a.label, b.label, verdict(a.times(), b.times()))], tmp_path / "report.html")
    # The frame's own page may run scripts, and reads how wide the report in it would like to be.
    (tmp_path / "frame.html").write_text(
        '<body><iframe src="report.html" width="360" height="800" style="border:0"></iframe><script>'
        "onload = () => { const page = document.querySelector('iframe').contentDocument;"
        "document.body.dataset.wide = page.documentElement.scrollWidth;"
        "document.body.dataset.seen = page.querySelectorAll('figure svg').length; }</script>"
    )
    done = subprocess.run(
        [CHROMIUM, *QUIET, "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    assert int(re.search(r'data-wide="(\d+)"', done.stdout)[1]) <= 360
    assert int(re.search(r'data-seen="(\d+)"', done.stdout)[1]) >= 4
    assert page.exists()
