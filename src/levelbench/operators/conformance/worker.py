"""One framework's share of the node tests, in a process of its own: ``python -m ...worker`` reads a job on its input.

The job is a line of JSON (framework, device, names of the cases); a line goes out before each case and one after it, so
that whoever reads knows which case a process died in.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict

from levelbench.measure.lifetime import die_with_parent
from levelbench.operators.conformance.cases import collect_cases
from levelbench.operators.conformance.trial import try_case
from levelbench.operators.frameworks import open_framework


def main() -> None:
    """Carry out the job on standard input."""
    die_with_parent()
    job = json.loads(sys.stdin.readline())
    # What a framework prints must not come between our lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    wanted = set(job["names"])
    backend = open_framework(job["framework"], job["device"])
    for case in collect_cases():
        if case.name in wanted:
            print(json.dumps({"started": case.name}), file=answers)
            print(json.dumps(asdict(try_case(case, backend))), file=answers)


if __name__ == "__main__":
    main()
