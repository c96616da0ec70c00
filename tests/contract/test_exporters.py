"""Every exporter has a contract test, and whatever text a study holds goes through each of them unchanged."""

from __future__ import annotations

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.contract import test_exporters_for_clusters as clusters
from tests.contract import test_exporters_for_one_host as one_host
from tests.contract.exporter_schemas import OwnContract
from tuner.exporters import EXPORTERS
from tuner.exporters.testing import answer, provenance, serve_config

CONTRACTS = [
    each
    for module in (one_host, clusters)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, OwnContract) and each is not OwnContract
]


def test_every_exporter_has_a_contract_test() -> None:
    assert {contract.exporter.name for contract in CONTRACTS} == set(EXPORTERS)


@pytest.mark.slow
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.exporter.name)
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@example(model="x", value="\x85\u2028", condition="\x85")
@given(
    model=st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n"), min_size=1, max_size=30),
    value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    condition=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_any_text_goes_through(contract: type[OwnContract], model: str, value: str, condition: str) -> None:
    config = serve_config({"served-model-name": value}, model=f"m{model}", env={"V": value})
    text = contract.exporter.export(answer(config, condition=condition), provenance())
    reader = contract()
    words, variables = reader.started(text)
    assert tuple(words)[: len(config.to_argv())] == config.to_argv()
    assert not reader.takes_variables or variables["V"] == value
    assert reader.invalid(text) == []
