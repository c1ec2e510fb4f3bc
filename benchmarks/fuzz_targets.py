"""The readers of other people's files, each with a good file that ``fuzz_readers.py`` mutates."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from fuzz_samples import ANSWERS, CLAIM, DETAIL, DIALECTS, POINTS, RULES, SUMMARY, SYSTEM, entry
from levelbench.claims.reading.claim_file import read_claim
from levelbench.competition import exchange
from levelbench.competition.entries import encode, read_submission
from levelbench.competition.exchange import algoperf
from levelbench.competition.exchange.dawnbench import read_entry
from levelbench.competition.exchange.dawnbench.entries import write_entry
from levelbench.competition.exchange.loadgen import parse_answers, parse_detail, parse_summary
from levelbench.competition.exchange.mlperf import check_log, read_log, read_points, read_results, write_submission
from levelbench.competition.leaderboard import BOARD, check, checked_folder
from levelbench.competition.rulesets import read_ruleset
from levelbench.competition.signatures import AUTHORS, ENDING, available, new_key, sign

__all__ = ["Reader", "readers"]


@dataclass
class Reader:
    """A reader, the file that it reads, good bytes of it, and what became of the mutations."""

    name: str
    path: Path
    good: bytes
    read: Callable[[], object]
    accepted: int = 0
    refused: int = 0
    crashed: int = 0
    slowest_s: float = 0.0


def readers(folder: Path) -> Iterator[Reader]:
    """Every reader with a good file of its own under ``folder``."""
    for mode in ("training", "inference"):
        path = folder / f"{mode}.json"
        path.write_bytes(encode(entry(mode)))
        yield Reader(f"submission-{mode}", path, path.read_bytes(), lambda path=path: check(read_submission(path)))
        for written in write_entry(entry(mode), folder / "dawnbench").paths:
            base = written.with_suffix(".json")
            name = f"dawnbench-{mode}-{written.suffix[1:]}"
            yield Reader(name, written, written.read_bytes(), lambda base=base: read_entry(base))
    (log, *_) = write_submission(entry(), folder / "mllog")
    yield Reader("mllog", log, log.read_bytes(), lambda: check_log(read_log(log)))
    yield from _mlperf(folder, log.read_bytes())
    yield from _leaderboard(folder / "leaderboard")
    yield from _algoperf(folder / "algoperf" / "adamw" / "study_0" / "ogbg_jax" / "trial_1")
    yield from _loadgen(folder)
    exchange.write_csv(exchange.tabulate([("a", entry()), ("b", entry("inference"))]), folder / "csv")
    for name in exchange.TABLES:
        path = folder / "csv" / f"{name}.csv"
        yield Reader(f"csv-{name}", path, path.read_bytes(), lambda: exchange.read_csv(folder / "csv"))
    if find_spec("pyarrow"):
        exchange.write_parquet(exchange.tabulate([("a", entry())]), folder / "parquet")
        path = folder / "parquet" / f"{exchange.TABLES[0]}.parquet"
        yield Reader("parquet", path, path.read_bytes(), lambda: exchange.read_parquet(folder / "parquet"))
    for name, text, read in (("rules.toml", RULES, read_ruleset), ("claim.toml", CLAIM, read_claim)):
        path = folder / name
        path.write_text(text)
        yield Reader(path.stem, path, path.read_bytes(), lambda path=path, read=read: read(path))


def _algoperf(trial: Path) -> Iterator[Reader]:
    trial.mkdir(parents=True)
    root = trial.parents[3]
    files = {
        "eval_measurements.csv": "accumulated_submission_time,global_step,validation/mean_average_precision\n"
        "10.5,1,0.1\n20.5,2,0.3\n",
        "hparams.json": json.dumps({"learning_rate": 0.1, "beta1": 0.9}),
        "meta_data_0.json": json.dumps(
            {"rng_seed": 1, "gpu_count": 8, "gpu_model_name": "V100", "workload.validation_target_value": 0.28}
            | {"workload.target_metric_name": "mean_average_precision", "git_commit_hash": "a" * 40}
        ),
    }
    for name, text in files.items():
        (trial / name).write_text(text)
    for name in files:
        path = trial / name
        yield Reader(f"algoperf-{path.stem}", path, path.read_bytes(), lambda: _scored(root))


def _scored(root: Path) -> object:
    return algoperf.common_times(algoperf.read_results(root)[0])


def _loadgen(folder: Path) -> Iterator[Reader]:
    for name, text, read in (
        ("mlperf_log_summary.txt", SUMMARY, parse_summary),
        ("mlperf_log_detail.txt", DETAIL, parse_detail),
        ("mlperf_log_accuracy.json", ANSWERS, parse_answers),
    ):
        path = folder / name
        path.write_text(text)
        content = path.read_bytes
        yield Reader(
            f"loadgen-{path.stem}", path, content(), lambda read=read, content=content: read(content(), "fuzz")
        )


def _mlperf(folder: Path, log: bytes) -> Iterator[Reader]:
    """Logs in the older dialects, the file of a system, a tree in a tar archive, plain and packed, and RCP points."""
    for name, text in DIALECTS.items():
        path = folder / f"{name}.txt"
        path.write_text(text)
        yield Reader(f"mlperf-{name}", path, path.read_bytes(), lambda path=path: check_log(read_log(path)))
    tree = folder / "tree"
    result, system = "ada/results/box/resnet/result_0.txt", "ada/systems/box.json"
    for name, content in ((result, log), (system, SYSTEM.encode())):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_bytes(content)
    yield Reader("mlperf-system", tree / system, SYSTEM.encode(), lambda: read_results(tree))
    for ending in ("tar", "tar.gz"):
        path = folder / f"tree.{ending}"
        with tarfile.open(path, "w:gz" if ending == "tar.gz" else "w") as archive:
            for name in (result, system):
                content = (tree / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        yield Reader(f"mlperf-{ending}", path, path.read_bytes(), lambda path=path: read_results(path))
    path = folder / "points.json"
    path.write_text(POINTS)
    yield Reader("mlperf-points", path, path.read_bytes(), lambda path=path: read_points(path))


def _leaderboard(root: Path) -> Iterator[Reader]:
    """What a leaderboard has beside its entries: its own file, its authors' keys, a ruleset, a signature."""
    place = root / "cifar10" / "training" / "ada.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(encode(entry()))
    files = {BOARD: 'title = "Ours"\nrulesets = ["dawnbench-1.0"]\nurl = "https://example.org"\n'}
    files |= {"rulesets/mine.toml": RULES}
    if available():
        files[AUTHORS] = f'"A. Author" = ["{new_key(root / "key.pem")}"]\n'
        sign(place, root / "key.pem")
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    beside = place.with_name(place.name + ENDING)
    for path in [*(root / name for name in files), *([beside] if beside.exists() else [])]:
        yield Reader(
            f"board-{path.name}", path, path.read_bytes(), lambda: checked_folder(root, today=date(2026, 1, 1))
        )
