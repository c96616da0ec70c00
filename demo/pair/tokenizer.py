"""The demo pair's byte-level BPE tokenizer: training, the chat template and saving in Hugging Face layout.

Trained on the pair's own text plus the standard library sources of the running interpreter, so that text from outside
the grammar still splits sensibly. Ids 0 to 2 are the text end and the two chat marks; the last id is the draft's mask.
"""

import itertools
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from demo.pair.corpus import KINDS, examples
from demo.pair.support_text import HANDBOOK

TEXT_END, CHAT_START, CHAT_END, MASK = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"
TEXT_END_ID, CHAT_START_ID, CHAT_END_ID = 0, 1, 2
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_EXAMPLES_PER_KIND = 3000


def library_texts(limit: int = 100) -> Iterator[str]:
    """Yield the first `limit` standard library modules of this interpreter, by name."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:limit]:
        yield path.read_text(encoding="utf-8")


def _training_texts(seed: int) -> Iterator[str]:
    yield from [HANDBOOK] * 50
    for kind in KINDS:
        for example in itertools.islice(examples(kind, seed, held_out=False), _EXAMPLES_PER_KIND):
            yield example.prompt
            yield example.answer
    yield from library_texts()


def train_tokenizer(vocab_size: int, seed: int, folder: Path) -> PreTrainedTokenizerFast:
    """Train the tokenizer and save it (tokenizer.json, tokenizer_config.json, chat template) into a folder."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        special_tokens=[TEXT_END, CHAT_START, CHAT_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_training_texts(seed), trainer)
    bpe.add_special_tokens([MASK])
    if bpe.get_vocab_size() != vocab_size:
        raise ValueError(f"the corpus gave {bpe.get_vocab_size()} tokens instead of {vocab_size}; add text")
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # transformers leaves it untyped
        tokenizer_object=bpe,
        eos_token=CHAT_END,
        pad_token=TEXT_END,
        unk_token=TEXT_END,
        model_max_length=8192,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer
