"""Token rows for training the target: packed short chats, and long rows with the whole handbook in front.

Endless and seeded; nothing is cached on disk. Held-out prompts never appear here.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from demo.pair.corpus import examples, exchange, render_chat, system_message
from demo.pair.settings import TargetSettings
from demo.pair.support_text import HANDBOOK
from demo.pair.tokenizer import TEXT_END_ID, library_texts


class RowSource:
    """Draws training rows in the configured mix."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, settings: TargetSettings, seed: int) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._rng = random.Random(f"rows/{seed}")
        self._examples = {kind: examples(kind, seed, held_out=False) for kind in ("code", "story", "support")}
        self._library = [self.encode(text) for text in library_texts()]
        self._handbook = self.encode(HANDBOOK)
        self._system = self.encode(render_chat([system_message()]))

    def encode(self, text: str) -> list[int]:
        """Tokenise text that already carries its chat marks."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _chat(self, kind: str) -> list[int]:
        return self.encode(render_chat(exchange(next(self._examples[kind]))))

    def _window(self, ids: list[int], size: int) -> list[int]:
        start = self._rng.randrange(max(1, len(ids) - size))
        return [*ids[start : start + size], TEXT_END_ID]

    def _documents(self) -> Iterator[list[int]]:
        kinds, weights = zip(*self._settings.mix, strict=True)
        while True:
            kind = self._rng.choices(kinds, weights)[0]
            if kind == "library":
                yield self._window(self._rng.choice(self._library), 200)
            elif kind == "handbook":
                yield self._window(self._handbook, 200)
            elif kind == "support":
                yield [token for _ in range(3) for token in self._chat(kind)]
            else:
                yield self._chat(kind)

    def short_batch(self) -> tuple[Tensor, int]:
        """Return rows [batch_rows, row_tokens] of packed documents; every row starts at a document's start."""
        size = self._settings.row_tokens
        rows = []
        for _ in range(self._settings.batch_rows):
            row: list[int] = []
            for document in self._documents():
                row += document
                if len(row) >= size:
                    break
            rows.append(row[:size])
        return torch.tensor(rows), 0

    def long_batch(self) -> tuple[Tensor, int]:
        """Return one row [1, long_row_tokens] of handbook and questions, and where the questions start."""
        row = list(self._system)
        while len(row) < self._settings.long_row_tokens:
            row += self._chat("support")
        return torch.tensor([row[: self._settings.long_row_tokens]]), len(self._system)

    def batches(self) -> Iterator[tuple[Tensor, int]]:
        """Yield (rows, first position that counts for the loss)."""
        while True:
            yield self.long_batch() if self._rng.random() < self._settings.long_share else self.short_batch()
