"""Speculative methods: what each needs, and which of them a release and the checkpoints at hand can run.

The draft's config.json decides its method, never its name. Facts of the methods are from vLLM's
`config/speculative.py` (0.28 to 0.33).
"""

from dataclasses import dataclass
from typing import Literal

from search_spaces.checkpoint import Checkpoint
from search_spaces.facts import Facts

LONGEST_K_WITHOUT_BLOCK = 8
"""Upper end of K where no draft block bounds it: a choice of ours, above twice the K of vLLM's recipes for MTP."""


@dataclass(frozen=True, slots=True)
class Method:
    """What a speculative method needs.

    Attributes:
        source: where drafts come from: nothing but the text itself, a draft checkpoint, or the target's own layers.
        takes_k: whether `num_speculative_tokens` sets the length of its drafts.
        has_block: whether its draft is trained for one block length, which bounds K.
        runs_async: whether vLLM's asynchronous scheduling supports it.
    """

    source: Literal["text", "draft", "target"]
    takes_k: bool = True
    has_block: bool = False
    runs_async: bool = True


METHODS: dict[str, Method] = {
    "ngram": Method("text", runs_async=False),
    "suffix": Method("text", takes_k=False, runs_async=False),
    "draft_model": Method("draft"),
    "medusa": Method("draft", runs_async=False),
    "eagle": Method("draft"),
    "eagle3": Method("draft"),
    "mtp": Method("target"),
    "dflash": Method("draft", has_block=True),
    "dspark": Method("draft", has_block=True),
}
"""Methods that a search may propose. Others of vLLM (custom classes, hidden-state extraction) are no tuning matter."""


def draft_method(draft: Checkpoint) -> str:
    """The method that a draft's config.json is made for; a plain causal model is a `draft_model`."""
    return draft.draft_method or "draft_model"


def is_block_draft(draft: Checkpoint) -> bool:
    """Whether the draft is trained for blocks of one length."""
    method = METHODS.get(draft_method(draft))
    return method is not None and method.has_block


def longest_k(facts: Facts) -> int | None:
    """The largest K that the draft was trained for; None where nothing says."""
    draft = facts.draft
    return draft.max_speculative_tokens if draft is not None and is_block_draft(draft) else None


def why_not(method: str, facts: Facts) -> str | None:
    """Why a method cannot run with this release and these checkpoints, or None when it can."""
    release, known = facts.release, METHODS.get(method)
    if known is None or method not in release.methods:
        names = ", ".join(name for name in METHODS if name in release.methods)
        return f"vLLM {release.version} has no speculative method {method!r} that could be tuned; it has {names}"
    if known.source == "draft":
        return _why_not_draft(method, facts)
    if known.source == "target" and not facts.target.n_predict:
        return f"method={method} needs prediction layers in the model itself, and {facts.target.path} has none"
    return None


def _why_not_draft(method: str, facts: Facts) -> str | None:
    if facts.draft is None:
        return f"method={method} needs a draft model; give --draft"
    made_for = draft_method(facts.draft)
    if method != made_for:
        return (
            f"method={method} cannot use the draft {facts.draft.path}: its config.json makes it a draft for {made_for}"
        )
    return None if method == "draft_model" else facts.release.draft_problem(facts.draft, on_cpu=False)
