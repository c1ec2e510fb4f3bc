"""``levelbench board keys``: make a key, show its public half, sign an entry."""

from __future__ import annotations

import json
from pathlib import Path

import click

from levelbench.cli import options as shared

__all__ = ["command"]

_FILE = click.Path(path_type=Path)


@click.group("keys")
def command() -> None:
    """Keys (Ed25519) that say who sent an entry. The private one stays with you; authors.toml has the public ones."""


@command.command("new")
@click.argument("name")
@click.option("-o", "--output", type=_FILE, required=True, help="File of the key; never written over.")
@shared.json_option
@shared.debug_option
def new(name: str, output: Path, as_json: bool, debug: bool) -> int:
    """Make a key for the author NAME: a PEM file that only you can read, and the line for authors.toml.

    \b
      levelbench board keys new "Ada Lovelace" -o ~/.config/levelbench/ada.pem
    """
    from levelbench.competition.signatures import new_key

    _say(name, new_key(output), output, as_json)
    return 0


@command.command("show")
@click.argument("key", type=_FILE)
@click.option("--name", default="NAME", show_default=True, help="The author's name in the line for authors.toml.")
@shared.json_option
@shared.debug_option
def show(key: Path, name: str, as_json: bool, debug: bool) -> int:
    """Show the public half of KEY, its fingerprint, and the line for authors.toml."""
    from levelbench.competition.signatures import public_text, read_key

    _say(name, public_text(read_key(key).public_key()), key, as_json)
    return 0


@command.command("sign")
@click.argument("submission", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="The key's PEM file.")
@shared.json_option
@shared.debug_option
def sign(submission: Path, key: Path, as_json: bool, debug: bool) -> int:
    """Sign the bytes of the file SUBMISSION; the signature is written beside it.

    Sign last: whatever changes the file afterwards makes the signature wrong.
    """
    from levelbench.competition.entries import parse_submission, read_bytes
    from levelbench.competition.signatures import sign as sign_file

    raw = read_bytes(submission)
    read = parse_submission(raw, f"reading the submission {submission}")
    written = sign_file(submission, key, raw)
    doubt = _doubt(submission, read.author.name, key)
    if as_json:
        shared.emit_json({"signature": str(written), "warning": doubt})
        return 0
    click.echo(shared.visible(f"signature: {written}"))
    if doubt:
        click.echo(shared.visible(f"warning: {doubt}"), err=True)
    return 0


def _doubt(submission: Path, author: str, key: Path) -> str | None:
    """What ``authors.toml`` of the leaderboard, if there is one, has against this key for that author."""
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
        return f"this is the key of {owner!r} in {found}, and the entry is from {author!r}: a check calls that an error"
    said = "lists other keys" if author in authors else "has no key"
    return f"{found} {said} for {author!r}: add this one (levelbench board keys show), or sign with one of those"


def _say(name: str, public: str, path: Path, as_json: bool) -> None:
    from levelbench.competition.signatures import AUTHORS, fingerprint

    # A JSON string of printable ASCII is a string of TOML too.
    line = f'{json.dumps(name)} = ["{public}"]'
    if as_json:
        shared.emit_json({"key": str(path), "public": public, "fingerprint": fingerprint(public), "line": line})
        return
    # Only the line is for a file: `keys show ada.pem >> authors.toml` adds it.
    click.echo(shared.visible(f"key: {path} (keep it to yourself)"), err=True)
    click.echo(f"fingerprint: {fingerprint(public)}", err=True)
    click.echo(f"line for {AUTHORS}:", err=True)
    click.echo(line)
