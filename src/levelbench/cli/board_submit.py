"""``levelbench board submit`` and ``keys``: write entries from the records of runs, and sign them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.competition.checks import EntryFinding
    from levelbench.competition.entries import Submission, SystemPrice
    from levelbench.competition.making import Terms
    from levelbench.competition.rulesets import Ruleset

__all__ = ["keys", "ruleset_of", "submit", "terms_of"]

_FILE = click.Path(path_type=Path)
_STATED = ("author", "price", "code", "tuning", "origin", "notes")
"""The author's own statements in an entry."""


@click.command("submit")
@click.argument("runs", nargs=-1, metavar="RUNS...", required=True)
@click.option("--author", required=True, help="Who submits.")
@click.option("--email", help="How the author can be reached.")
@click.option("--organisation", help="Where the author works.")
@click.option("--price-per-hour", type=float, help="US dollars per hour for the whole system, on demand.")
@click.option("--price-source", help="Address of the price list.")
@click.option("--price-date", help="Day on which the price was read.  [default: today]")
@click.option("--not-on-demand", is_flag=True, help="The price is for spot or reserved use.")
@click.option("--code-url", help="Link to the code, best with the commit in it.")
@click.option("--ruleset", "ruleset_word", default="levelbench-1.0", show_default=True, help="Rules, or a .toml file.")
@click.option("--division", help="Division of the ruleset.  [default: open, or the only one that it has]")
@click.option(
    "--tuning-trials", type=click.IntRange(min=0), help="Earlier tuning trials.  [default: counted in the store]"
)
@click.option("--tuning-hours", type=click.FloatRange(min=0), help="Hours of these trials.")
@click.option("--tuning-usd", type=click.FloatRange(min=0), help="US dollars of these trials.")
@click.option("--tuning-notes", help="How the settings were tuned.")
@click.option("--hardware", help="The system in words.  [default: what the records say]")
@click.option("--model", help="Name of the model.  [default: the recipe's]")
@click.option(
    "--flops-per-sample",
    type=click.FloatRange(min=0, min_open=True),
    help="FLOPs per sample; in training, those of a whole step.  [default: counted]",
)
@click.option("--notes", default="", help="What readers should know.")
@click.option("--only-these", is_flag=True, help="Submit the selected runs only; needs --because.")
@click.option("--because", metavar="TEXT", help="Why runs of the group are left out; published in the entry.")
@click.option("--sign", "key", type=_FILE, help="Sign with the key in this PEM file.")
@click.option("-o", "--output", type=_FILE, required=True, help="Folder of the leaderboard.")
@click.option("--replace", is_flag=True, help="Overwrite an entry of the same runs that differs.")
@click.option("--force", is_flag=True, help="Write entries even if a check finds errors in them.")
@shared.store_option
@shared.answer_options
def submit(
    runs: tuple[str, ...],
    store_path: Path,
    output: Path,
    replace: bool,
    force: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Write one entry for each group of runs that RUNS select, with all its runs, even those that missed the target.

    \b
      levelbench board submit digits --author "Ada Lovelace" --email ada@example.org \\
          --price-per-hour 0.096 --price-source https://example.org/prices \\
          --code-url https://example.org/ada/digits/tree/0a1b2c3 -o leaderboard

    RUNS may be files of inference records. Prints what each entry publishes, what was taken out of it (addresses,
    tokens, home folders and machine names in older records), and the findings of levelbench board check. An entry with
    an error is not written without --force, and the exit code is 1.
    """
    from levelbench.cli.board_limits import with_limits
    from levelbench.competition.leaderboard import add_ruleset
    from levelbench.competition.making import entries_of

    if given["only_these"] != (given["because"] is not None):
        asked = "--only-these" if given["only_these"] else "--because"
        raise UsageError(asked, "it is given alone", 'give both: --only-these --because "TEXT"')
    if given["because"] is not None and not given["because"].strip():
        raise UsageError("--because", "it is blank", "say why runs of the group are left out")
    terms, stated = terms_of(given, output), given["tuning_trials"] is not None
    store = shared.open_store(store_path)
    found = with_limits(entries_of(runs, store, terms, count_trials=not stated), store_path)
    made, hidden = _without_secrets([(_file_of_its_own(output, path, each), each) for path, each in found])
    refused = {} if force else _refused(made, output, terms.ruleset)
    kept = [(path, each) for path, each in made if path not in refused]
    word, rules = given["ruleset_word"], None
    if kept and word.endswith(".toml"):
        # Entries name their ruleset, so a file's ruleset is copied to the leaderboard.
        rules = add_ruleset(output, terms.ruleset, Path(word).read_bytes())
    written = [(path, each, *_write(path, each, output, replace, given["key"])) for path, each in kept]
    rest = [(path, each, refused[path]) for path, each in made if path in refused]
    return _report(written, rest, rules, output, hidden, as_json)


def _without_secrets(made: list[tuple[str, Submission]]) -> tuple[list[tuple[str, Submission]], dict[str, list[str]]]:
    """The entries without what must not be published, and what was taken out of each, by its file.

    The author's own statements are published unchanged.
    """
    import msgspec

    from levelbench.competition.making import without_settings
    from levelbench.records.schema import redacted

    kept: list[tuple[str, Submission]] = []
    hidden: dict[str, list[str]] = {}
    for path, entry in made:
        safe, places = redacted(without_settings(entry))
        kept.append((path, msgspec.structs.replace(safe, **{name: getattr(entry, name) for name in _STATED})))
        environment = entry.provenance.environment
        changed = {
            f"provenance.environment.{name}"
            for name in environment
            if environment[name] != safe.provenance.environment[name]
        }
        if found := sorted(changed | {place for place in places if place.partition(".")[0] not in _STATED}):
            hidden[path] = found
    return kept, hidden


_LONGEST_STEM = 100


def _file_of_its_own(folder: Path, file: str, entry: Submission) -> str:
    """``file``, with the ruleset in its name if an entry of other rules is there: runs may be in several rounds."""
    from levelbench.competition.entries import UnreadableError, parse_submission, read_bytes
    from levelbench.records.writer import path_part

    try:
        if parse_submission(read_bytes(folder / file)).ruleset == entry.ruleset:
            return file
    except UnreadableError:
        return file
    place, _, name = file.rpartition("/")
    words, _, key = name.removesuffix(".json").rpartition("-")
    ending = f"-{key}-{path_part(entry.ruleset)}"
    return f"{place}/{words[: max(1, _LONGEST_STEM - len(ending))]}{ending}.json"


def _refused(made: list[tuple[str, Submission]], folder: Path, rules: Ruleset) -> dict[str, list[EntryFinding]]:
    """The findings about each entry that a check would keep off the board, before anything is written."""
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.checks import worst
    from levelbench.competition.entries import encode
    from levelbench.competition.leaderboard import check, frozen_rounds, own_rulesets, thawed

    known, rounds = {**own_rulesets(folder)[0], rules.id: rules}, frozen_rounds(folder)[0]
    found = {
        path: [
            *check(each, path, known=known, limits=known_limits),
            *thawed(rounds, path, encode(each), each.ruleset),
        ]
        for path, each in made
    }
    return {path: findings for path, findings in found.items() if worst(findings) == "error"}


def _write(file: str, submission: Submission, folder: Path, replace: bool, key: Path | None) -> tuple[Path, bool]:
    """Write the entry and, with a key, its signature; returns whether the entry is new."""
    from levelbench.competition.entries import encode, write_new, write_whole
    from levelbench.competition.signatures import ENDING, sign

    path, raw = folder / file, encode(submission)
    # Even with --replace, an identical entry stays, and so does its signature.
    new = not (replace and path.is_file() and path.read_bytes() == raw)
    if new and replace:
        write_whole(path, raw)
    elif new:
        new = write_new(path, raw)
    if key is not None:
        sign(path, key, raw)
    elif new:
        # The old signature is not of the new bytes.
        path.with_name(path.name + ENDING).unlink(missing_ok=True)
    return path, new


def _report(
    written: list[Any],
    refused: list[Any],
    rules: Path | None,
    folder: Path,
    hidden: dict[str, list[str]],
    as_json: bool,
) -> int:
    """Print what was written and what was not, and the findings about it; returns the exit code."""
    from levelbench.cli.board_check import finding_lines, summary_line
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.checks import worst
    from levelbench.competition.leaderboard import check_file

    found = [each for _, _, path, _ in written for each in check_file(path, root=folder, limits=known_limits)]
    found += [finding for _, _, findings in refused for finding in findings]
    code = int(worst(found) == "error")
    if as_json:
        entries = [
            {"path": str(path), "runs": len(each.runs), "new": new, "taken_out": hidden.get(file, [])}
            for file, each, path, new in written
        ]
        entries += [{"path": None, "runs": len(each.runs), "new": False} for _, each, _ in refused]
        shared.emit_json({"ruleset": rules and str(rules), "entries": entries, "findings": found})
        return code
    with shared.as_far_as_read():
        if rules is not None:
            click.echo(shared.visible(f"wrote {rules}: the ruleset of the entries"))
        for file, each, path, new in written:
            click.echo(shared.visible(f"{'wrote' if new else 'already there:'} {path}: {_words(each)}"))
            shared.say(*_published(each, hidden.get(file, [])), *_unranked(each, folder))
        for path, each, _ in refused:
            click.echo(shared.visible(f"not written: {path}: {_words(each)}"))
        shared.say(*finding_lines(found), summary_line(len(written) + len(refused), found))
        if refused:
            click.echo("correct the errors, or give --force to write the entries anyway")
    return code


def _published(each: Submission, hidden: list[str]) -> list[str]:
    """What the entry publishes, and what was taken out of it."""
    from levelbench.competition.making import SETTINGS

    stated = f"{each.author.name}{f' <{each.author.email}>' if each.author.email else ''}"
    code = [] if each.code.commit is None else [f"commit {each.code.commit[:12]}"]
    environment, software = each.provenance.environment, each.provenance.software
    measured = f"{len(each.runs)} runs with their curves" if each.runs else f"{len(each.inference)} measurements"
    doubts, errors = sum(len(run.suspect) for run in each.runs), [run.error for run in each.runs if run.error]
    lines = [
        f"  publishes: {', '.join([stated, measured, f'{len(each.settings)} settings', *code])}; "
        f"{len(environment)} facts about the machine and {len(software)} about its software; {doubts} doubts",
        *(f"  publishes: error of a run: {error}" for error in dict.fromkeys(errors)),
    ]
    names = sorted(name for name in environment if name.startswith(SETTINGS))
    lines += [f"  publishes: {name.rpartition('.')[2]}={environment[name]}" for name in names]
    if hidden:
        lines.append(f"  taken out: {', '.join(hidden)}")
    return lines


def _unranked(each: Submission, folder: Path) -> list[str]:
    """Why the ranking that it is made for will not have the entry; empty if it will."""
    from levelbench.competition.leaderboard import own_rulesets
    from levelbench.competition.scoring import score

    rules = own_rulesets(folder)[0].get(each.ruleset)
    if rules is None:
        return []
    found = score(each, rules)
    figure = found.figure(rules.ranked_by) if each.mode == "training" else found.latency
    figure = figure if found.scenario is None else found.figure(found.scenario.column)
    return [] if figure.value is not None else [f"  not ranked: {figure.how}"]


def _words(each: Submission) -> str:
    """An entry in one line: task, model, system, rules."""
    from levelbench.competition.making import COUNTED

    n, reached = len(each.runs), sum(bool(run.reached) for run in each.runs)
    what = f"{each.task}, {each.model} on {each.framework}, {each.hardware.description}, {each.ruleset}"
    if each.mode == "inference":
        return f"{what}, {each.inference[0].scenario}"
    trials = each.tuning.trials
    hint = "" if trials is None else f"; tuning: {trials} {'trial' if trials == 1 else 'trials'}"
    if trials and COUNTED in (each.tuning.notes or ""):
        hint += " (counted in the store; --tuning-trials states the number)"
    return f"{what}, reached {reached}/{n}{hint}"


def terms_of(given: dict[str, Any], folder: Path | None = None) -> Terms:
    """The facts that no record knows, from the options; ``UsageError`` for impossible ones.

    The ruleset may be one of the leaderboard in ``folder``.
    """
    from levelbench.competition.checks import FLOPS
    from levelbench.competition.entries import Author, TuningEffort
    from levelbench.competition.making import Terms
    from levelbench.competition.signatures import fingerprint, public_text, read_key
    from levelbench.measure.clocks import utc_now

    today = utc_now().date().isoformat()
    key = fingerprint(public_text(read_key(given["key"]).public_key())) if given["key"] is not None else None
    if not given["author"].strip():
        raise UsageError("--author", "it is blank", "say who submits")
    flops = given["flops_per_sample"]
    rules = ruleset_of(given["ruleset_word"], folder)
    only = rules.division_names[0] if len(rules.division_names) == 1 else "open"
    return Terms(
        author=Author(given["author"].strip()[:200], given["email"], given["organisation"], key),
        submitted=today,
        ruleset=rules,
        price=_price(given, today),
        division=given["division"] or only,
        code_url=given["code_url"],
        hardware=given["hardware"],
        model=given["model"],
        tuning=TuningEffort(given["tuning_trials"], given["tuning_hours"], given["tuning_usd"], given["tuning_notes"]),
        settings={} if flops is None else {FLOPS: flops},
        notes=given["notes"],
        only_these=given["because"],
    )


def ruleset_of(word: str, folder: Path | None = None) -> Ruleset:
    """The ruleset with that id, shipped or in the leaderboard in ``folder``, or the one in a ``.toml`` file.

    ``UsageError`` if the leaderboard has another ruleset with the file's id.
    """
    from levelbench.competition.leaderboard import is_new_ruleset, own_rulesets
    from levelbench.competition.rulesets import read_ruleset, ruleset, ruleset_ids
    from levelbench.errors import UnknownNameError

    if word.endswith(".toml"):
        rules = read_ruleset(Path(word))
        if folder is not None:
            is_new_ruleset(folder, rules)
        return rules
    if folder is None or word in ruleset_ids():
        return ruleset(word)
    known, _ = own_rulesets(folder)
    if word not in known:
        raise UnknownNameError("ruleset", word, known)
    return known[word]


def _price(given: dict[str, Any], today: str) -> SystemPrice | None:
    from levelbench.competition.entries import SystemPrice
    from levelbench.competition.figures import PRICE_USD, PRICE_WORDS, is_within

    usd = given["price_per_hour"]
    if usd is None:
        if given["price_source"] or given["price_date"]:
            raise UsageError("--price-source", "there is no price", "give --price-per-hour, in US dollars")
        return None
    if not is_within(usd, PRICE_USD):
        raise UsageError(f"--price-per-hour {usd:g}", "impossible price", f"give {PRICE_WORDS}")
    if not given["price_source"]:
        raise UsageError(f"--price-per-hour {usd:g}", "it has no source", "give --price-source, where it can be read")
    return SystemPrice(usd, given["price_source"], given["price_date"] or today, not given["not_on_demand"])


@click.group("keys")
def keys() -> None:
    """Keys (Ed25519) that prove who sent an entry. Keep the private one; authors.toml has the public ones."""


@keys.command("new", short_help="Make a key for an author.")
@click.argument("name")
@click.option(
    "-o", "--output", type=_FILE, required=True, help="File of the key; an existing file is never overwritten."
)
@shared.answer_options
def new_key_pair(name: str, output: Path, as_json: bool) -> int:
    """Make a key for the author NAME: a PEM file that only you can read, and the line for authors.toml.

    \b
      levelbench board keys new "Ada Lovelace" -o ~/.config/levelbench/ada.pem
    """
    from levelbench.competition.signatures import new_key

    _print_key(name, new_key(output), output, as_json)
    return 0


@keys.command("show", short_help="Public half of a key, and the line for a leaderboard.")
@click.argument("key", type=_FILE)
@click.option("--name", default="NAME", show_default=True, help="The author's name in the line for authors.toml.")
@shared.answer_options
def show_key(key: Path, name: str, as_json: bool) -> int:
    """Show the public half of KEY, its fingerprint, and the line for authors.toml."""
    from levelbench.competition.signatures import public_text, read_key

    _print_key(name, public_text(read_key(key).public_key()), key, as_json)
    return 0


@keys.command("sign", short_help="Sign the bytes of a submission.")
@click.argument("submission", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="The key's PEM file.")
@shared.answer_options
def sign_entry(submission: Path, key: Path, as_json: bool) -> int:
    """Sign the bytes of the file SUBMISSION; the signature is written next to it.

    Sign last: any later change to the file invalidates the signature.
    """
    from levelbench.competition.entries import parse_submission, read_bytes
    from levelbench.competition.signatures import sign

    raw = read_bytes(submission)
    read = parse_submission(raw, f"reading the submission {submission}")
    written = sign(submission, key, raw)
    doubt = _key_doubt(submission, read.author.name, key)
    if as_json:
        shared.emit_json({"signature": str(written), "warning": doubt})
        return 0
    click.echo(shared.visible(f"signature: {written}"))
    if doubt:
        click.echo(shared.visible(f"warning: {doubt}"), err=True)
    return 0


def _key_doubt(submission: Path, author: str, key: Path) -> str | None:
    """Why this key does not fit the author in the leaderboard's ``authors.toml``, if there is one."""
    from levelbench.competition.signatures import AUTHORS, public_text, read_authors, read_key

    folder = submission.absolute().parent
    found = next((each / AUTHORS for each in (folder, *folder.parents[:2]) if (each / AUTHORS).is_file()), None)
    if found is None:
        return None
    authors, public = read_authors(found), public_text(read_key(key).public_key())
    if public in authors.get(author, ()):
        return None
    owner = next((name for name, keys in authors.items() if public in keys), None)
    if owner is not None:
        return f"this is the key of {owner!r} in {found}, but the entry is from {author!r}: a check rejects that"
    said = "lists other keys" if author in authors else "has no key"
    return f"{found} {said} for {author!r}: add this one (levelbench board keys show), or use a listed one"


def _print_key(name: str, public: str, path: Path, as_json: bool) -> None:
    from levelbench.competition.signatures import AUTHORS, fingerprint

    # A JSON string of printable ASCII is also a TOML string.
    line = f'{json.dumps(name)} = ["{public}"]'
    if as_json:
        shared.emit_json({"key": str(path), "public": public, "fingerprint": fingerprint(public), "line": line})
        return
    # Only the line goes to a file: `keys show ada.pem >> authors.toml` adds it.
    click.echo(shared.visible(f"key: {path} (keep it to yourself)"), err=True)
    click.echo(f"fingerprint: {fingerprint(public)}", err=True)
    click.echo(f"line for {AUTHORS}:", err=True)
    click.echo(line)
