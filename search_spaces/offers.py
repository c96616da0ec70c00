"""Which knobs, with which values, a release, the checkpoints and the device offer.

A knob of the catalogue that is not offered is left out with a reason; a knob that somebody wrote a flag for himself is
an error instead, with the nearest name that exists, because dropping it would tune something else than he asked for.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from search_spaces import methods
from search_spaces.errors import SpaceFileError
from search_spaces.facts import Facts
from search_spaces.knobs import Knob, Need, Scalar
from search_spaces.release import Release, Setting


@dataclass(frozen=True, slots=True)
class Offer:
    """A knob as it can be searched here, or None with the reason; and what of it was left out."""

    knob: Knob | None
    reason: str | None = None


NEEDS: dict[Need, tuple[Callable[[Facts], bool], str]] = {
    "can_disable_block_drop": (
        lambda facts: facts.release.block_drop.can_disable,
        "the release has no such key",
    ),
    "hybrid": (
        lambda facts: facts.target_geometry is not None and facts.target_geometry.is_hybrid,
        "the model has no recurrent layers",
    ),
    "gpu": (lambda facts: facts.device != "cpu", "there is no GPU"),
    "several_gpus": (lambda facts: len(facts.gpus) > 1, "an engine has one GPU at most"),
}
"""What `needs` of a knob may name: a test, and what is said where it fails."""


def offer(name: str, knob: Knob, facts: Facts, searched: tuple[str, ...]) -> Offer:
    """The knob with the values that are offered.

    Args:
        name: its name in the space.
        knob: the knob as the space has it.
        facts: what is known before any launch.
        searched: speculative methods that the space can set.

    Raises:
        SpaceFileError: somebody's own knob names a flag, key or value that the release does not have, or K is open
            but nothing bounds it.
    """
    missing = next((words for need in knob.needs for test, words in (NEEDS[need],) if not test(facts)), None)
    if missing:
        return Offer(None, missing)
    absent = _absent(knob, facts)
    if absent:
        return _left_out(name, knob, absent)
    if knob.when.get("method"):
        knob = _for_methods(knob, facts, searched)
        if not knob.when["method"]:
            return Offer(None, "no method that the space can set has it")
    if knob.high == "draft_block":
        return Offer(_bounded(name, knob, facts))
    return _with_offered_choices(name, knob, facts)


def _absent(knob: Knob, facts: Facts) -> str | None:
    """Why the release has no such flag or key."""
    release = facts.release
    if knob.speculative_key is not None and knob.speculative_key not in release.speculative_fields:
        near = _nearest(knob.speculative_key, release.speculative_fields)
        return f"vLLM {release.version} has no key {knob.speculative_key!r} in --speculative-config{near}"
    if knob.flag is not None and knob.flag not in release.flags:
        return f"vLLM {release.version} has no flag --{knob.flag}{_nearest(knob.flag, release.flags)}"
    return None


def _left_out(name: str, knob: Knob, reason: str) -> Offer:
    if not knob.optional:
        raise SpaceFileError(f"knob {name}: {reason}")
    return Offer(None, reason)


def _for_methods(knob: Knob, facts: Facts, searched: tuple[str, ...]) -> Knob:
    """Without methods that the space cannot set, so that a knob of theirs alone is not searched."""
    kept = tuple(method for method in knob.when["method"] if method in searched)
    if "can_disable_block_drop" in knob.needs:
        kept = tuple(method for method in kept if method in facts.release.block_drop.methods)
    return knob.model_copy(update={"when": {**knob.when, "method": kept}})


def _bounded(name: str, knob: Knob, facts: Facts) -> Knob:
    limit = methods.longest_k(facts)
    if limit is None and facts.draft is not None and methods.is_block_draft(facts.draft):
        raise SpaceFileError(
            f"{name} has no upper end: the draft's config.json names no block_size; "
            "set a number in the search space (knobs: {num_speculative_tokens: {low: 1, high: 7}})"
        )
    limit = limit or methods.LONGEST_K_WITHOUT_BLOCK
    if knob.low is not None and knob.low > limit:
        raise SpaceFileError(f"{name}: low is {knob.low}, but the draft's block allows {limit} at most; lower it")
    return knob.model_copy(update={"high": limit})


def _with_offered_choices(name: str, knob: Knob, facts: Facts) -> Offer:
    if knob.choices is None:
        return Offer(knob)
    kept: list[Scalar] = []
    reasons: list[str] = []
    for choice in knob.choices:
        reason = _not_taken(knob, choice, facts)
        if reason and not knob.optional:
            raise SpaceFileError(f"knob {name}: {reason}")
        if knob.speculative_key == "method" and choice not in (None, "none") and not reason:
            reason = methods.why_not(str(choice), facts)
        if reason:
            reasons.append(reason)
        else:
            kept.append(choice)
    nothing_to_choose = not kept or (knob.speculative_key == "method" and kept == ["none"])
    offered = None if nothing_to_choose else knob.model_copy(update={"choices": tuple(kept)})
    return Offer(offered, "; ".join(reasons) or None)


def _not_taken(knob: Knob, choice: Scalar, facts: Facts) -> str | None:
    """Why the release does not take a choice."""
    if choice is None or knob.written_as != "value" or isinstance(choice, bool) or knob.json_key is not None:
        return None
    if knob.speculative_key == "method":
        return None if choice == "none" or choice in facts.release.methods else methods.why_not(str(choice), facts)
    where = f"--{knob.flag}" if knob.flag else f"{knob.speculative_key} of --speculative-config"
    setting = _setting(knob, facts)
    if setting is None or setting.takes(choice):
        return None
    near = _nearest(str(choice), map(str, setting.choices))
    return f"vLLM {facts.release.version} does not take {choice!r} for {where}{near}"


def _setting(knob: Knob, facts: Facts) -> Setting | None:
    if knob.speculative_key is not None:
        return facts.release.speculative_fields.get(knob.speculative_key)
    return facts.release.flags.get(knob.flag or "")


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; the nearest is {near[0]!r}" if near else ""


def unknown_flags(fixed_args: Iterable[str], release: Release) -> tuple[str, ...]:
    """What to say of fixed arguments that are not in the release's table; aliases of flags are not in it either."""
    sentences = []
    for name in fixed_args:
        flag = name.partition(".")[0].replace("_", "-")
        if flag not in release.flags:
            near = _nearest(flag, release.flags)
            sentences.append(f"vLLM {release.version} may not know --{name} of --engine-args{near}")
    return tuple(sentences)
