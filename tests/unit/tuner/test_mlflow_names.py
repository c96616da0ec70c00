"""Names of conditions inside MLflow's names, which allow few signs."""

import pytest

from tuner.tracking import key_of


@pytest.mark.parametrize("name", ["code", "code/t0.6/c8", "a b", "客服", "v1.2-x_y:z"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert name == key_of(name)


@pytest.mark.parametrize("name", ["a+b", "a(b)", "../x", "/x", "x/", "a//b", "..", "", "a\nb", "a%b"])
def test_names_that_mlflow_refuses_are_made_plain(name: str) -> None:
    key = key_of(name)
    assert key != name
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-x")
