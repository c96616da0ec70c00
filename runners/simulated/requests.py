"""From an OpenAI request body to a sequence for the scheduler, or to the error that vLLM would answer.

Reads what changes the answer or its cost: prompt or messages, max_tokens, temperature, seed, stop, ignore_eos,
min_tokens, cache_salt, stream and stream_options. Other fields are accepted and ignored, as sampling details do not
change the model here.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runners.simulated.acceptance import conditional_curve
from runners.simulated.calibration import Kind
from runners.simulated.hashing import digest64, normal
from runners.simulated.sequences import SequenceState
from runners.simulated.setup import EngineSetup
from runners.simulated.text import Answer, render_chat, seed_of, tokenize

__all__ = ["ParsedRequest", "RequestError", "RequestReader"]

_GREEDY_SEED = 0
_LENGTH_STREAM = 13
_COMPLETIONS_MAX_TOKENS = 16
_WRONG_EVERY = 16


class RequestError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        kind: the error's type, e.g. "BadRequestError".
        message: what is wrong.
        param: the field that is wrong.
    """

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request that can be run."""

    sequence: SequenceState
    max_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool


class RequestReader:
    """Reads bodies for one engine.

    Args:
        setup: the engine's configuration.
        wrong_output: whether speculation corrupts the text (a planted fault).
    """

    def __init__(self, setup: EngineSetup, *, wrong_output: bool) -> None:
        self._setup = setup
        self._corrupt = _WRONG_EVERY if wrong_output and setup.speculation is not None else 0
        self._kinds = tuple((re.compile(kind.match), kind) for kind in setup.calibration.kinds)
        self._repeats: dict[int, int] = {}

    def read(self, body: Mapping[str, Any], *, chat: bool) -> ParsedRequest:
        """Make the sequence.

        Raises:
            RequestError: the model is unknown, a field has a wrong value, or the prompt is too long.
        """
        names = self._setup.flags.served_model_name
        if body.get("model", names[0]) not in names:
            raise RequestError(404, "NotFoundError", f"The model `{body['model']}` does not exist.", "model")
        if body.get("n") not in (None, 1):
            raise _bad(f"n is {body['n']}: the simulated engine answers with one choice", "n")
        text, prompt = self._prompt(body, chat=chat)
        max_tokens = self._max_tokens(body, len(prompt), chat=chat)
        kind = next(kind for pattern, kind in self._kinds if pattern.search(text))
        options = body.get("stream_options") or {}
        return ParsedRequest(
            sequence=self._sequence(body, prompt, kind, max_tokens),
            max_tokens=max_tokens,
            stream=bool(body.get("stream")),
            include_usage=bool(options.get("include_usage")),
            continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
        )

    def _sequence(self, body: Mapping[str, Any], prompt: tuple[int, ...], kind: Kind, max_tokens: int) -> SequenceState:
        temperature = self._temperature(body)
        seed = self._answer_seed(body, prompt, temperature)
        speculation, draft = self._setup.speculation, self._setup.calibration.draft

        def curve(cached_share: float) -> tuple[float, ...]:
            if speculation is None:
                return ()
            return conditional_curve(
                kind, draft, speculation, temperature=temperature, seed=seed, cached_share=cached_share
            )

        return SequenceState(
            prompt=prompt,
            answer=self._answer(body, kind, seed, max_tokens),
            seed=seed,
            salt=digest64(str(body.get("cache_salt") or "").encode()),
            context_half_tokens=kind.context_half_tokens,
            curve_for=curve,
        )

    def _answer(self, body: Mapping[str, Any], kind: Kind, seed: int, max_tokens: int) -> Answer:
        natural = round(kind.output_tokens * math.exp(kind.output_sigma * normal(seed, _LENGTH_STREAM)))
        natural = max(natural, int(body.get("min_tokens") or 0), 1)
        ends = not body.get("ignore_eos") and natural <= max_tokens
        stop = body.get("stop") or ()
        stop = (stop,) if isinstance(stop, str) else tuple(map(str, stop))
        return Answer(seed, natural if ends else max_tokens, closed=ends, stop=stop, corrupt=self._corrupt)

    def _prompt(self, body: Mapping[str, Any], *, chat: bool) -> tuple[str, tuple[int, ...]]:
        if chat:
            messages = body.get("messages")
            if not isinstance(messages, list) or not messages or not all(isinstance(m, Mapping) for m in messages):
                raise _bad("messages must be a non-empty list of messages", "messages")
            text = render_chat(messages)
            return text, tokenize(text)
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str) and prompt:
            return prompt, tokenize(prompt)
        if isinstance(prompt, list) and prompt and all(isinstance(token, int) and token >= 0 for token in prompt):
            return "", tuple(prompt)
        raise _bad("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")

    def _max_tokens(self, body: Mapping[str, Any], prompt_tokens: int, *, chat: bool) -> int:
        limit = self._setup.max_model_len
        room = limit - prompt_tokens
        if room < 1:
            raise _bad(
                f"This model's maximum context length is {limit} tokens. However, your prompt contains "
                f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce "
                "the length of the input prompt.",
                "input_tokens",
            )
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        if asked is None:
            return room if chat else min(room, _COMPLETIONS_MAX_TOKENS)
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
            raise _bad(f"max_tokens must be at least 1, got {asked}.", "max_tokens")
        if asked > room:
            raise _bad(
                f"This model's maximum context length is {limit} tokens. However, you requested {asked} output tokens "
                f"and your prompt contains {prompt_tokens} input tokens, for a total of {prompt_tokens + asked} "
                "tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
                "input_tokens",
            )
        return asked

    def _temperature(self, body: Mapping[str, Any]) -> float:
        value = body.get("temperature")
        if value is None:
            value = self._setup.flags.override_generation_config.get("temperature", 1.0)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 2:
            raise _bad(f"temperature must be in [0, 2], got {value}.", "temperature")
        return float(value)

    def _answer_seed(self, body: Mapping[str, Any], prompt: tuple[int, ...], temperature: float) -> int:
        """Greedy answers depend on the prompt alone, sampled ones on the seed or else on how often the prompt came."""
        base = seed_of(prompt)
        if temperature == 0:
            return seed_of(prompt, _GREEDY_SEED)
        if body.get("seed") is not None:
            return seed_of(prompt, 1, int(body["seed"]))
        self._repeats[base] = self._repeats.get(base, 0) + 1
        return seed_of(prompt, 2, self._setup.flags.seed, self._repeats[base])


def _bad(message: str, param: str) -> RequestError:
    return RequestError(400, "BadRequestError", message, param)
