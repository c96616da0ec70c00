"""One upstream and one recorder that many tests of a module send through."""

from collections.abc import Iterator

import pytest

from tests.integration.recorder.recording import Recording
from tests.integration.recorder.upstream import Upstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that answers as each request asks."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def recording(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """A recorder in front of it; not to be stopped by a test that others follow."""
    with Recording(upstream.url, tmp_path_factory.mktemp("recorded") / "traffic.jsonl") as running:
        yield running
