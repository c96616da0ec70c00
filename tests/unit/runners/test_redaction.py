"""Which values of an environment are secrets, whatever they look like as a file's name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runners.redaction import secrets_of


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENAMETOOLONG])
def test_a_value_that_cannot_be_looked_up_as_a_file_is_a_secret(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr(Path, "stat", refuse)
        found = secrets_of({"HF_TOKEN": "hf_1234567890"})
    assert found == ("hf_1234567890",)


def test_a_long_value_is_a_secret_and_a_file_s_name_is_none(tmp_path: Path) -> None:
    long = "a" * 200 + "/" + "b" * 5000
    environment = {"API_KEY": long, "TOKEN_FILE": str(tmp_path), "MY_SECRET": "0123456789abcdef"}
    assert secrets_of(environment) == (long, "0123456789abcdef")
