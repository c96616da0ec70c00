"""Tables of what every serve config of a space does under every condition: the ground truth of the benches.

Read from compressed CSV; a row is one config under one condition. The simulated ones are made by simulated.py, the real
one by measure_real.py. Nothing here decides anything.
"""

import csv
import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from search_spaces import Argument, Checkpoint, Facts, ResolvedSpace, Scalar, load_release, load_space

HERE = Path(__file__).parent
METRICS = (
    "output_tok_s", "tpot_mean_s", "ttft_mean_s", "running_mean", "requests", "completion_tokens", "prefix_hit_rate",
    "acceptance_length",
)  # fmt: skip
COLUMNS = ("values", "condition", *METRICS, "replay_s", "block_tok_s", "accepted_at")
# Draft blocks of the tables' drafts; 16 where nothing is said.
DRAFT_BLOCKS = {"published": 8}
FIXED_ARGS: dict[str, dict[str, Argument]] = {"published": {"tensor-parallel-size": 4}}


@dataclass(frozen=True, slots=True)
class Cell:
    """One config under one condition, without noise where the table is simulated."""

    metrics: dict[str, float]
    block_tok_s: tuple[float, ...]
    replay_s: float


@dataclass(frozen=True, slots=True)
class Table:
    """One grid. Keys of configs are their identities as JSON, see `key_of`."""

    name: str
    space: ResolvedSpace
    conditions: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    start_s: float
    """Seconds of an engine start."""

    def cell(self, values: Mapping[str, Scalar], condition: str) -> Cell:
        """What the config of these values does."""
        return self.cells[key_of(self.space, values)][condition]

    def value(self, key: str, condition: str) -> float:
        """True throughput in tokens/s."""
        return self.cells[key][condition].metrics["output_tok_s"]

    def best(self, condition: str) -> float:
        """The true best throughput."""
        return max(self.value(key, condition) for key in self.cells)


def key_of(space: ResolvedSpace, values: Mapping[str, Scalar]) -> str:
    """A config's name in a table: its identity, which paths and hosts do not change."""
    return json.dumps(space.serve_config(values).identity, sort_keys=True)


def table_space(name: str, file: Path = HERE / "simulated.yaml") -> ResolvedSpace:
    """The space of a table, for a made-up pair."""
    target = Checkpoint(
        path="target",
        architectures=("Qwen3ForCausalLM",),
        hidden_size=128,
        vocab_size=4096,
        num_hidden_layers=32,
        max_position_embeddings=32768,
    )
    draft = target.model_copy(
        update={
            "path": "draft", "architectures": ("DFlashDraftModel",), "draft_block": DRAFT_BLOCKS.get(name, 16),
        }
    )  # fmt: skip
    facts = Facts(target=target, draft=draft, release=load_release("0.32.0")[0], device="gpu")
    return load_space(str(file)).resolve(
        facts, fixed_args={"max-num-batched-tokens": 8192, **FIXED_ARGS.get(name, {})}, env={}
    )


def read_table(path: Path, *, start_s: float) -> Table:
    """Reads a table as simulated.py wrote it."""
    name = path.name.removesuffix(".csv.gz")
    space = table_space(name)
    cells: dict[str, dict[str, Cell]] = {}
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = key_of(space, json.loads(row["values"]))
            cells.setdefault(key, {})[row["condition"]] = _cell(row)
    conditions = tuple(next(iter(cells.values())))
    return Table(name, space, conditions, cells, start_s)


def _cell(row: Mapping[str, str]) -> Cell:
    metrics = {name: float(row[name]) for name in METRICS if row[name]}
    accepted = [float(share) for share in row["accepted_at"].split("|") if share]
    metrics |= {f"accepted_at_{i:02d}": share for i, share in enumerate(accepted, start=1)}
    if accepted:
        metrics["acceptance_rate"] = sum(accepted) / len(accepted)
    blocks = tuple(float(value) for value in row["block_tok_s"].split("|"))
    return Cell(metrics, blocks, float(row["replay_s"]))


def distinct_values(space: ResolvedSpace) -> Iterator[dict[str, Scalar]]:
    """Every allowed config of a space once, in the order of the knobs: the order of a grid sweep."""
    seen = set()
    for values in space.combinations(math.prod(len(knob.values()) for knob in space.tunable().values())):
        key = key_of(space, values)
        if key not in seen and space.refusal(values) is None:
            seen.add(key)
            yield values
