"""voices and spoken-numbers: telephone prompts in five voice sets, of Debian's packages ``asterisk-core-sounds-*-wav``.

A window of a prompt is shown as its log-mel spectrogram. A prompt is the name of a recording, the same in all sets, and
all its windows are in one split. Which set a second is from is mostly the speaker and the recording: neither keywords
nor languages are recognised, and one speaker recorded two of the sets.
"""

from __future__ import annotations

import hashlib
import io
import os
import wave
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.training.datasets.base import Dataset, Normalisation, Split, split_by_digest
from levelbench.training.datasets.places import FileLocation, FileSource
from levelbench.training.datasets.reading import bad, read_bytes
from levelbench.training.pixels import example_seeds, random, uniform, words

Samples = NDArray[np.int16]

SETS: Final = {
    "en_US_f_Allison": "ea8a15d99e2a528d842fd43155e6ef50213edb8752fad3e8843ba20c0b9a1372",
    "es_MX_f_Allison": "0e1cf365f05cb732196ce3b55007ef6f31f4016ad501f3a9b00824ab655edf3d",
    "fr_CA_f_June": "02609607414f44b0fc4d50fbab3da2db8667b53b12bf3bb679f5979a624db660",
    "it_IT_m_Carlo": "faffb3e69da4cbfd00a59a1108ec28decf61aba55623522ae9f3468303646209",
    "ru_RU_f_IvrvoiceRU": "92255044ae0d95fef44df6adfdceb3f2e63fac7f9a2ebf9dba1779b1c612c355",
}
"""The folder of each set, in the order of the labels, and the SHA-256 of its recordings (``recordings_digest``)."""
DEBIAN: Final = Path("/usr/share/asterisk/sounds")

RATE: Final = 8000
BANDS: Final = 40
FRAME: Final = 256
HOP: Final = 128
CALL: Final = 4 * RATE
"""Samples of a call with a spoken number."""
MOST_DIGITS: Final = 4
_CALLS: Final = (2_000, 500, 500)  # for training, for the test and for validation

# Nobody speaks in these; the monkeys are the same in four of the sets.
_NOT_VOICES = ("silence/", "tt-monkeys")
# Recordings under several names, in one or more of the sets: all are in the split of one of them.
_SAME_RECORDING = {
    "conf-usermenu": "conf-adminmenu",
    "conf-usermenu-162": "conf-adminmenu-18",
    "confbridge-binaural-on": "confbridge-binaural-off",
    "confbridge-mute-out": "confbridge-mute-extended",
    "confbridge-rest-list-vol-out": "confbridge-rest-list-vol-in",
    "dir-welcome": "dir-intro",
    "queue-seconds": "seconds",
    "vm-minutes": "minutes",
    "vm-pls-try-again": "please-try-again",
}
# The longest recording has 1.4 MB; a set has up to 600.
_MOST_BYTES = 1 << 22
_MOST_RECORDINGS = 1000
_KIND = "16-bit mono sound of 8,000 samples a second (WAV)"
# Mean and population standard deviation of the bytes / 255 over the training split.
_CONSTANTS: Final = Normalisation((0.5729,), (0.1555,), 255.0, "mean and deviation over the training split")
_OF_CALLS: Final = Normalisation((0.5016,), (0.1616,), 255.0, "mean and deviation over the training split")


class Voices(FileSource):
    """Spectrograms (n, 1, bands, frames) uint8 in half decibels with their normalisation, and labels of five sets."""

    name = "voices"
    licence = "CC BY-SA 3.0; the Italian and Russian sets by Debian's copyright file CC BY 3.0"
    attribution = (
        "Asterisk core sounds 1.6.1, recorded by Allison Smith (English, Spanish), June Wallack (French), Carlo Flora "
        "(Italian) and provided by Maxim Topal (Russian), funded by Digium, Inc."
    )
    split_rule = (
        "prompts ordered by the SHA-256 of their names, those that share a recording as one: the first fifth is the "
        "test split, the next fifth the validation split, the rest for training, in all five sets alike; windows of "
        "one second from the start of a recording, without overlap and remainder"
    )
    size = "5 folders, 2,831 files, 126 MB"
    home = "Debian's and Ubuntu's packages asterisk-core-sounds-{en,es,fr,it,ru}-wav"
    ways = (
        "apt-get install asterisk-core-sounds-{en,es,fr,it,ru}-wav (Debian and Ubuntu; 1.6.1-1 was read); or unpack "
        "them and name the folder that has en_US_f_Allison and the others with --data or LEVELBENCH_DATA"
    )
    downloads = False
    why_not = "packages are installed by you"

    def __init__(self, sets: Mapping[str, str] = SETS, packaged: Path = DEBIAN) -> None:
        self._sets, self._packaged = sets, packaged

    def load(self, folder: Path | None = None) -> Dataset:
        sets, label = self.read(folder)
        splits = []
        for prompts in split_prompts({name for recordings in sets.values() for name in recordings}):
            shown = [
                spectrograms(windows([each for name, each in recordings.items() if name in prompts]))
                for recordings in sets.values()
            ]
            labels = np.repeat(np.arange(len(shown)), [len(each) for each in shown])
            splits.append(Split.of(np.concatenate(shown), labels))
        train, test, validation = splits
        return self.assembled((train, validation, test), len(sets), self._sets, label, normalisation=_CONSTANTS)

    def read(self, folder: Path | None) -> tuple[dict[str, dict[str, Samples]], str]:
        """The recordings of each set by prompt, and where they were found.

        :raises DataError: when they are not those that are expected.
        """
        found = self.located(folder)
        sets = {name: read_recordings(found.held / name) for name in self._sets}
        for name, recordings in sets.items():
            digest = recordings_digest(recordings)
            if digest != self._sets[name]:
                raise DataError(
                    f"reading the voice set in {found.held / name}",
                    f"its recordings have SHA-256 {digest}, and {self._sets[name]} is expected",
                    "Install the package again as in Debian 12, or remove this folder",
                )
        return sets, found.label

    def held(self, folder: Path) -> Path | None:
        """The folder, if it has one for each set."""
        every = (folder / name for name in self._sets)
        return folder if all(os.access(each, os.R_OK | os.X_OK) and each.is_dir() for each in every) else None

    def packaged(self) -> Sequence[FileLocation]:
        """Where the Debian and Ubuntu packages put them."""
        return [FileLocation("the packages asterisk-core-sounds-*-wav", self._packaged)]


@final
class SpokenNumbers(Voices):
    """Columns: spectrograms (n, 1, bands, 249) uint8 of four seconds, and digits (n, 4) int64: each plus 1, 0 after.

    Two to four digits are put one after another, and other prompts behind them. Made, and records say so: the same
    fifty recordings of digits are in all splits, where neither a number nor what is behind it is in two.
    """

    name = "spoken-numbers"
    split_rule = (
        "numbers of two to four digits ordered by the SHA-256 of their digits, and prompts as in voices: the first "
        "fifth is for the test split, the next fifth for the validation split, the rest for training; 2,000 calls for "
        "training and 500 for each of the others, drawn by SplitMix64: a number, one of the five voice sets, pauses, "
        "levels, and four seconds of the split's other prompts, at half the number's level at most"
    )

    def load(self, folder: Path | None = None) -> Dataset:
        """The calls, put together anew each time from the recordings and a fixed seed."""
        sets, label = self.read(folder)
        spoken = [[recordings[f"digits/{digit}"] for digit in range(10)] for recordings in sets.values()]
        others = {name for recordings in sets.values() for name in recordings if not name.startswith("digits/")}
        splits = []
        for at, (prompts, numbers) in enumerate(zip(split_prompts(others), split_numbers(), strict=True)):
            behind = np.concatenate([all_of[name] for all_of in sets.values() for name in all_of if name in prompts])
            calls, digits = calling(spoken, behind, numbers, _CALLS[at], at)
            splits.append(Split((spectrograms(calls), digits), 1))
        train, test, validation = splits
        parts = (train, validation, test)
        return self.assembled(parts, 0, self._sets, f"put together of {label}", normalisation=_OF_CALLS, synthetic=True)


def split_numbers() -> list[list[str]]:
    """The numbers of two to four digits for training, for the test and for validation, by their digits alone."""
    names = [f"{number:0{digits}}" for digits in range(2, MOST_DIGITS + 1) for number in range(10**digits)]
    parts = split_by_digest(map(str.encode, names), None, lambda count: (count // 5,) * 2)
    return [[names[at] for at in part] for part in parts]


def calling(
    spoken: Sequence[Sequence[Samples]], behind: Samples, numbers: Sequence[str], count: int, seed: int
) -> tuple[Samples, NDArray[np.int64]]:
    """``count`` calls (count, 32000), and the digits (count, 4) said in each, plus 1.

    ``spoken`` are the ten digits of each voice set, ``behind`` the samples to be put behind them. What does not fit any
    more is not said.
    """
    seeds = example_seeds(seed, 0, np.arange(count))
    by_length = [[each for each in numbers if len(each) == length] for length in sorted(set(map(len, numbers)))]
    lengths, voices = uniform(seeds, 0, 0, len(by_length) - 1), uniform(seeds, 1, 0, len(spoken) - 1)
    # In 256ths; whole numbers, so that the calls are the same bytes everywhere.
    loud, soft = uniform(seeds, 2, 128, 255), uniform(seeds, 3, 0, 128)
    starts = (words(seeds, 4) % np.uint64(len(behind) - CALL)).astype(np.int64)
    which, pauses = words(seeds, 5), np.stack([random(seeds, 6 + at) for at in range(MOST_DIGITS)], axis=1)
    calls, digits = np.zeros((count, CALL), np.int16), np.zeros((count, MOST_DIGITS), np.int64)
    for row in range(count):
        chosen = by_length[lengths[row]]
        number = [int(each) for each in chosen[int(which[row] % np.uint64(len(chosen)))]]
        ends = np.cumsum([len(spoken[voices[row]][digit]) for digit in number])
        said = int((ends <= CALL).sum())
        # The room that is left, shared at random by the pauses before the digits and the one after the last.
        room = np.sort((pauses[row, :said] * (CALL - ends[said - 1])).astype(np.int64))
        call = behind[starts[row] : starts[row] + CALL].astype(np.int32) * soft[row] >> 8
        for at, digit in enumerate(number[:said]):
            part = spoken[voices[row]][digit]
            call[room[at] + ends[at] - len(part) : room[at] + ends[at]] += part
            digits[row, at] = digit + 1
        calls[row] = np.clip(call * loud[row] >> 8, -(1 << 15), (1 << 15) - 1)
    return calls, digits


def read_wav(path: Path) -> Samples:
    """The samples of a WAV file, (n,) int16.

    :raises MissingError: when the file does not exist.
    :raises DataError: when it is not 16-bit mono PCM of 8,000 samples a second, or is shorter than its header claims.
    """
    content = read_bytes(path, _MOST_BYTES)
    try:
        with wave.open(io.BytesIO(content)) as sound:
            found, claimed = sound.getparams(), sound.getnframes()
            frames = sound.readframes(claimed)
    except (wave.Error, EOFError, RuntimeError) as error:  # RuntimeError: a claim beyond the end
        raise bad(path, _KIND, f"its header is damaged ({str(error) or 'it ends inside it'})") from None
    if (found.nchannels, found.sampwidth, found.framerate) != (1, 2, RATE):
        shape = f"{found.nchannels} channels of {8 * found.sampwidth} bits, {found.framerate} a second"
        raise bad(path, _KIND, f"it has {shape}")
    if len(frames) != 2 * claimed:
        raise bad(path, _KIND, f"it is truncated: {len(frames):,} of the {2 * claimed:,} bytes of its samples")
    return np.frombuffer(frames, "<i2").astype(np.int16, copy=False)


def read_recordings(folder: Path) -> dict[str, Samples]:
    """The recordings in a folder and in its folders by prompt, such as ``digits/1``, in the order of their names."""
    paths = [*folder.glob("*.wav"), *folder.glob("*/*.wav")]
    if len(paths) > _MOST_RECORDINGS:
        found = f"it has {len(paths):,} recordings, and {_MOST_RECORDINGS:,} is the limit"
        raise DataError(f"reading the voice set in {folder}", found, "Remove what the package did not put there")
    named = {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
    return {name: read_wav(named[name]) for name in sorted(named) if not name.startswith(_NOT_VOICES)}


def recordings_digest(recordings: Mapping[str, Samples]) -> str:
    """The SHA-256 of ``name<tab>number of samples<line feed>`` and the samples, little-endian, of all in order."""
    digest = hashlib.sha256()
    for name, samples in recordings.items():
        digest.update(os.fsencode(f"{name}\t{len(samples)}\n") + samples.astype("<i2", copy=False).tobytes())
    return digest.hexdigest()


def split_prompts(prompts: Collection[str]) -> list[set[str]]:
    """The prompts for training, for the test and for validation, by their names alone."""
    kept_as = {each: _SAME_RECORDING.get(each, each) for each in prompts}
    names = sorted(set(kept_as.values()))
    parts = split_by_digest(map(str.encode, names), None, lambda count: (count // 5,) * 2)
    chosen = [{names[at] for at in part} for part in parts]
    return [{each for each, name in kept_as.items() if name in part} for part in chosen]


def windows(recordings: Sequence[Samples]) -> Samples:
    """(n, 8000): each recording cut into seconds, without its remainder."""
    seconds = [each[: len(each) // RATE * RATE].reshape(-1, RATE) for each in recordings]
    return np.concatenate([np.empty((0, RATE), np.int16), *seconds])


def spectrograms(seconds: Samples) -> NDArray[np.uint8]:
    """(n, 1, bands, frames): log-mel spectrograms of (n, samples), in half decibels above one unit of power.

    Frames are of 32 ms with a Hann window, every 16 ms. In float64 and rounded to bytes, so that they are the same
    bytes whatever library computes the transform.
    """
    frames = 1 + (seconds.shape[1] - FRAME) // HOP
    shown = np.empty((len(seconds), 1, BANDS, frames), np.uint8)
    hann, filters = np.hanning(FRAME + 1)[:-1], mel_filters()
    for start in range(0, len(seconds), 64):  # in pieces that stay in the cache
        framed = np.lib.stride_tricks.sliding_window_view(seconds[start : start + 64], FRAME, axis=1)[:, ::HOP]
        spectrum = np.fft.rfft(framed * hann)
        power = (spectrum.real**2 + spectrum.imag**2) @ filters.T
        shown[start : start + 64, 0] = np.minimum(np.rint(20 * np.log10(1 + power)), 255).transpose(0, 2, 1)
    return shown


def mel_filters() -> NDArray[np.float64]:
    """(bands, frame // 2 + 1): triangles of equal width on the mel scale, 2595 log10(1 + f / 700), up to 4 kHz."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    bins = np.arange(FRAME // 2 + 1) * RATE / FRAME
    rising = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    falling = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling))
