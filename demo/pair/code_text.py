"""A grammar of short Python programming requests and their answers.

Each writer draws a task and its parts (record, field, condition, names) and returns the request with the code that
answers it. Nearly everything in the answer follows from the request, so a small model can learn to write it and the
number of different texts still is in the millions. The code is plausible Python; it is text for a model, not a library.
"""

import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))["code"]
_RECORDS = _WORDS["records"].split()
_NUMBERS = _WORDS["numbers"].split()
_LABELS = _WORDS["labels"].split()
_STATES = _WORDS["states"].split()
_BOUNDS = (0, 1, 2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 80, 90, 100, 120, 150, 200, 250, 365, 500, 1000)
_SEPARATORS = (("comma", ","), ("semicolon", ";"), ("colon", ":"), ("pipe", "|"), ("slash", "/"), ("dash", "-"))


@dataclass(frozen=True, slots=True)
class _Condition:
    words: str
    code: str


def _condition(rng: random.Random, item: str) -> _Condition:
    """Draw a filter over one record, in words and in code."""
    choice = rng.randrange(4)
    if choice == 0:
        label, state = rng.choice(_LABELS), rng.choice(_STATES)
        return _Condition(f"whose {label} is {state}", f'{item}["{label}"] == "{state}"')
    number, bound = rng.choice(_NUMBERS), rng.choice(_BOUNDS)
    if choice == 1:
        return _Condition(f"whose {number} is above {bound}", f'{item}["{number}"] > {bound}')
    if choice == 2:
        return _Condition(f"whose {number} is below {bound}", f'{item}["{number}"] < {bound}')
    label = rng.choice(_LABELS)
    return _Condition(f"that have a {label}", f'"{label}" in {item}')


def _function(signature: str, doc: str, body: Sequence[str]) -> str:
    lines = [f"def {signature}:", f'    """{doc}"""', *(f"    {line}" for line in body)]
    return "\n".join(lines)


def _plural(record: str) -> str:
    if record.endswith("y") and record[-2] not in "aeiou":
        return record[:-1] + "ies"
    return record + "s"


def _total(rng: random.Random) -> tuple[str, str]:
    record, number = rng.choice(_RECORDS), rng.choice(_NUMBERS)
    items, where = _plural(record), _condition(rng, record)
    name = f"total_{record}_{number}"
    prompt = f"Write a function {name} that adds up the {number} of all {items} {where.words}."
    doc = f"Add up the {number} of all {items} {where.words}."
    body = [
        "total = 0",
        f"for {record} in {items}:",
        f"    if {where.code}:",
        f'        total += {record}["{number}"]',
        "return total",
    ]
    return prompt, _function(f"{name}({items}: list[dict]) -> float", doc, body)


def _average(rng: random.Random) -> tuple[str, str]:
    record, number, default = rng.choice(_RECORDS), rng.choice(_NUMBERS), rng.choice(("0.0", "None"))
    items, where = _plural(record), _condition(rng, record)
    name = f"average_{number}"
    prompt = (
        f"Write a function {name} for the mean {number} of {items} {where.words}. Return {default} if there are none."
    )
    body = [
        f'values = [{record}["{number}"] for {record} in {items} if {where.code}]',
        "if not values:",
        f"    return {default}",
        "return sum(values) / len(values)",
    ]
    doc = f"Return the mean {number} of {items} {where.words}."
    return prompt, _function(f"{name}({items}: list[dict]) -> float", doc, body)


def _group(rng: random.Random) -> tuple[str, str]:
    record, label, number = rng.choice(_RECORDS), rng.choice(_LABELS), rng.choice(_NUMBERS)
    items = _plural(record)
    name = f"group_{items}_by_{label}"
    if rng.random() < 0.5:
        prompt = f"Write {name}: a dict from {label} to the list of {items}, sorted by {number}."
        body = [
            "groups: dict[str, list[dict]] = {}",
            f"for {record} in {items}:",
            f'    groups.setdefault({record}["{label}"], []).append({record})',
            "for members in groups.values():",
            f'    members.sort(key=lambda {record}: {record}["{number}"])',
            "return groups",
        ]
        doc = f"Group {items} by {label}, each group sorted by {number}."
        return prompt, _function(f"{name}({items}: list[dict]) -> dict[str, list[dict]]", doc, body)
    prompt = f"Write {name}: a dict from {label} to the sum of {number} over the {items}."
    body = [
        "sums: dict[str, float] = {}",
        f"for {record} in {items}:",
        f'    key = {record}["{label}"]',
        f'    sums[key] = sums.get(key, 0) + {record}["{number}"]',
        "return sums",
    ]
    doc = f"Sum the {number} of {items} by {label}."
    return prompt, _function(f"{name}({items}: list[dict]) -> dict[str, float]", doc, body)


def _best(rng: random.Random) -> tuple[str, str]:
    record, number = rng.choice(_RECORDS), rng.choice(_NUMBERS)
    word, sign = rng.choice((("largest", ">"), ("smallest", "<")))
    items, where = _plural(record), _condition(rng, record)
    name = f"find_{word}_{record}"
    prompt = (
        f"Write a function {name} that returns the {record} with the {word} {number} among the {items} {where.words}."
    )
    body = [
        "best = None",
        f"for {record} in {items}:",
        f"    if not {where.code}:"
        if " in " not in where.code
        else f"    if {where.code.replace(' in ', ' not in ')}:",
        "        continue",
        f'    if best is None or {record}["{number}"] {sign} best["{number}"]:',
        f"        best = {record}",
        "return best",
    ]
    doc = f"Return the {record} with the {word} {number}, or None."
    return prompt, _function(f"{name}({items}: list[dict]) -> dict | None", doc, body)


def _lookup(rng: random.Random) -> tuple[str, str]:
    record, label = rng.choice(_RECORDS), rng.choice(_LABELS)
    items, error = _plural(record), rng.choice(("KeyError", "ValueError", "LookupError"))
    name = f"get_{record}_by_{label}"
    prompt = f"Write a function {name} that finds a {record} by its {label} and raises {error} if it does not exist."
    body = [
        f"for {record} in {items}:",
        f'    if {record}["{label}"] == {label}:',
        f"        return {record}",
        f'raise {error}(f"no {record} with {label} {{{label}}}")',
    ]
    doc = f"Return the {record} with the given {label}."
    return prompt, _function(f"{name}({items}: list[dict], {label}: str) -> dict", doc, body)


def _parse(rng: random.Random) -> tuple[str, str]:
    record, label, number = rng.choice(_RECORDS), rng.choice(_LABELS), rng.choice(_NUMBERS)
    word, mark = rng.choice(_SEPARATORS)
    cast = rng.choice(("int", "float"))
    items = _plural(record)
    name = f"parse_{items}"
    prompt = f"Write {name}: read lines of {label} and {number} separated by a {word} into dicts, {number} as {cast}."
    body = [
        f"{items} = []",
        "for line in text.splitlines():",
        "    if not line.strip():",
        "        continue",
        f'    {label}, {number} = line.split("{mark}")',
        f'    {items}.append({{"{label}": {label}.strip(), "{number}": {cast}({number})}})',
        f"return {items}",
    ]
    doc = f"Read one {record} from each line of the text."
    return prompt, _function(f"{name}(text: str) -> list[dict]", doc, body)


def _validate(rng: random.Random) -> tuple[str, str]:
    record = rng.choice(_RECORDS)
    (first, second), label = rng.sample(_NUMBERS, 2), rng.choice(_LABELS)
    low = rng.choice(_BOUNDS)
    name = f"check_{record}"
    needs = f"It needs a {label}, {first} at least {low}, {second} not negative."
    prompt = f"Write {name}: list the problems of a {record}. {needs}"
    body = [
        "problems = []",
        f'if not {record}.get("{label}"):',
        f'    problems.append("{label} is missing")',
        f'if {record}["{first}"] < {low}:',
        f'    problems.append("{first} is less than {low}")',
        f'if {record}["{second}"] < 0:',
        f'    problems.append("{second} is negative")',
        "return problems",
    ]
    return prompt, _function(f"{name}({record}: dict) -> list[str]", f"Return the problems of the {record}.", body)


def _class(rng: random.Random) -> tuple[str, str]:
    record, label, number = rng.choice(_RECORDS), rng.choice(_LABELS), rng.choice(_NUMBERS)
    title = record.capitalize()
    verb, sign = rng.choice((("increase", "+"), ("reduce", "-")))
    prompt = f"Write a class {title} with {label} and {number}, a method {verb}_{number} and a method describe."
    lines = [
        f"class {title}:",
        f'    """A {record} with a {label} and a {number}."""',
        "",
        f"    def __init__(self, {label}: str, {number}: float) -> None:",
        f"        self.{label} = {label}",
        f"        self.{number} = {number}",
        "",
        f"    def {verb}_{number}(self, step: float) -> None:",
        f"        self.{number} {sign}= step",
        "",
        "    def describe(self) -> str:",
        f'        return f"{{self.{label}}}: {{self.{number}}}"',
    ]
    return prompt, "\n".join(lines)


def _report(rng: random.Random) -> tuple[str, str]:
    record, label, number = rng.choice(_RECORDS), rng.choice(_LABELS), rng.choice(_NUMBERS)
    items, limit = _plural(record), rng.choice((3, 5, 10, 20))
    order, flag = rng.choice((("highest", ", reverse=True"), ("lowest", "")))
    name = f"print_{order}_{items}"
    prompt = f"Write {name}: print the {label} and {number} of the {limit} {items} with the {order} {number}."
    body = [
        f'ranked = sorted({items}, key=lambda {record}: {record}["{number}"]{flag})',
        f"for place, {record} in enumerate(ranked[:{limit}], start=1):",
        f'    {label} = {record}["{label}"]',
        f'    {number} = {record}["{number}"]',
        f'    print(f"{{place}}. {{{label}}}: {{{number}}}")',
    ]
    doc = f"Print the {limit} {items} with the {order} {number}."
    return prompt, _function(f"{name}({items}: list[dict]) -> None", doc, body)


_TASKS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (
    _total, _average, _group, _best, _lookup, _parse, _validate, _class, _report,
)  # fmt: skip


def write_code(rng: random.Random) -> tuple[str, str]:
    """Draw one programming request and its answer (a fenced Python block).

    Returns:
        The user's request and the assistant's answer.
    """
    prompt, code = rng.choice(_TASKS)(rng)
    return prompt, f"```python\n{code}\n```"
