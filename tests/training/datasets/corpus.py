"""Generated mails: one, and a folder of a hundred."""

from levelbench.training.datasets.mails import contents_digest


def mail(subject="Hello", body="", kind="text/plain", more=""):
    return f"Subject: {subject}\nContent-Type: {kind}\n{more}\n{body}".encode()


def named(kind, number):
    return f"{kind}/{number:05d}.{number:032x}.txt"


def corpus(folder):
    """A hundred mails, four of them duplicates; returns them and their checksum."""
    mails = []
    for at in range(100):
        kind = "spam-1" if at % 4 == 0 else "easy-ham-1"
        body = f"{'buy cheap' if at % 4 == 0 else 'meeting about'} {'abcdefghij'[at // 10]}{'klmnopqrst'[at % 10]} x"
        if at >= 96:
            body = "buy cheap aa 17" if at % 4 == 0 else f"meeting about zz {at}"
        path = folder / "data" / named(kind, at)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mail(body=body))
        mails.append((named(kind, at), path.read_bytes()))
    return contents_digest(sorted(mails))
