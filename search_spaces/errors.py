"""Errors of the search_spaces package.

SearchSpaceError                what the user gave cannot become a search space
├── SpaceFileError              a preset or a user's YAML is malformed
├── CheckpointError             a model or draft directory is missing, unreadable or does not fit
└── EngineArgumentError         an engine argument that the tuner cannot carry
"""


class SearchSpaceError(Exception):
    """Base of every error this package raises on purpose."""


class SpaceFileError(SearchSpaceError):
    """A search-space file is missing, malformed or names something unknown."""


class CheckpointError(SearchSpaceError):
    """A checkpoint is missing, unreadable, or a draft does not fit its target."""


class EngineArgumentError(SearchSpaceError):
    """An engine argument cannot be carried, for example because the tuner sets it itself."""
