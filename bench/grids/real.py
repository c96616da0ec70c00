"""Reads what measure_real.py measured as a table: the median of the repeats is taken for the truth.

Only complete layers count: a KV block size is left out unless every config of it was measured.
"""

import csv
import gzip
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from bench.grids.table import HERE, Cell, Table, distinct_values, key_of, table_space
from search_spaces import ResolvedSpace, Scalar

METRICS = {
    "output_tok_s": "output_tok_s",
    "tpot_p50_s": "tpot_mean_s",
    "ttft_p50_s": "ttft_mean_s",
    "running_mean": "running_mean",
    "completion_tokens": "completion_tokens",
    "prefix_hit_rate": "prefix_hit_rate",
    "acceptance_length": "acceptance_length",
}
"""Columns of the measurement and what the table calls them; of a few requests the median stands for the mean."""
REQUESTS = {("code", "1"): 3, ("code", "8"): 16, ("support", "1"): 2, ("support", "4"): 4}


def read_real(path: Path, *, start_s: float) -> Table:
    """The table of the real engine."""
    space = table_space("real_cpu", HERE / "space.yaml")
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["failure"]:
                condition = f"{row['profile']}/t{row['temperature']}/c{row['concurrency']}"
                groups[(key_of(space, _values(row)), condition)].append(row)
    cells: dict[str, dict[str, Cell]] = defaultdict(dict)
    for (key, condition), rows in groups.items():
        cells[key][condition] = _cell(rows)
    conditions = tuple(sorted({condition for _, condition in groups}))
    complete = {key: found for key, found in cells.items() if len(found) == len(conditions)}
    return Table("real_cpu", _measured_part(space, complete), conditions, complete, start_s)


def _values(row: dict[str, str]) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {"method": row["method"], "prefix_caching": row["prefix_caching"] == "True"}
    values["kv_block_size"] = int(row["kv_block_size"])
    if row["num_speculative_tokens"]:
        values["num_speculative_tokens"] = int(row["num_speculative_tokens"])
    values["disable_eagle_block_drop"] = row["disable_eagle_block_drop"] == "True"
    return values


def _cell(rows: list[dict[str, str]]) -> Cell:
    metrics = {ours: _median(rows, theirs) for theirs, ours in METRICS.items() if rows[0][theirs]}
    metrics["requests"] = REQUESTS[rows[0]["profile"], rows[0]["concurrency"]]
    curves = [[float(share) for share in row["accepted_at"].split("|") if share] for row in rows]
    for position, shares in enumerate(zip(*curves, strict=True), start=1):
        metrics[f"accepted_at_{position:02d}"] = statistics.fmean(shares)
    if curves[0]:
        metrics["acceptance_rate"] = (metrics["acceptance_length"] - 1.0) / len(curves[0])
    repeats = tuple(float(row["output_tok_s"]) for row in rows)
    return Cell(metrics, repeats, sum(float(row["replay_s"]) for row in rows))


def _median(rows: list[dict[str, str]], column: str) -> float:
    return statistics.median(float(row[column]) for row in rows if row[column])


def _measured_part(space: ResolvedSpace, cells: dict[str, dict[str, Cell]]) -> ResolvedSpace:
    """The space with the KV block sizes that were measured in full."""
    knob = space.knobs["kv_block_size"]
    whole = []
    for size in knob.values():
        narrowed = replace(space, knobs={**space.knobs, "kv_block_size": knob.model_copy(update={"choices": (size,)})})
        if all(key_of(space, {**v, "kv_block_size": size}) in cells for v in distinct_values(narrowed)):
            whole.append(size)
    return replace(space, knobs={**space.knobs, "kv_block_size": knob.model_copy(update={"choices": tuple(whole)})})
