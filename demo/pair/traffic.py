"""Writes the recorded sample traffic: three routes with the demo pair's held-out prompts, in the native format.

The same seed gives the same file. Arrival times, sessions and sampling settings are drawn here; token counts come from
the demo tokenizer, the only thing that needs more than the standard library. Run from the repository root with the
engine environment's Python:

    python -m demo.pair.traffic

Nobody sent these requests to a server: `recorded` holds what the corpus itself answers, not a measurement.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo.pair.corpus import Example, examples, exchange, render_chat, system_message

TOKENIZER = Path("demo/models/target/tokenizer.json")
OUT = Path("workloads/samples/api_traffic.jsonl")
SEED = 7
MODEL = "demo-target"
CODE_REQUESTS = STORY_REQUESTS = 80
SUPPORT_TURNS = (2, 3, 2, 3)
"""Turns per support session, repeated; 32 sessions make 80 requests."""
SUPPORT_SESSIONS = 32
DURATION_S = 300.0
BURSTINESS = 0.4
"""Shape of the gamma-distributed gaps between arrivals; 1 would be Poisson, less is burstier."""

CountTokens = Callable[[str], int]


def _unique(kind: str) -> Iterator[Example]:
    seen: set[str] = set()
    for example in examples(kind, SEED, held_out=True):
        if example.prompt not in seen:
            seen.add(example.prompt)
            yield example


def _request(example: Example, messages: list[dict[str, str]], **body: Any) -> dict[str, Any]:
    return {
        "endpoint": "/v1/chat/completions",
        "route": example.kind,
        "body": {"model": MODEL, "messages": messages, **body},
        "answer": example.answer,
    }


def _code(example: Example, rng: random.Random) -> dict[str, Any]:
    request = _request(example, exchange(example)[:1], max_tokens=rng.choice((96, 112, 128)), temperature=0.0)
    return request | {"tags": {"app": "editor"}}


def _story(example: Example, rng: random.Random) -> dict[str, Any]:
    sampling = {"max_tokens": rng.choice((160, 180, 200)), "temperature": 0.8, "top_p": 0.95}
    request = _request(example, exchange(example)[:1], **sampling, seed=rng.randrange(1, 10_000))
    return request | {"tags": {"app": "notebook"}}


def _support_session(turns: list[Example], rng: random.Random, session: str) -> list[dict[str, Any]]:
    """Return the requests of one conversation; each carries the whole history, answers included."""
    history = [system_message()]
    requests = []
    for example in turns:
        user, assistant = exchange(example)
        messages = [*history, user]
        request = _request(example, messages, max_tokens=rng.choice((32, 40, 48)), temperature=0.0)
        requests.append(request | {"session": session, "tags": {"app": "helpdesk"}})
        history += [user, assistant]
    return requests


def _conversations(rng: random.Random) -> list[list[dict[str, Any]]]:
    """Return all conversations in random order; code and story ones have a single turn."""
    code, story, support = _unique("code"), _unique("story"), _unique("support")
    found = [[_code(next(code), rng)] for _ in range(CODE_REQUESTS)]
    found += [[_story(next(story), rng)] for _ in range(STORY_REQUESTS)]
    for number in range(SUPPORT_SESSIONS):
        turns = [next(support) for _ in range(SUPPORT_TURNS[number % len(SUPPORT_TURNS)])]
        found.append(_support_session(turns, rng, f"s{number + 1:02d}"))
    rng.shuffle(found)
    return found


def _timed(conversations: list[list[dict[str, Any]]], rng: random.Random) -> list[tuple[float, dict[str, Any]]]:
    """Give every request its arrival: bursts of conversations, and think time between turns."""
    gaps = [rng.gammavariate(BURSTINESS, 1.0) for _ in conversations[1:]]
    scale = DURATION_S / sum(gaps)
    start = 0.0
    timed = []
    for conversation, gap in zip(conversations, [0.0, *gaps], strict=True):
        start += gap * scale
        at = start
        for request in conversation:
            timed.append((round(at, 3), request))
            at += rng.uniform(6.0, 20.0)
    return sorted(timed, key=lambda pair: pair[0])


def _recorded(request: dict[str, Any], answer: str, count_tokens: CountTokens) -> dict[str, Any]:
    limit = request["body"]["max_tokens"]
    length = count_tokens(answer) + 1  # the end mark is generated, too
    return {
        "prompt_tokens": count_tokens(render_chat(request["body"]["messages"], add_generation_prompt=True)),
        "completion_tokens": min(limit, length),
        "finish_reason": "stop" if length <= limit else "length",
        "status": 200,
    }


def build_traffic(count_tokens: CountTokens | None = None) -> list[dict[str, Any]]:
    """Return the sample's lines in order.

    Args:
        count_tokens: Length of a text in tokens of the demo tokenizer, chat marks included; None leaves `recorded` out.
    """
    rng = random.Random(SEED)
    lines = []
    for number, (at, request) in enumerate(_timed(_conversations(rng), rng), start=1):
        answer = request.pop("answer")
        line = {"id": f"r{number:04d}", "timestamp_s": at, **request}
        if count_tokens is not None:
            line["recorded"] = _recorded(request, answer, count_tokens)
        lines.append(line)
    return lines


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write the sample traffic.")
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="tokenizer.json of the demo target")
    parser.add_argument("--out", type=Path, default=OUT, help="the JSONL file to write")
    parsed = parser.parse_args()
    # the tests rebuild the traffic where no tokenizer library is installed
    from tokenizers import Tokenizer  # noqa: PLC0415

    tokenizer = Tokenizer.from_file(str(parsed.tokenizer))
    lines = build_traffic(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))
    parsed.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} requests written to {parsed.out}")


if __name__ == "__main__":
    main()
