"""voices: seconds of telephone prompts in five voice sets, of Debian's packages ``asterisk-core-sounds-*-wav``.

A window of one second is shown as its log-mel spectrogram, and its set is to be told. That is mostly the speaker and
the recording: neither keywords nor languages are recognised, and one speaker recorded two of the sets. A prompt is the
name of a recording, the same in all sets, and all its windows are in one split.
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
FRAMES: Final = 1 + (RATE - FRAME) // HOP

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


@final
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
        splits = []
        for prompts in split_prompts({name for recordings in sets.values() for name in recordings}):
            shown = [
                spectrograms(windows([each for name, each in recordings.items() if name in prompts]))
                for recordings in sets.values()
            ]
            labels = np.repeat(np.arange(len(shown)), [len(each) for each in shown])
            splits.append(Split.of(np.concatenate(shown), labels))
        train, test, validation = splits
        return self.assembled((train, validation, test), len(sets), self._sets, found.label, normalisation=_CONSTANTS)

    def held(self, folder: Path) -> Path | None:
        """The folder, if it has one for each set."""
        every = (folder / name for name in self._sets)
        return folder if all(os.access(each, os.R_OK | os.X_OK) and each.is_dir() for each in every) else None

    def packaged(self) -> Sequence[FileLocation]:
        """Where the Debian and Ubuntu packages put them."""
        return [FileLocation("the packages asterisk-core-sounds-*-wav", self._packaged)]


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
    """(n, 1, bands, frames): log-mel spectrograms of (n, 8000), in half decibels above one unit of power.

    Frames are of 32 ms with a Hann window, every 16 ms. In float64 and rounded to bytes, so that they are the same
    bytes whatever library computes the transform.
    """
    shown = np.empty((len(seconds), 1, BANDS, FRAMES), np.uint8)
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
