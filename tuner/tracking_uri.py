"""Where MLflow is: from the option, the environment or the directory of studies; and how that is shown.

A password belongs in the environment alone: options are written to the study's files, to jobs and to MLflow itself.
"""

import os
import re
from pathlib import Path

from tuner.errors import UsageError

VARIABLE = "MLFLOW_TRACKING_URI"
"""MLflow's own, https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html."""

# Of http up to the path; elsewhere up to the last @, since databases take passwords with any sign in them.
_USERINFO = re.compile(r"(?<=://)(?:(?<=http://|ttps://)[^/\s]*|(?<!http://)(?<!ttps://)[^/\s]\S*)@")
_QUERY = re.compile(r"(?<=[?&])(\w*password)=[^&\s]+", re.IGNORECASE)


def tracking_uri(asked: str | None, out: Path) -> str:
    """The tracking URI to use: what was asked for, else `MLFLOW_TRACKING_URI`, else the SQLite file of the directory.

    Raises:
        UsageError: what was asked for holds a password.
    """
    return check_no_password(asked) or os.environ.get(VARIABLE) or f"sqlite:///{(out / 'mlflow.db').absolute()}"


def check_no_password(asked: str | None) -> str | None:
    """What was asked for, as it is.

    Raises:
        UsageError: it holds a password.
    """
    if asked and (any(":" in found for found in _USERINFO.findall(asked)) or _QUERY.search(asked)):
        raise UsageError(
            f"--tracking-uri {without_password(asked)} has a password in it, which would be written to files; "
            f"leave the option out and set {VARIABLE} in the environment"
        )
    return asked


def without_password(text: str) -> str:
    """A tracking URI, or a message with one in it, fit to be shown: without user and password."""
    return _QUERY.sub(r"\1=***", _USERINFO.sub("***@", text))
