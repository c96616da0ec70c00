"""Rules about attention backends, the KV cache's dtype, and KV blocks.

The table of backends is from their classes in vLLM 0.32 (vllm/v1/attention/backends), for GPUs of NVIDIA. A backend
that is not in the table is not judged.
"""

from dataclasses import dataclass

from search_spaces import methods
from search_spaces.facts import Facts
from search_spaces.limits import true_kv_block
from search_spaces.settings import Settings, number, speculates

PLAIN = frozenset({"auto", "float16", "bfloat16"})
FP8 = frozenset({"fp8", "fp8_e4m3"})
Generation = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Backend:
    """What one attention backend can do.

    Attributes:
        kv_dtypes: values of --kv-cache-dtype on any of its GPUs.
        generations: by further value, the major compute capabilities that have kernels for it.
        lowest: oldest compute capability.
        highest: newest compute capability, where there is a limit.
        head_sizes: widths of a head, where only some work.
        non_causal: whether a token may see later ones, as in a block of DFlash.
    """

    kv_dtypes: frozenset[str]
    generations: dict[str, tuple[int, ...]]
    lowest: Generation = (0, 0)
    highest: Generation | None = None
    head_sizes: tuple[int, ...] | None = None
    non_causal: bool = True


BACKENDS = {
    # fa_utils.flash_attn_supports_kv_cache_dtype: FA3 on Hopper, FA4 on data-centre Blackwell; never e5m2
    "FLASH_ATTN": Backend(PLAIN, {"fp8": (9, 10), "fp8_e4m3": (9, 10)}, lowest=(8, 0)),
    "FLASHINFER": Backend(
        PLAIN | FP8 | {"fp8_e5m2"},
        {"nvfp4": (10, 12), "nvfp4_4over6": (10,)},
        lowest=(8, 0),
        highest=(12, 1),
        head_sizes=(64, 128, 256, 512),
    ),
    "TRITON_ATTN": Backend(
        PLAIN | FP8 | {"fp8_e5m2", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"}, {}
    ),
    "FLEX_ATTENTION": Backend(PLAIN, {}),
    "FLASH_ATTN_DIFFKV": Backend(PLAIN, {}, lowest=(8, 0), non_causal=False),
}


def backend_takes_kv_dtype(settings: Settings, facts: Facts) -> str | None:
    """A backend without kernels for the dtype on this generation of GPUs is refused at start."""
    name, backend = _backend(settings)
    dtype = str(settings.get("kv_cache_dtype") or "auto")
    if backend is None or dtype in backend.kv_dtypes:
        return None
    generations = backend.generations.get(dtype)
    if generations is None:
        others = ", ".join(other for other, found in BACKENDS.items() if dtype in found.kv_dtypes)
        return f"attention_backend={name} has no kernels for kv_cache_dtype={dtype}; {others or 'no backend here'} has"
    capability = _capability(facts)
    if capability is None or capability[0] in generations:
        return None
    needed = " or ".join(f"{major}.x" for major in generations)
    return (
        f"attention_backend={name} has no kernels for kv_cache_dtype={dtype} on compute capability "
        f"{_dotted(capability)} (needs {needed}); FLASHINFER and TRITON_ATTN may"
    )


def backend_runs_on_gpu(settings: Settings, facts: Facts) -> str | None:
    """Backends have an oldest, and some a newest, generation (`supports_compute_capability`)."""
    name, backend = _backend(settings)
    capability = _capability(facts)
    if backend is None or capability is None:
        return None
    has = f"the GPU has {_dotted(capability)}"
    if capability < backend.lowest:
        return f"attention_backend={name} needs compute capability {_dotted(backend.lowest)}; {has}"
    if backend.highest is not None and capability > backend.highest:
        return f"attention_backend={name} goes to compute capability {_dotted(backend.highest)}; {has}"
    return None


def backend_takes_head_size(settings: Settings, facts: Facts) -> str | None:
    """Some backends have kernels for some widths of a head only (`get_supported_head_sizes`)."""
    name, backend = _backend(settings)
    width = facts.target_geometry.head_dim if facts.target_geometry else None
    if backend is None or backend.head_sizes is None or width is None or width in backend.head_sizes:
        return None
    sizes = ", ".join(map(str, backend.head_sizes))
    return f"attention_backend={name} has no kernels for heads of {width}; it has {sizes}"


def backend_sees_a_whole_block(settings: Settings, facts: Facts) -> str | None:
    """A DFlash draft attends without causality (`supports_non_causal`), unless it has a backend of its own."""
    del facts
    name, backend = _backend(settings)
    known = methods.METHODS.get(str(settings.get("method")))
    if backend is None or backend.non_causal or known is None or not known.has_block or not speculates(settings):
        return None
    return f"attention_backend={name} is causal, and a {settings['method']} draft needs one that is not"


def kv_block_size_is_aligned(settings: Settings, facts: Facts) -> str | None:
    """Attention backends take KV blocks in multiples of a device-specific size."""
    size = number(settings, "kv_block_size")
    multiple = facts.release.defaults[facts.device].kv_block_multiple
    if size and size % multiple:
        return f"kv_block_size={size} is not a multiple of {multiple}, the unit of the attention kernels on this device"
    return None


def hybrid_block_is_what_it_says(settings: Settings, facts: Facts) -> str | None:
    """A hybrid's KV block holds one recurrent state, however small a block is asked for: often nothing changes."""
    size = number(settings, "kv_block_size")
    if not size or facts.target_geometry is None or not facts.target_geometry.is_hybrid:
        return None
    asked, unasked = true_kv_block(settings, facts), true_kv_block({**settings, "kv_block_size": None}, facts)
    if asked is None or asked != unasked:
        return None
    return f"kv_block_size={size} changes nothing: this hybrid's KV block is {asked} tokens with and without it"


def recurrent_cache_is_cached(settings: Settings, facts: Facts) -> str | None:
    """Prefix caching of recurrent states needs chunked prefill (`MambaModelConfig.verify_and_update_config`)."""
    hybrid = facts.target_geometry is not None and facts.target_geometry.is_hybrid
    if hybrid and settings.get("prefix_caching") is not False and settings.get("chunked_prefill") is False:
        return "chunked_prefill=False does not work with prefix caching on a model with recurrent layers"
    return None


def _backend(settings: Settings) -> tuple[str, Backend | None]:
    name = str(settings.get("attention_backend") or "").upper()
    return name, BACKENDS.get(name)


def _capability(facts: Facts) -> Generation | None:
    return facts.gpus[0].compute_capability if facts.gpus else None


def _dotted(capability: Generation) -> str:
    return f"{capability[0]}.{capability[1]}"
