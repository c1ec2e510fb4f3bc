"""Texts in records lose credentials, tokens and home folders, and keep everything else."""

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import levelbench.records.schema
from levelbench.records.schema import End, fault, outline, redact, redacted, secret_settings, source_of_text

SECRETS = {
    "https://ada:S3CRET@example.org/data?sig=S3CRET": "https://...",
    "s3://bucket/S3CRET": "s3://...",
    "Authorization: Bearer S3CRETS3CRET": "Authorization: ... ...",
    "HF_TOKEN=hf_S3CRETS3CRETS3CRET": "HF_TOKEN=...",
    "{'api_key': 'S3CRET'}": "{'api_key': '...'}",
    "password=S3CRET, lr=0.1": "password=..., lr=0.1",
    "ghp_S3CRETS3CRETS3CRETS3CRET": "...",
    "eyJhbGciOiS3CRET.eyJzdWIiOiS3CRET.S3CRETS3CRET": "...",
    "no file /home/S3CRET/data/x.bin": "no file ~/data/x.bin",
    "/Users/S3CRET/x": "~/x",
    r"C:\Users\S3CRET\x": "~\\x",
    "GPU-00000000-5ec7-e75e-c7e7-5ec7e75ec7e7": "GPU-...",
    "S3CRET@example.org": "...",
    "connection to 10.11.12.13:29500 refused": "connection to ... refused",
    "train --hf-token S3CRET --lr 0.1": "train --hf-token ... --lr 0.1",
    "train --password 'S3CRET and more' -v": "train --password ... -v",
    "curl -u ada:S3CRET -O": "curl -u ada:... -O",
    "nodes=2,rendezvous=S3CRET,max_restarts=1": "nodes=2,rendezvous=...,max_restarts=1",
}


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_removed_and_the_text_around_it_stays(text):
    assert redact(text) == SECRETS[text]


@pytest.mark.parametrize(
    "text",
    [
        "phases sum to 1.2 s where the run's time is 1.3 s",
        "RuntimeError: shapes (3, 4) and (5, 6) do not fit: Conv, opset 21",
        "torch 2.9.1+cpu, numpy 2.3.4, cuda 12.8.0.1",
        "digits-images-idx3-ubyte 359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96",
        "other programs kept 1.0 of 2 cores busy during the measurement: stop them and measure again",
        "its ranks were restarted (times: 1)",
        "python generate.py --max_tokens=20 --num-tokens 5 --tokenizer bpe",
    ],
)
def test_an_ordinary_sentence_is_not_changed(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('API_KEY = "sk-proj-abcdefghijklmnop"', 'API_KEY = "..."'),
        ("PASSWORD = 'hunter22'", "PASSWORD = '...'"),
        ('def r(token: str = "S3CRETS3CRET"):', 'def r(token: str = "..."):'),
        ('password: str | None = "hunter22"', 'password: str | None = "..."'),
        ('wandb_key = """0123456789abcdef0123"""', 'wandb_key = """..."""'),
        ('"https://host/path?page=2&api_key=S3CRETS"', '"https://host/path?page=2&api_key=..."'),
        ('def r(token: str = "mean"): pass', 'def r(token: str = "mean"): pass'),
        ('os.environ["DB_PASSWORD"]="hunter22"', 'os.environ["DB_PASSWORD"]="..."'),
        ('{"api_key": "xyz12345"}', '{"api_key": "..."}'),
        ('{"Authorization": "Bearer abcDEF123456789tok"}', '{"Authorization": "Bearer ..."}'),
        ('"Authorization: Basic YWRhOmh1bnRlcjI="', '"Authorization: Basic ..."'),
        ('{"Authorization": "abcDEF12"}', '{"Authorization": "..."}'),
        ('passwd = """correct horse\n"""', 'passwd = """..."""'),
        ("password = b'hunter22'", "password = b'...'"),
        ('pw = "hunter22"', 'pw = "..."'),
        ('get(url, auth=("me", "hunter5pass"))', 'get(url, auth=("me", "..."))'),
        ("HTTPBasicAuth('me', 'hunter5pass')", "HTTPBasicAuth('me', '...')"),
        (f'wandb.login(key="{"0a" * 20}")', 'wandb.login(key="...")'),
        ("hub = hf_abcdefghijklmnopqrst", "hub = ..."),
        ('"https://ada:hunter22@example.org/x"', '"https://ada:...@example.org/x"'),
        *(
            (text, text)
            for text in (
                "tokens = tokenizer(text)",
                'eos_token = "<|endoftext|>"',
                'special_tokens = "<pad>,<eos>"',
                'sorted(rows, key="validation_accuracy")',
                'data = "https://example.org/data.zip"',
                'f"Bearer {token}"',
                'help="the basic convolution"',
                'auth=("me", password)',
            )
        ),
    ],
)
def test_the_text_of_a_program_loses_its_keys_and_nothing_else(text, kept):
    found = source_of_text("train.py", text)
    assert found.text == kept
    assert found.digest == hashlib.sha256(kept.encode()).hexdigest()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text):
    assert redact(redact(text)) == redact(text)


def test_the_name_of_this_machine_is_removed(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "ada-laptop")
    assert redact("no route to ada-laptop: timed out") == "no route to ...: timed out"


def test_redacting_a_value_says_where_something_was_removed():
    end = End("failed", 5, {"other": 5}, error="at https://x.org/S3CRET", suspect=["fine", "see /root/x"])
    safe, places = redacted(end)
    assert (safe.error, safe.suspect) == ("at https://...", ["fine", "see ~/x"])
    assert places == ["error", "suspect.1"]


def test_a_value_without_secrets_is_the_same_object():
    end = End("done", 5, {"other": 5})
    assert redacted(end) == (end, [])
    assert redacted(end)[0] is end


FILE = """
def inner():
    raise ValueError("https://ada:S3CRET@example.org")

def outer():
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("S3CRET") from error

def through_a_library():
    import json
    json.loads("S3CRET")
"""


@pytest.fixture
def raised(tmp_path):
    """What a function of a user's file raises, and the file."""
    path = tmp_path / "S3CRET" / "mine.py"
    path.parent.mkdir()
    path.write_text(FILE)
    names = {}
    exec(compile(FILE, str(path), "exec"), names)

    def call(name):
        try:
            names[name]()
        except Exception as error:  # noqa: BLE001
            return error, path
        raise AssertionError

    return call


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("inner", "ValueError in mine.py, line 3, in inner"),
        ("outer", "ValueError in mine.py, line 3, in inner"),
        ("through_a_library", "JSONDecodeError in mine.py, line 13, in through_a_library"),
    ],
)
def test_an_exceptions_type_and_last_line_in_the_users_file_are_kept(raised, name, said):
    error, path = raised(name)
    assert fault(error, path) == said
    assert fault(error) == said


def test_a_cause_only_within_the_package_is_skipped_for_what_the_users_line_raised(tmp_path):
    path = tmp_path / "mine.py"
    names = {}
    inside = "def check(value):\n try:\n  float(value)\n except TypeError as error:\n  raise ValueError from error"
    exec(compile(inside, levelbench.records.schema.__file__, "exec"), names)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        exec(compile("check(None)", str(path), "exec"), names)
    assert fault(caught.value) == "ValueError in mine.py, line 1, in <module>"


def test_an_exception_within_a_package_is_named_by_the_file_below_it():
    error, names = ValueError("S3CRET"), {}
    text = "def redact_at_fault(error): raise error"
    exec(compile(text, levelbench.records.schema.__file__, "exec"), names)
    try:
        names["redact_at_fault"](error)
    except ValueError:
        error.__traceback__ = error.__traceback__.tb_next
    assert fault(error) == "ValueError in levelbench/records/schema.py, line 1, in redact_at_fault"


def test_an_exception_that_was_never_raised_has_only_a_type():
    assert fault(KeyError("S3CRET")) == "KeyError"


def test_a_traceback_of_an_older_record_becomes_its_type_and_place():
    old = (
        "Traceback (most recent call last):\n"
        '  File "/home/ada/levelbench/src/levelbench/experiments/execution.py", line 98, in execute\n'
        '  File "/home/ada/my task.py", line 8, in start\n    raise ValueError("https://S3CRET")\n'
        "ValueError: https://ada:S3CRET@example.org\n"
    )
    assert outline(old) == "ValueError in my task.py, line 8, in start"


def test_another_error_of_an_older_record_is_redacted():
    assert outline("reading /home/ada/x: no such file") == "reading ~/x: no such file"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("token", "S3CRETS3CRET", True),
        ("hf_token", "CLITOKENSECRET", True),
        ("password", "x", True),
        ("api_key", "abc", True),
        ("server", "postgres://ada:hunter22@host/x", True),
        ("token", "class-mean", False),
        ("token", "[MASK]", False),
        ("sort_key", "length", False),
        ("tokenizer", "Byte-Pair-2024", False),
        ("tokens", 2048, False),
        ("password", "", False),
    ],
)
def test_settings_with_secrets_are_distinguished_from_similar_names(name, value, secret):
    assert secret_settings({"lr": 0.1, name: value}) == [name] * secret
