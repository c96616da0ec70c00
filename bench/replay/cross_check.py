"""Our replay and `vllm bench serve` on the same engine and the same prompts: do they say the same?

    .venv/bin/python -m bench.replay.cross_check

Starts the demo pair on the CPU engine, then sends the same 100 prompts with either client in turns, closed loop,
temperature 0. Compared over the medians of the repeats: output tokens per second over the whole run and mean time per
output token, to 5%; and the output tokens of every request, exactly. Needs pandas beside the engine (`make
bench-replay` puts it there). Exits with 1 when they do not agree.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.replay.clients import ROOT, TOKENIZER
from bench.replay.run import VLLM_EXTRA
from runners import Engine, LaunchSpec, LocalRunner

LIMIT = 0.05
OUTPUT_TOKENS = 48
TIMEOUT_S = 120
ENGINE = [
    *[str(ROOT / ".engine/bin/vllm"), "serve", str(TOKENIZER), "--served-model-name", "pair", "--dtype", "float32"],
    *["--enforce-eager", "--max-model-len", "4096", "--max-num-seqs", "16", "--no-enable-prefix-caching"],
    *[
        "--speculative-config",
        json.dumps({"method": "dflash", "model": str(ROOT / "demo/models/draft"), "num_speculative_tokens": 7}),
    ],
]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class Said:
    """What one client said of one run."""

    output_tok_s: float
    tpot_ms: float
    tokens: tuple[int, ...]


def main() -> int:
    """Runs the comparison and judges it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=4)
    return asyncio.run(compare(parser.parse_args()))


async def compare(arguments: argparse.Namespace) -> int:
    """One engine, both clients in turns; the first turn warms up and does not count."""
    prompts = demo_prompts(arguments.prompts)
    said: dict[str, list[Said]] = {"ours": [], "vllm": []}
    with tempfile.TemporaryDirectory() as name:
        spec = LaunchSpec(argv=tuple(ENGINE), env=ENVIRONMENT, workdir=Path(name), served_model="pair", study="bench")
        async with LocalRunner().launch(spec) as engine:
            for turn in range(arguments.repeats + 1):
                for client, send in (("ours", ours), ("vllm", vllm)):
                    figures = send(engine, prompts, arguments.concurrency, Path(name))
                    when = f"repeat {turn}" if turn else "warm-up "
                    figure = f"{figures.output_tok_s:8.1f} tok/s, TPOT {figures.tpot_ms:6.2f} ms"
                    print(f"{when}  {client:5} {figure}, {sum(figures.tokens)} tokens", flush=True)
                    if turn:
                        said[client].append(figures)
    return judge(said)


def demo_prompts(count: int) -> list[str]:
    """Chat-like texts of the sample traffic, as plain prompts."""
    lines = (ROOT / "workloads/samples/api_traffic.jsonl").read_text(encoding="utf-8").splitlines()
    bodies = [json.loads(line)["body"] for line in lines if json.loads(line)["route"] != "support"]
    return [f"{body['messages'][-1]['content']}\n" for body in bodies[:count]]


def ours(engine: Engine, prompts: list[str], concurrency: int, directory: Path) -> Said:
    """`tune replay`."""
    workload, requests = directory / "workload.jsonl", directory / "requests.jsonl"
    with workload.open("w", encoding="utf-8") as file:
        for number, prompt in enumerate(prompts):
            body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0}
            file.write(json.dumps({"id": str(number), "endpoint": "/v1/completions", "body": body}) + "\n")
    options = [
        "--url",
        engine.base_url,
        "--api-key-env",
        "REPLAY_KEY",
        "--load",
        f"concurrency={concurrency}",
        "--json",
    ]
    report = json.loads(
        _run([sys.executable, "-m", "tuner", "replay", str(workload), *options, "--per-request", str(requests)], engine)
    )[0]
    tokens = [json.loads(line)["completion_tokens"] for line in requests.read_text(encoding="utf-8").splitlines()]
    return Said(report["whole_output_tok_s"], report["metrics"]["tpot_mean_s"] * 1e3, tuple(tokens))


def vllm(engine: Engine, prompts: list[str], concurrency: int, directory: Path) -> Said:
    """`vllm bench serve`."""
    dataset = directory / "prompts.jsonl"
    dataset.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
    _run(
        [
            *[str(ROOT / ".engine/bin/vllm"), "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"],
            *["--base-url", engine.base_url, "--model", "pair", "--tokenizer", str(TOKENIZER), "--temperature", "0"],
            *["--dataset-name", "custom", "--dataset-path", str(dataset), "--skip-chat-template", "--disable-shuffle"],
            *["--custom-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(len(prompts)), "--disable-tqdm"],
            *["--max-concurrency", str(concurrency), "--save-result", "--save-detailed"],
            *["--result-dir", str(directory), "--result-filename", "vllm.json"],
        ],
        engine,
    )
    found = json.loads((directory / "vllm.json").read_text(encoding="utf-8"))
    return Said(found["output_throughput"], found["mean_tpot_ms"], tuple(found["output_lens"]))


def _run(command: list[str], engine: Engine) -> str:
    # The last core is the one that the CPU engine leaves to serving and clients.
    last = str(max(os.sched_getaffinity(0)))
    environment = {**os.environ, **ENVIRONMENT, "REPLAY_KEY": engine.api_key, "OPENAI_API_KEY": engine.api_key}
    environment["PYTHONPATH"] = f"{ROOT}:{VLLM_EXTRA}"
    done = subprocess.run(
        ["taskset", "-c", last, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def judge(said: dict[str, list[Said]]) -> int:
    """Print the comparison; 0 if they agree."""
    agree = True
    for field, name in (("output_tok_s", "output tokens/s"), ("tpot_ms", "mean TPOT, ms")):
        mine, theirs = (
            statistics.median(getattr(figures, field) for figures in said[client]) for client in ("ours", "vllm")
        )
        agree &= abs(mine / theirs - 1) <= LIMIT
        print(f"{name}: ours {mine:.2f}, vllm {theirs:.2f}: {mine / theirs - 1:+.1%} (limit {LIMIT:.0%})")
    counts = {figures.tokens for runs in said.values() for figures in runs}
    same = len(counts) == 1
    runs = sum(map(len, said.values()))
    print(f"output tokens of each request: {'the same' if same else 'different'} in all {runs} runs")
    return 0 if agree and same else 1


if __name__ == "__main__":
    sys.exit(main())
