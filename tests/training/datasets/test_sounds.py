"""voices and spoken-numbers: WAV files, whole and damaged, what a window and a call have, and the splits."""

import hashlib
import wave

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training import datasets
from levelbench.training.datasets import sounds
from levelbench.training.datasets.sounds import RATE, Voices

pytestmark = pytest.mark.usefixtures("own_cache")


def write(path, samples, channels=1, width=2, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as sound:
        sound.setparams((channels, width, rate, 0, "NONE", ""))
        sound.writeframes(np.asarray(samples, "<i2").tobytes())
    return path


def tone(hertz, seconds=1.0):
    return np.rint(1000 * np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE)).astype(np.int16)


@pytest.fixture
def made(tmp_path):
    """Two sets of 20 prompts of two seconds and a half, and their source."""
    for at, folder in enumerate(("low", "high")):
        for prompt in range(20):
            write(tmp_path / folder / f"p{prompt}.wav", tone(200 + 1000 * at + prompt, 2.5))
    return Voices({name: digest(tmp_path / name) for name in ("low", "high")}, tmp_path)


def digest(folder):
    return sounds.recordings_digest(sounds.read_recordings(folder))


# WAV


def test_samples_are_read_as_they_were_written(tmp_path):
    samples = np.array([0, 1, -1, 32767, -32768], np.int16)
    np.testing.assert_array_equal(sounds.read_wav(write(tmp_path / "a.wav", samples)), samples)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda old: b"", "its header is damaged"),
        (lambda old: b"RIFX" + old[4:], "its header is damaged"),
        (lambda old: old[:30], "its header is damaged"),
        (lambda old: old[:20] + b"\7\0" + old[22:], "its header is damaged .unknown format: 7"),
        (lambda old: old[:22] + b"\0\0" + old[24:], "its header is damaged"),
        (lambda old: old[:-2], "it is truncated: 14 of the 16 bytes"),
        (lambda old: old[:40] + b"\xff\xff\xff\x7f" + old[44:], "it is truncated: 16 of the 2,147,483,646 bytes"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(tmp_path, change, said):
    path = write(tmp_path / "a.wav", np.arange(8))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=said):
        sounds.read_wav(path)


@pytest.mark.parametrize("kind", [{"channels": 2}, {"width": 1}, {"rate": 16000}])
def test_sound_of_another_kind_is_refused(tmp_path, kind):
    with pytest.raises(DataError, match="16-bit mono sound of 8,000 samples a second"):
        sounds.read_wav(write(tmp_path / "a.wav", np.arange(8), **kind))


def test_any_bytes_are_samples_or_a_data_error(tmp_path):
    path = write(tmp_path / "a.wav", np.arange(8))
    whole, draws = path.read_bytes(), np.random.default_rng(0)
    changed = [whole[:length] for length in range(len(whole))]
    for at in draws.integers(0, 44, 300).tolist():
        changed.append(whole[:at] + bytes(draws.integers(0, 256, 4, dtype=np.uint8)) + whole[at + 4 :])
    for content in changed:
        path.write_bytes(content)
        try:
            assert len(sounds.read_wav(path)) <= len(whole)
        except DataError as error:
            assert str(path) in error.asked  # noqa: PT017 - most are refused, some are whole


def test_a_file_larger_than_any_prompt_is_not_read(tmp_path):
    path = write(tmp_path / "a.wav", np.arange(8))
    with path.open("r+b") as file:
        file.truncate(1 << 23)
    with pytest.raises(DataError, match="is the limit"):
        sounds.read_wav(path)


# Windows


def test_recordings_are_cut_into_seconds_without_their_remainder():
    cut = sounds.windows([np.arange(2 * RATE + 5, dtype=np.int16), np.ones(RATE - 1, np.int16)])
    np.testing.assert_array_equal(cut, np.arange(2 * RATE, dtype=np.int16).reshape(2, RATE))


@pytest.mark.parametrize("hertz", [100, 440, 1000, 3500])
def test_a_tone_is_loudest_in_the_band_around_it(hertz):
    (shown,) = sounds.spectrograms(tone(hertz)[None])[:, 0]
    around = sounds.mel_filters()[:, round(hertz / RATE * sounds.FRAME)]
    assert shown.shape == (sounds.BANDS, 61)
    assert set(shown.argmax(axis=0).tolist()) <= set(np.flatnonzero(around).tolist())


def test_twice_the_amplitude_is_six_decibels_more_and_silence_is_zero():
    quiet, loud, silent = sounds.spectrograms(np.stack([tone(1000), 2 * tone(1000), 0 * tone(1000)]))[:, 0].max((1, 2))
    assert loud - quiet == 12
    assert silent == 0


# Splits


def test_all_windows_of_a_prompt_are_in_one_split_in_all_sets(made):
    data = made.load()
    assert data.sizes() == {"train": 48, "validation": 16, "test": 16}
    for split in data.splits().values():
        assert np.bincount(split.labels).tolist() == [len(split) // 2] * 2
        assert split.inputs.dtype == np.uint8


def test_prompts_that_share_a_recording_are_in_one_split():
    shared = sounds._SAME_RECORDING
    prompts = {*shared, *shared.values(), *map(str, range(100))}
    parts = sounds.split_prompts(prompts)
    assert sorted(each for part in parts for each in part) == sorted(prompts)
    assert all(any({alias, name} <= part for part in parts) for alias, name in shared.items())


def test_silence_and_monkeys_are_not_voices(tmp_path):
    for name in ("silence/1", "tt-monkeys", "digits/1", "tt-weasels"):
        write(tmp_path / f"{name}.wav", np.arange(8))
    assert list(sounds.read_recordings(tmp_path)) == ["digits/1", "tt-weasels"]


def test_another_sample_is_refused(made, tmp_path):
    write(tmp_path / "low" / "p3.wav", tone(203, 2.5) + np.eye(1, int(2.5 * RATE), dtype=np.int16)[0])
    with pytest.raises(DataError, match=r"low.*recordings have SHA-256"):
        made.load()


def test_another_name_is_refused(made, tmp_path):
    (tmp_path / "low" / "p3.wav").rename(tmp_path / "low" / "p30.wav")
    with pytest.raises(DataError, match="recordings have SHA-256"):
        made.load()


def test_without_the_packages_a_line_says_how_to_get_them(tmp_path):
    source = Voices(packaged=tmp_path)
    assert "levelbench data list voices" in source.lacks()
    with pytest.raises(MissingError, match="not in the cache") as caught:
        source.load()
    assert "apt-get install asterisk-core-sounds-{en,es,fr,it,ru}-wav" in caught.value.do


# Calls


def test_a_call_has_the_digits_of_its_number_in_their_order_and_nothing_else_where_nothing_is_behind():
    # Digit d of the second set is a pulse of height 256 (d + 1) in 100 samples, those of the first are negative.
    spoken = [[sign * np.full(100, 256 * (digit + 1), np.int16) for digit in range(10)] for sign in (-1, 1)]
    silence = np.zeros(2 * sounds.CALL, np.int16)
    calls, digits = sounds.calling(spoken, silence, ["07", "3115"], 50, seed=1)
    said = set()
    for call, labels in zip(calls.astype(np.int64), digits, strict=True):
        number = labels[labels > 0]
        assert np.flatnonzero(call).size == 100 * len(number)
        heights = np.abs(call[np.flatnonzero(call)][::100])
        # All are as loud as the call: height / (digit + 1) is the same but for rounding down.
        level = heights / number
        assert np.ptp(level) <= 1
        assert 127 <= level.min() <= 255
        said.add("".join(str(each - 1) for each in number))
        assert np.all(labels[len(number) :] == 0)
    assert said == {"07", "3115"}
    assert (calls < 0).any()
    assert (calls > 0).any()


def test_what_does_not_fit_into_a_call_is_not_said():
    spoken = [[np.ones(sounds.CALL // 3, np.int16)] * 10]
    _, digits = sounds.calling(spoken, np.zeros(2 * sounds.CALL, np.int16), ["1234"], 3, seed=0)
    assert digits.tolist() == [[2, 3, 4, 0]] * 3


def test_what_is_behind_a_number_has_half_its_level_at_most():
    behind = np.full(2 * sounds.CALL, 10_000, np.int16)
    calls, _ = sounds.calling([[np.zeros(9, np.int16)] * 10], behind, ["12"], 200, seed=0)
    levels = calls[:, 0] / 10_000
    assert levels.min() < 0.05
    assert 0.4 < levels.max() <= 0.5
    assert np.all(calls == calls[:, :1])


def test_no_number_is_in_two_splits():
    train, test, validation = map(set, sounds.split_numbers())
    assert len(train) == 6_660
    assert len(test) == len(validation) == 2_220
    assert not train & test
    assert not train & validation
    assert not test & validation


# Debian's packages


@pytest.mark.slow
def test_the_calls_are_these():
    source = datasets.source("spoken-numbers")
    if lacking := source.lacks():
        pytest.skip(lacking)
    calls = source.load()
    assert calls.sizes() == {"train": 2000, "validation": 500, "test": 500}
    assert calls.synthetic
    found = [
        hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest()[:16]
        for split in calls.splits().values()
        for each in (split.columns[0], split.columns[1].astype("<i8"))
    ]
    assert found == [
        *("ad82e3c3910b39c8", "b8584863ad255749"),
        *("e4363abf6a30ba2d", "55e30e2ce1e7a859"),
        *("d7329a1d22ee553a", "6dbf2b7ab0b7b8b6"),
    ]
    shown = calls.train.inputs / 255
    assert (shown.mean(), shown.std()) == pytest.approx((*calls.normalisation.mean, *calls.normalisation.std), abs=1e-4)


@pytest.fixture(scope="module")
def voices():
    source = datasets.source("voices")
    if lacking := source.lacks():
        pytest.skip(lacking)
    return source.load()


@pytest.mark.slow
def test_the_splits_are_these(voices):
    assert voices.sizes() == {"train": 3570, "validation": 1042, "test": 1354}
    found = [
        hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest()[:16]
        for split in voices.splits().values()
        for each in (split.inputs, split.labels.astype("<i8"))
    ]
    assert found == [
        *("adfc48511607a831", "9b47ed97317bb82d"),
        *("f724d66a1be44342", "d8dcba9b0723e016"),
        *("73d7a5acce4a0b25", "6cc0d93e1dc45737"),
    ]


@pytest.mark.slow
def test_constants_are_those_of_the_training_split(voices):
    shown = voices.train.inputs / 255
    assert (shown.mean(), shown.std()) == pytest.approx(
        (*voices.normalisation.mean, *voices.normalisation.std), abs=1e-4
    )


@pytest.mark.slow
def test_simple_predictors_get_what_was_measured(voices):
    """The most frequent set and the nearest mean energy, which docs/evidence/small-tasks.md states."""
    train, (validation, test) = voices.train, (voices.validation, voices.test)
    energy = np.array([train.inputs[train.labels == each].mean() for each in range(5)])
    found = []
    for split in (validation, test):
        frequent = np.bincount(train.labels).argmax()
        nearest = np.abs(split.inputs.mean((1, 2, 3))[:, None] - energy).argmin(axis=1)
        found += [np.mean(split.labels == frequent), np.mean(split.labels == nearest)]
    assert found == pytest.approx([0.2620, 0.2937, 0.2548, 0.3205], abs=1e-4)
