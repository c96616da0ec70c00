"""What can be configured: knobs, search spaces, serve configs, vLLM releases. Pure data and rules."""

from search_spaces.advice import notes
from search_spaces.checkpoint import Checkpoint, check_draft_fits, read_checkpoint
from search_spaces.errors import CheckpointError, EngineArgumentError, SearchSpaceError, SpaceFileError
from search_spaces.facts import Device, Facts, Gpu
from search_spaces.geometry import Geometry, read_geometry
from search_spaces.knobs import Knob, Scalar, Values, unsafe
from search_spaces.offers import unknown_flags
from search_spaces.release import Release, known_releases, load_release
from search_spaces.serve_config import Argument, ServeConfig, parse_engine_args
from search_spaces.space import ResolvedSpace, SearchSpace
from search_spaces.space_files import load_space, preset_names

__all__ = [
    "Argument",
    "Checkpoint",
    "CheckpointError",
    "Device",
    "EngineArgumentError",
    "Facts",
    "Geometry",
    "Gpu",
    "Knob",
    "Release",
    "ResolvedSpace",
    "Scalar",
    "SearchSpace",
    "SearchSpaceError",
    "ServeConfig",
    "SpaceFileError",
    "Values",
    "check_draft_fits",
    "known_releases",
    "load_release",
    "load_space",
    "notes",
    "parse_engine_args",
    "preset_names",
    "read_checkpoint",
    "read_geometry",
    "unknown_flags",
    "unsafe",
]
