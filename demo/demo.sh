#!/bin/sh
# The main job on a real engine: vLLM on the CPU, a small target and its DFlash draft, recorded traffic of three kinds.
# Everything below is an ordinary `tune` command; on a GPU host leave out --engine-env and most of --engine-args.
set -eu
cd "$(dirname "$0")/.."

set -x
exec .venv/bin/tune \
  --workload workloads/samples/api_traffic.jsonl \
  --model demo/models/target \
  --draft demo/models/draft \
  --engine-python .engine/bin/python \
  --engine-args "--dtype float32 --enforce-eager --max-model-len 4096 --enable-prompt-tokens-details" \
  --engine-env VLLM_CPU_KVCACHE_SPACE=1 \
  --engine-env HF_HUB_OFFLINE=1 \
  --engine-env TRANSFORMERS_OFFLINE=1 \
  --space demo/space.yaml \
  --load concurrency=1 \
  --trials 8 --rounds 2 --finalists 1 --requests 8 --budget 14m \
  --out demo/runs \
  "$@"
