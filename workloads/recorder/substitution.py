"""A keyed substitution of words: within a recording equal words stay equal, different ones different, lengths the same.

What replaces a word must split into about as many tokens, or a replay would measure other prompts. So the words that
come first, which are the frequent ones, get common words of their length (one token, as they mostly were), the later
ones two common words in one (two tokens), and what is left is enciphered letter by letter. Pages and modules of this
project, English and Python, have 0.96 to 1.04 times their number of GPT-2 tokens afterwards.
"""

import hashlib
import re
from collections import defaultdict
from importlib import resources

_WORD = re.compile(r"[^\W\d_]+|[0-9]+")
_VOWELS = "aeiou"
_CONSONANTS = "bcdfghjklmnpqrstvwxyz"
_REMEMBERED_WORDS = 200_000
_ATTEMPTS = 16

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
    """One substitution; which word gets which is decided by the key when the word is first met."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._common = _common_words()
        self._free = {length: list(words) for length, words in self._common.items()}
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def text(self, text: str) -> str:
        """The text with every word and number replaced; all other characters stay."""
        return _WORD.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        word = match[0]
        lower = word.lower()
        if len(lower) != len(word):  # a letter whose lower case is two
            return self._enciphered(word)
        new = self._given.get(lower)
        if new is None:
            new = self._chosen(lower)
            if len(self._given) < _REMEMBERED_WORDS:
                self._given[lower] = new
                self._taken.add(new)
        if lower is word or lower == word:
            return new
        return "".join(letter.upper() if old.isupper() else letter for old, letter in zip(word, new, strict=True))

    def _chosen(self, word: str) -> str:
        full = len(self._given) >= _REMEMBERED_WORDS
        if word.isascii() and word.isalpha() and not full:
            free = self._free.get(len(word))
            if free:
                return free.pop(self._number(word) % len(free))
            for attempt in range(_ATTEMPTS if len(word) > 3 else 0):
                pair = self._pair(word, attempt)
                if not self._is_taken(pair):
                    return pair
        new = self._enciphered(word)
        for _ in range(_ATTEMPTS):
            if not self._is_taken(new):
                break
            new = self._enciphered(new)
        return new

    def _is_taken(self, word: str) -> bool:
        return word in self._taken or word in self._common.get(len(word), ())

    def _pair(self, word: str, attempt: int) -> str:
        """Two common words that are together as long as the word, or three for a very long one."""
        count = max(2, -(-len(word) // max(self._common)))
        number = self._number(f"{attempt} {word}")
        parts = []
        for part in range(count):
            same = self._common[len(word) // count + (part < len(word) % count)]
            parts.append(same[number % len(same)])
            number //= len(same)
        return "".join(parts)

    def _enciphered(self, word: str) -> str:
        """Each letter moved within its kind by what the letters before it decide: equal lengths, no two alike."""
        letters = []
        for position, letter in enumerate(word):
            letters.append(_shifted(letter, self._number(f"< {word[:position]}"), first=position == 0))
        return "".join(letters)

    def _number(self, text: str) -> int:
        return int.from_bytes(hashlib.blake2b(text.encode(), key=self._key, digest_size=12).digest())


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


def _common_words() -> dict[int, list[str]]:
    """Common words of English and of program text by their length, one token each in most vocabularies."""
    words: dict[int, list[str]] = defaultdict(list)
    for word in resources.files("workloads.recorder").joinpath("words.txt").read_text(encoding="ascii").split():
        words[len(word)].append(word)
    return dict(words)
