"""A simulated engine: a separate process that speaks vLLM's API over real HTTP, without a GPU and without vLLM.

Start it like an engine: `python -m runners.simulated serve MODEL --port 8000 --speculative-config '{...}'`. It
answers from a documented cost model (`costs`, `acceptance`, `prefix_cache`, `scheduler`) whose constants come from
a calibration file. It does not predict anything for the tuner: whatever is measured on it is marked simulated.
Nothing here is imported by the rest of the project; the only interface is the process and its HTTP API.
"""

__all__: list[str] = []
