"""The faults of the drill: what goes wrong, how it is brought about, and which classes are the true ones for it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: In the table.
        expected: Failure classes that are true for it; ``measured`` where the trial must succeed, ``invalid`` where
            its measurement must be marked.
        faults: SIMULATED_FAULTS of the recipe's engine.
        trick: What the engine's wrapper does before the engine starts.
        once: Only the first launch of the recipe is hit, so that another try succeeds.
        long_prompts: The workload's prompts fill many KV blocks, so that a stale prefix cache would show.
        place: Where the study's directory lies.
        options: Further options of ``tune``.
        words: What must be said: in the invalid measurement's problems, or by the tuner.
    """

    name: str
    expected: tuple[str, ...]
    faults: str = ""
    trick: str = ""
    once: bool = False
    long_prompts: bool = False
    place: str = "plain"
    options: dict[str, str] = field(default_factory=dict)
    words: str = ""


FAULTS: tuple[Fault, ...] = (
    Fault("oom_weights", ("oom_weights",), "oom_at=weights"),
    Fault("oom_kv", ("oom_kv",), "oom_at=kv"),
    Fault("oom_graph_capture", ("oom_graph_capture",), "oom_at=graphs"),
    Fault("exit_before_ready", ("crash",), "exit_at_start=7"),
    Fault("never_ready", ("timeout",), "never_ready", options={"ready_timeout": "6s"}),
    Fault("hung_with_health_200", ("hung",), "hang_after=8", options={"hang_timeout": "2s"}),
    Fault("death_in_mid_stream", ("crash",), "die_after=8"),
    Fault("http_500_at_first", ("no_completion",), "http_500_rate=1"),
    Fault("http_500", ("invalid",), "http_500_rate=0.3,faulty_from=9", words="http_5xx|500"),
    Fault("http_503_overload", ("invalid",), "http_503_rate=0.5,faulty_from=9", words="http_5xx|503"),
    Fault("dropped_connections", ("invalid",), "drop_rate=0.3,faulty_from=9", words="connection|reset|broke"),
    Fault("malformed_sse", ("invalid",), "malformed_sse", words="sse|SSE|malformed|stream|JSON"),
    Fault("reset_that_lies", ("measured",), "reset_lies", long_prompts=True, options={"temperature": "0,0.8"}),
    Fault("second_server_on_port", ("measured",), trick="second_server", once=True, words="port"),
    Fault("foreign_process_on_port", ("measured",), trick="foreign_process", once=True, words="port"),
    Fault("child_ignores_sigterm", ("measured",), "ignore_sigterm", once=True),
    Fault("grandchild_other_group", ("measured",), "grandchild"),
    Fault("sigterm_and_grandchild", ("measured",), "ignore_sigterm,grandchild", once=True),
    Fault("engine_killed", ("measured",), trick="kill_later", once=True, words="killed"),
    Fault("disk_full_for_engine", ("disk_full",), "disk_full"),
    Fault("disk_full_run_directory", ("measured",), trick="fill_disk", once=True, place="small", words="space"),
    Fault("read_only_directory", ("measured",), place="read_only", words="[Rr]ead-only"),
    Fault("clock_step", ("measured",), place="clock_step"),
)
