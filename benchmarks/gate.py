"""How often `levelbench time` calls a command FASTER or SLOWER than itself here, and how often it finds a slower one.

    python benchmarks/gate.py [--times 100] [-n 6]

The command computes for some tens of milliseconds in Python. Each comparison starts it n times on either side, in
turns, as the verb does; the slower command does a tenth more. A share comes with Wilson's interval.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from levelbench.experiments.commands import CommandBenchmarks, make_command, numbered
from levelbench.experiments.kernel import Watcher, carry_out, make_plan
from levelbench.measure.environment import capture
from levelbench.measure.statistics import wilson
from levelbench.records.commands import summarise_commands

WORK = 2_000_000


def compare(store: Path, work: tuple[int, int], count: int) -> str:
    """The kind of the verdict on two commands with so much work."""
    texts = [f"{sys.executable} -c 'for _ in range({each}): pass'" for each in work]
    commands = numbered(make_command(text, Path.cwd()) for text in texts)
    kind = CommandBenchmarks(store, commands)
    plan = make_plan(kind, [each.specification for each in commands], range(count), capture(), fresh=True)
    (arms,) = plan.arranged(carry_out(plan, kind, Watcher()))
    return str(summarise_commands(arms).entries[1].verdict.kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="comparisons of each kind")
    parser.add_argument("-n", type=int, default=6, help="processes of each side")
    options = parser.parse_args()
    for name, work in (("itself", (WORK, WORK)), ("a tenth more work", (WORK, WORK * 11 // 10))):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder)
            found = Counter(compare(store / str(at), work, options.n) for at in range(options.times))
        said = found["FASTER"] + found["SLOWER"] if name == "itself" else found["SLOWER"]
        interval = wilson(said, options.times)
        share = f"{said / options.times:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
        print(f"against {name}: {'alarms' if name == 'itself' else 'found'} {share} {dict(found)}")


if __name__ == "__main__":
    main()
