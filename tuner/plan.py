"""The plan of a study: what is known before the first launch, with everything impossible refused.

Reads the workload and the checkpoints, settles profiles, conditions, blocks and the search space. Starts nothing.
"""

from dataclasses import dataclass
from functools import partial

from runners.gpu import Gpu as FoundGpu
from search_spaces import (
    Checkpoint,
    Gpu,
    Release,
    ResolvedSpace,
    SearchSpace,
    ServeConfig,
    check_draft_fits,
    load_release,
    load_space,
    parse_engine_args,
    read_checkpoint,
    unknown_flags,
)
from tuner import host
from tuner.baseline import read_baseline
from tuner.conditions import Condition, TemperaturePlan, parse_temperature, plan_conditions
from tuner.config import TuneConfig
from tuner.engine_choice import planned_version
from tuner.errors import UsageError
from tuner.facts import gather_facts, known_gpus
from tuner.gpus import find_gpus
from tuner.objective import Objective, Slo, parse_objective, parse_slos
from tuner.search.warm_start import Hint, read_hints
from tuner.store import Store
from workloads import Block, Profile, Request, Workload, read_sample, split_profiles, stream_requests

# An engine that may not be restarted has one configuration, which nobody here chose.
AS_ATTACHED = SearchSpace(name="as attached", knobs={})
# Without a version the newest table is the best guess.
UNKNOWN_VERSION = "0.33.0"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the story needs to know before it starts an engine."""

    config: TuneConfig
    workload: Workload
    profiles: tuple[Profile, ...]
    conditions: tuple[Condition, ...]
    temperature: TemperaturePlan
    search_blocks: dict[str, tuple[Block, ...]]
    held_out_blocks: dict[str, tuple[Block, ...]]
    space: ResolvedSpace
    objective: Objective
    slos: tuple[Slo, ...]
    baseline: ServeConfig
    engine_version: str
    gpus: tuple[str, ...]
    warnings: tuple[str, ...]
    hints: tuple[Hint, ...] = ()


def make_plan(config: TuneConfig, *, assumed_gpus: tuple[Gpu, ...] | None = None) -> Plan:
    """Reads and checks everything.

    Args:
        config: the request.
        assumed_gpus: GPUs to plan for instead of the host's; such a plan cannot be run.

    Raises:
        WorkloadError: the workload cannot be used.
        SearchSpaceError: model, draft or search space cannot be used.
        UsageError: options contradict each other.
    """
    objective, slos = parse_objective(config.objective), parse_slos(config.slo)
    temperature = parse_temperature(config.temperature)
    workload, warnings = read_traffic(config)
    profiles = split_profiles(workload, config.profile_by)
    conditions = plan_conditions(profiles, temperature, config.load)
    search_blocks, held_out_blocks = _blocks(profiles, config)
    version, release, more = _release(config)
    gpus = find_gpus(config).gpus
    space = _space(config, release, workload, gpus, assumed_gpus)
    warnings += [*_rejected_lines(workload), *_limits_of(workload), *more, *_about(config, space)]
    baseline = read_baseline(config.baseline, space) if config.baseline else space.serve_config(space.baseline())
    return Plan(
        config=config,
        workload=workload,
        profiles=profiles,
        conditions=conditions,
        temperature=temperature,
        search_blocks=search_blocks,
        held_out_blocks=held_out_blocks,
        space=space,
        objective=objective,
        slos=slos,
        baseline=baseline,
        engine_version=version,
        gpus=host.describe_gpus(gpus),
        warnings=tuple(warnings),
        hints=_earlier_study(config, objective),
    )


def _release(config: TuneConfig) -> tuple[str, Release, list[str]]:
    """The engine's version, what is known of it, and what is not."""
    version, warnings = planned_version(config), []
    if version is None:
        version = UNKNOWN_VERSION
        warnings.append(
            f"the engine's version is unknown before it runs; planning for vLLM {version} (--engine-version)"
        )
    release, warning = load_release(version)
    return version, release, [*warnings, *([warning] if warning else [])]


def _space(
    config: TuneConfig,
    release: Release,
    workload: Workload,
    found_gpus: tuple[FoundGpu, ...],
    assumed_gpus: tuple[Gpu, ...] | None,
) -> ResolvedSpace:
    """The search space as release, checkpoints, GPUs and prompts leave it."""
    unresolved = AS_ATTACHED if config.engine_url is not None else load_space(config.space)
    target, draft = _checkpoints(config, plain_drafts=_has_plain_drafts(unresolved))
    facts = gather_facts(
        release=release,
        target=target,
        draft=draft,
        requests=workload.requests,
        device=host.device(host.describe_gpus(found_gpus)),
        gpus=known_gpus(found_gpus),
        assumed_gpus=assumed_gpus,
    )
    return unresolved.resolve(facts, fixed_args=parse_engine_args(config.engine_args), env=config.engine_env)


def _about(config: TuneConfig, space: ResolvedSpace) -> list[str]:
    """What may not be as expected about arguments and speculation."""
    warnings = list(unknown_flags(space.fixed_args, space.facts.release))
    if config.engine_url is not None:
        warnings.append(
            f"the engine at {config.engine_url} is measured as it is and never restarted: only load and temperature "
            "are tuned"
        )
    elif space.facts.draft is None:
        warnings.append("no --draft: no method that needs one is part of the search")
    elif "method" not in space.knobs and "method" in space.left_out:
        warnings.append(f"speculation is not part of the search: {space.left_out['method']}")
    return warnings


def _earlier_study(config: TuneConfig, objective: Objective) -> tuple[Hint, ...]:
    """What `--warm-start` suggests.

    Raises:
        UsageError: the study is of another model, or its baseline was not measured.
    """
    if config.warm_start is None:
        return ()
    store = Store.open(config.out, config.warm_start)
    if store.config().model != config.model:
        raise UsageError(
            f"--warm-start {config.warm_start!r} is a study of {store.config().model}, not of {config.model}; "
            "name a study of the same model"
        )
    hints = read_hints(store.records(), objective)
    if not hints:
        raise UsageError(
            f"--warm-start {config.warm_start!r} measured no {objective.metric} beside a baseline; leave it out"
        )
    return hints


def read_traffic(config: TuneConfig) -> tuple[Workload, list[str]]:
    """The workload or a sample of it, and how the sample differs from the whole."""
    opened = partial(
        stream_requests,
        config.workload,
        format=config.workload_format,
        max_bad_share=config.max_bad_share,
        time_unit=config.time_unit,
        responses=config.responses,
        vocab_size=read_checkpoint(config.model).vocab_size,
    )
    if config.sample is None:
        return opened().workload(), []
    workload, difference = read_sample(opened, config.sample, seed=config.seed, profile_by=config.profile_by)
    return workload, [str(difference)] if difference else []


def _blocks(
    profiles: tuple[Profile, ...], config: TuneConfig
) -> tuple[dict[str, tuple[Block, ...]], dict[str, tuple[Block, ...]]]:
    search: dict[str, tuple[Block, ...]] = {}
    held_out: dict[str, tuple[Block, ...]] = {}
    for profile in profiles:
        sessions = len(profile.sessions())
        if sessions < 2 * config.blocks:
            raise UsageError(
                f"profile {profile.name!r} has {sessions} sessions; {config.blocks} blocks to search and as many "
                f"held out need {2 * config.blocks}: record more traffic, lower --blocks, or use --profile-by none"
            )
        first, second = profile.split(config.held_out, config.seed)
        for part, blocks in ((first, search), (second, held_out)):
            blocks[profile.name] = limit_requests(part, config.requests, sessions=config.blocks).blocks(config.blocks)
            if len(blocks[profile.name]) < config.blocks:
                found = len(blocks[profile.name])
                raise UsageError(
                    f"profile {profile.name!r}: one part has {found} sessions for {config.blocks} blocks; "
                    "record more traffic, move --held-out towards 0.5, or lower --blocks"
                )
    return search, held_out


def limit_requests(profile: Profile, count: int | None, *, sessions: int) -> Profile:
    """The first whole sessions of a profile that hold about that many requests, but not fewer sessions than asked."""
    if count is None or len(profile.requests) <= count:
        return profile
    kept: list[Request] = []
    for number, session in enumerate(profile.sessions()):
        if len(kept) >= count and number >= sessions:
            break
        kept += session
    chosen = {id(request) for request in kept}
    return Profile(name=profile.name, requests=tuple(r for r in profile.requests if id(r) in chosen))


def _rejected_lines(workload: Workload) -> list[str]:
    if not workload.rejected:
        return []
    first = workload.rejected[0]
    return [f"{len(workload.rejected)} lines of {workload.path} rejected; line {first.line}: {first.reason}"]


def _limits_of(workload: Workload) -> list[str]:
    """What of the recording cannot be replayed, and what that means for the study."""
    found = []
    if not workload.text_bearing:
        found.append(
            f"{workload.path.name} has prompts without real text: lengths, arrivals and prefix sharing are replayed, "
            "but acceptance, and so num_speculative_tokens (K), cannot be tuned on it"
        )
    # Model names are always replaced by the served model's, so one of them is nothing to warn about.
    names = [name for name in workload.unhonoured if name.startswith("model name ")]
    listed = [f"{name} ({n})" for name, n in workload.unhonoured.items() if len(names) > 1 or name not in names]
    if listed:
        found.append(f"the recording has what the replay does not honour as it was: {', '.join(listed)}")
    return found


def _has_plain_drafts(space: SearchSpace) -> bool:
    """Whether a model that is no special draft may draft."""
    method = space.knobs.get("method")
    return method is not None and "draft_model" in method.values()


def _checkpoints(config: TuneConfig, *, plain_drafts: bool) -> tuple[Checkpoint, Checkpoint | None]:
    target = read_checkpoint(config.model)
    if config.draft is None:
        return target, None
    draft = read_checkpoint(config.draft)
    check_draft_fits(draft, target, plain=plain_drafts)
    return target, draft
