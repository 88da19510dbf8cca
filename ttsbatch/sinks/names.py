"""File names from ids: safe on Linux, macOS and Windows, and never the same for two rows.

A name depends on the row and on the set of rows, never on the order in which they are made. A
name that had to be changed, or that two rows would share where case does not count, carries a
hash of the id.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array

import numpy as np

from ttsbatch.types import Utterance

MAX_NAME_BYTES = 255 - 8  # of a file system, less the longest extension of ours
MAX_PATH_BYTES = 800  # of folders and name together; PATH_MAX is 4096 with OUT in it
AUDIO_EXTENSIONS = (".wav", ".flac", ".opus", ".mp3")
_OWN_EXTENSIONS = (*AUDIO_EXTENSIONS, ".npy")

_UNSAFE = re.compile(r'[<>:"|?*\\/\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_RESERVED = re.compile(r"CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³]", re.IGNORECASE)


def id_suffix(utterance_id: str) -> str:
    """`-` and ten hex digits of the id's hash."""
    data = utterance_id.encode("utf8", "surrogatepass")
    return "-" + hashlib.blake2b(data, digest_size=5).hexdigest()


def fold(path: str) -> str:
    """What a path is to a file system that ignores case and Unicode normalisation."""
    folded = unicodedata.normalize("NFC", path).casefold()
    return unicodedata.normalize("NFC", folded)


def safe_path(utterance_id: str, file_name: str | None) -> str:
    """The row's path below its shard, `/` between folders, without extension.

    Ends in `id_suffix` if anything of the wish had to be changed.
    """
    wish = _without_extension(file_name) if file_name else utterance_id
    parts = wish.split("/") if file_name else [wish]
    safe = [_safe_part(p, folder=i + 1 < len(parts)) for i, p in enumerate(parts)]
    safe = [p for p in safe if p] or ["row"]
    path = "/".join(safe)
    if path == wish and _fits(path, safe):
        return path
    suffix = id_suffix(utterance_id)
    safe = [_cut(p, MAX_NAME_BYTES) for p in safe[:-1]] + [_cut(safe[-1], MAX_NAME_BYTES - 11)]
    path = "/".join(safe) + suffix
    return path if len(path.encode("utf8")) <= MAX_PATH_BYTES else safe[-1] + suffix


def _fits(path: str, parts: list[str]) -> bool:
    longest = max(len(p.encode("utf8")) for p in parts)
    return longest <= MAX_NAME_BYTES and len(path.encode("utf8")) <= MAX_PATH_BYTES


def _without_extension(file_name: str) -> str:
    for extension in AUDIO_EXTENSIONS:
        if file_name.casefold().endswith(extension):
            return file_name[: -len(extension)]
    return file_name


def _safe_part(part: str, folder: bool) -> str:
    safe = _UNSAFE.sub("_", part)
    safe = re.sub(r"^[-. ]+", "_", safe)
    safe = re.sub(r"[. ]+$", "_", safe)
    if folder and safe.casefold().endswith(_OWN_EXTENSIONS):  # "a.wav/b" beside the file "a.wav"
        safe = safe.replace(".", "_")
    if _RESERVED.fullmatch(safe.split(".")[0].rstrip(" ")):
        safe = "_" + safe
    return safe


def _cut(part: str, max_bytes: int) -> str:
    """The start of a name, cut between characters; no space or dot left at its end."""
    return part.encode("utf8")[:max_bytes].decode("utf8", "ignore").rstrip(" .") or "_"


class NameBook:
    """Knows which names two rows of the corpus would share. 8 bytes a row.

    Every row is noted before the first name is asked for; a row that was not noted is named as
    if it had the name to itself.
    """

    def __init__(self) -> None:
        self._noted = array("Q")
        self._shared: frozenset[int] | None = None

    def note(self, utterance: Utterance) -> None:
        """Take down the name that a row of the corpus would like."""
        self.note_path(safe_path(utterance.id, utterance.file_name))

    def note_path(self, path: str) -> None:
        """The same for a path of one's own making."""
        self._noted.append(_name_hash(path))
        self._shared = None

    def path(self, utterance: Utterance) -> str:
        """The row's path below its shard, without extension."""
        return self.unshared(utterance.id, safe_path(utterance.id, utterance.file_name))

    def unshared(self, utterance_id: str, path: str) -> str:
        """The path, or one with the id's hash if another row would have the same."""
        if self._shared is None:
            values, counts = np.unique(np.array(self._noted, np.uint64), return_counts=True)
            self._shared = frozenset(values[counts > 1].tolist())
        return own_path(utterance_id, path) if _name_hash(path) in self._shared else path


def own_path(utterance_id: str, path: str) -> str:
    """The path with the id's hash, for a name that is not the row's alone."""
    suffix = id_suffix(utterance_id)
    if path.endswith(suffix):
        return path
    folder, slash, name = path.rpartition("/")
    return folder + slash + _cut(name, MAX_NAME_BYTES - len(suffix)) + suffix


def _name_hash(path: str) -> int:
    digest = hashlib.blake2b(fold(path).encode("utf8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
