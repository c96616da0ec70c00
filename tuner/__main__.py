"""`python -P -m tuner`: the same as the `tune` script (-P keeps a local `runners/` from shadowing ours)."""

from tuner.cli import main

main()
