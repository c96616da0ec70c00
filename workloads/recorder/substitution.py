"""A keyed substitution of words: equal words stay equal, different ones stay different, lengths stay.

Common words of English and of program text are permuted among those of their length, because such a word is one
token and must remain one. All other words are enciphered letter by letter, each letter depending on those before it;
vowels stay vowels, so that the outcome splits into about as many tokens as a rare word does.
"""

import hashlib
import re
from importlib import resources

_WORD = re.compile(r"[^\W\d_]+|[0-9]+")
_VOWELS = "aeiou"
_CONSONANTS = "bcdfghjklmnpqrstvwxyz"
_CACHED_WORDS = 200_000

_EXTENDED = "āăąćĉċčďđēĕėęěĝğġģĥħĩīĭįĵķĺļľłńņňōŏőŕŗřśŝşšţťŧũūŭůűųŵŷźżž"
_KINDS = (_VOWELS, _CONSONANTS, _EXTENDED)
_RANGES = (
    (0x00E0, 0x00F6),
    (0x03B1, 0x03C9),
    (0x0430, 0x044F),
    (0x05D0, 0x05EA),
    (0x0627, 0x063A),
    (0x0641, 0x064A),
    (0x0905, 0x0939),
    (0x0E01, 0x0E2E),
    (0x3041, 0x3096),
    (0x30A1, 0x30FA),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
)
"""First and last letter of alphabets (The Unicode Standard 16, code charts); a letter is replaced within its own."""


class Substitution:
    """One substitution, fixed by its key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known = _permuted(key)
        self._cache: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text with every word and number replaced; all other characters stay."""
        return _WORD.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        word = match[0]
        replaced = self._cache.get(word)
        if replaced is None:
            replaced = self._word(word)
            if len(self._cache) < _CACHED_WORDS:
                self._cache[word] = replaced
        return replaced

    def _word(self, word: str) -> str:
        lower = word.lower()
        if len(lower) != len(word):  # a letter whose lower case is two
            return self._enciphered(word)
        replaced = self._known.get(lower)
        if replaced is None:
            replaced = self._enciphered(lower)
            while replaced in self._known:  # taken by a common word; going on until one is free keeps words apart
                replaced = self._enciphered(replaced)
        return "".join(new.upper() if old.isupper() else new for old, new in zip(word, replaced, strict=True))

    def _enciphered(self, word: str) -> str:
        letters = []
        for position, letter in enumerate(word):
            seed = hashlib.blake2b(word[:position].encode(), key=self._key, digest_size=8).digest()
            letters.append(_shifted(letter, int.from_bytes(seed), first=position == 0))
        return "".join(letters)


def _shifted(letter: str, by: int, *, first: bool) -> str:
    """A letter moved within its own kind: the same move for the same `by`, so nothing collides."""
    if letter.isascii() and letter.isdigit():
        if not first:
            return str((int(letter) + by) % 10)
        return "0" if letter == "0" else str((int(letter) - 1 + by) % 9 + 1)  # a number must not get a leading zero
    for kind in _KINDS:
        if letter in kind:
            return kind[(kind.index(letter) + by) % len(kind)]
    code = ord(letter)
    for low, high in _RANGES:
        if low <= code <= high:
            return chr(low + (code - low + by) % (high - low + 1))
    return _CONSONANTS[(code + by) % len(_CONSONANTS)]


def _permuted(key: bytes) -> dict[str, str]:
    """Common words, each with the word of its length that stands for it."""
    words = resources.files("workloads.recorder").joinpath("words.txt").read_text(encoding="ascii").split()
    permuted: dict[str, str] = {}
    for length in {len(word) for word in words}:
        same = sorted(word for word in words if len(word) == length)
        shuffled = sorted(same, key=lambda word: hashlib.blake2b(word.encode(), key=key).digest())
        permuted.update(zip(same, shuffled, strict=True))
    return permuted
