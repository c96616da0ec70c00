"""`draft-training`: the recorded prompts for fine-tuning the draft, with the commands and what it would bring.

Writes a directory, for two tool chains: vllm-project/speculators and sgl-project/SpecForge. Both regenerate the answers
with the target itself, so recorded answers matter only as history. Sessions of the hold-out are left out:
`tune verify --draft NEW` compares the drafts on them. Prompts leave the study here, because that is what was asked for.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces import read_checkpoint
from tuner.config import TuneConfig
from tuner.errors import StudyError, UsageError
from tuner.explain.observed import Arm, arms_of
from tuner.plan import read_traffic
from tuner.store import Store, write_atomically
from workloads import Profile, Request, split_profiles

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
LENGTH_STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        directory: Where.
        rows: Conversations or prompts to train on.
        left_out: Requests whose text cannot be used, by reason.
    """

    directory: Path
    rows: int
    left_out: Mapping[str, int]


def export_draft_training(store: Store, directory: Path) -> Exported:
    """Writes one JSONL for each kind of sampling, and README.md with commands and estimate.

    Raises:
        UsageError: the study has no draft, or its workload has no text to train on.
        StudyError: the study has not measured its draft.
    """
    config = store.config()
    if config.draft is None:
        raise UsageError(f"study {config.study!r} has no draft to train further; run one with --draft")
    groups: dict[Group, list[dict[str, Any]]] = {}
    left_out: dict[str, int] = {}
    workload, _ = read_traffic(config)
    for profile in split_profiles(workload, config.profile_by):
        training, _ = profile.split(config.held_out, config.seed)
        for request in _longest_turns(training):
            reason = _unusable(request)
            if reason:
                left_out[reason] = left_out.get(reason, 0) + 1
            else:
                groups.setdefault(_group(request), []).append(_row(request, profile.name))
    if not groups:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in left_out.items())
        raise UsageError(f"{config.workload} has no prompt to train on: {reasons or 'it is empty'}")
    estimate = estimate_of(store)
    files = {f"prompts-{number}.jsonl": group for number, group in enumerate(groups, start=1)}
    for name, group in files.items():
        lines = (json.dumps(row, ensure_ascii=False) for row in groups[group])
        write_atomically(directory / name, "\n".join(lines) + "\n")
    write_atomically(directory / "README.md", _readme(config, files, estimate))
    return Exported(directory, sum(map(len, groups.values())), left_out)


def estimate_of(store: Store) -> list[str]:
    """Rows of a table: what longer accepted drafts would bring, by condition, at the K that was measured best.

    A request takes TTFT + decoding; decoding takes tokens / acceptance length steps at today's cost of a step.
    So gain(x) = E2E / (TTFT + (E2E - TTFT) x length / x).

    Raises:
        StudyError: no configuration with the draft was measured.
    """
    rows = []
    for condition, arms in arms_of(store.records(), {}).items():
        own = [arm for arm in arms if arm.method is not None and arm.metrics.get("acceptance_length")]
        best = max(own, key=lambda arm: arm.metrics.get("output_tok_s", 0.0), default=None)
        if best is not None:
            rows.append(_estimate_row(condition, best))
    if not rows:
        raise StudyError("no configuration with the draft was measured; let the study measure one first")
    return rows


def gain_of_length(metrics: Mapping[str, float], length: float) -> float:
    """Predicted gain in throughput of a measured configuration with another acceptance length."""
    e2e_s, ttft_s = metrics["e2e_mean_s"], metrics["ttft_mean_s"]
    return e2e_s / (ttft_s + (e2e_s - ttft_s) * metrics["acceptance_length"] / length)


def _estimate_row(condition: str, arm: Arm) -> str:
    now = arm.metrics["acceptance_length"]
    lengths = [now + step for step in LENGTH_STEPS if now + step <= arm.k + 1]
    cells = [f"{length:.2f}: {gain_of_length(arm.metrics, length):.2f}x" for length in lengths]
    return f"| {condition} | {arm.label} | {' , '.join(cells)} |"


def _longest_turns(profile: Profile) -> Iterable[Request]:
    """A turn whose messages a later turn of its session begins with is history there, and would be trained on twice."""
    for session in profile.sessions():
        for number, request in enumerate(session):
            messages = request.body.get("messages")
            later = (other.body.get("messages") for other in session[number + 1 :])
            if not messages or not any(_begins_with(other, messages) for other in later):
                yield request


def _begins_with(longer: object, shorter: Sequence[object]) -> bool:
    return isinstance(longer, list) and longer[: len(shorter)] == list(shorter)


def _unusable(request: Request) -> str | None:
    if request.shape is not None:
        return "no text was recorded"
    if request.tags.get("redacted") == "hash":
        return "the words were replaced by hashes"
    body = request.body
    messages = body.get("messages")
    if isinstance(messages, list):
        if any(not isinstance(m, dict) or not isinstance(m.get("content"), str | None) for m in messages):
            return "content other than text, which no draft sees"
        return None
    return None if isinstance(body.get("prompt"), str) else "the prompt is token ids"


def _group(request: Request) -> Group:
    """Requests that can be regenerated by one command: one sampling, one thinking flag."""
    sampling = {name: request.body[name] for name in SAMPLING if request.body.get(name) is not None}
    template = request.body.get("chat_template_kwargs")
    return json.dumps(sampling, sort_keys=True), json.dumps(template or {}, sort_keys=True)


def _row(request: Request, profile: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": request.id}
    if isinstance(request.body.get("messages"), list):
        row["conversations"] = [
            {key: value for key, value in message.items() if value is not None} for message in request.body["messages"]
        ]
    else:
        row["prompt"] = request.body["prompt"]
    if request.body.get("tools"):
        row["tools"] = request.body["tools"]
    # A fixed set of keys of one type each: readers of JSONL derive columns from them.
    row["metadata"] = {"profile": profile, "session": request.session or "", "max_tokens": request.max_tokens or 0}
    return row


def _readme(config: TuneConfig, files: Mapping[str, Group], estimate: Sequence[str]) -> str:
    draft, model = config.draft or "", config.model
    method = _speculator_type(draft)
    lines = [
        "# Training data for the draft",
        "",
        f"Target `{model}`, draft `{draft}`.",
        "",
        f"Prompts of the sessions that the search saw; the hold-out ({config.held_out:.0%}, seed {config.seed}) is not",
        "in here, so that a new draft can be judged on it. The target answers anew, with the sampling and",
        "the thinking flag of the recording.",
        "",
        "## What it would bring",
        "",
        "Throughput against today's, by acceptance length (tokens per step), from the study's own step times:",
        "",
        "| condition | configuration | acceptance length: gain |",
        "|---|---|---|",
        *estimate,
        "",
        "## Speculators",
        "",
        "Serve the target as in production, then regenerate, prepare and train:",
        "",
        "```sh",
        *_speculators(config, files, method),
        "```",
        "",
        "## SpecForge",
        "",
        "```sh",
        *_specforge(config, files),
        "```",
        "",
        "## Judge it on the hold-out",
        "",
        "```sh",
        _verify(config),
        "```",
        "",
    ]
    return "\n".join(lines)


def _verify(config: TuneConfig) -> str:
    words = ["tune", "verify", f"{config.directory}/recommended/PROFILE/serve.yaml", "--workload", str(config.workload)]
    return shlex.join([*words, "--model", config.model, "--draft", "NEW"])


def _speculator_type(draft: str) -> str:
    names = read_checkpoint(draft).architectures
    return "dflash2" if any("DFlash2" in name for name in names) else "dflash"


def _speculators(config: TuneConfig, files: Mapping[str, Group], method: str) -> list[str]:
    """Commands of speculators 0.9 (docs/cli of vllm-project/speculators)."""
    block = read_checkpoint(config.draft or "").draft_block or 16
    lines = []
    for name, (sampling, template) in files.items():
        merged = {
            **json.loads(sampling),
            **({"chat_template_kwargs": json.loads(template)} if template != "{}" else {}),
        }
        lines.append(
            f"speculators regenerate-responses --endpoint http://127.0.0.1:8000/v1/chat/completions --dataset {name} "
            f"--sampling-params {shlex.quote(json.dumps(merged))} --outfile regenerated-{name} --resume"
        )
    lines += [
        "cat regenerated-*.jsonl > regenerated.jsonl",
        shlex.join(["speculators", "prepare-data", "--model", config.model, "--data", "regenerated.jsonl"])
        + " --output prepared --seq-length 8192",
        "# the target once more, with its hidden states: launch_vllm.py MODEL --target-layer-ids ... -- --port 8000",
        _train(config, method, block),
    ]
    return lines


def _train(config: TuneConfig, method: str, block: int) -> str:
    return (
        f"speculators train --verifier-name-or-path {shlex.quote(config.model)} --data-path prepared "
        f"--from-pretrained {shlex.quote(config.draft or '')} --speculator-type {method} --block-size {block} "
        "--vllm-endpoint http://127.0.0.1:8000/v1 --on-missing generate --on-generate delete --save-path trained"
    )


def _specforge(config: TuneConfig, files: Mapping[str, Group]) -> list[str]:
    """Commands of SpecForge (docs/advanced_features/regenerate_dataset.md and scripts of sgl-project/SpecForge)."""
    lines = []
    for name, (sampling, _) in files.items():
        temperature = json.loads(sampling).get("temperature", 1.0)
        lines.append(
            f"python scripts/regenerate_train_data.py --model {shlex.quote(config.model)} "
            "--server-address 127.0.0.1:30000 "
            f"--temperature {temperature} --input-file-path {name} --output-file-path regenerated-{name}"
        )
    return [*lines, "cat regenerated-*.jsonl > regenerated.jsonl", "specforge train --config YOUR.yaml"]
