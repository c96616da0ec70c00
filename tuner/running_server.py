"""A server that somebody else runs: which model it serves and what it has counted. Nothing is started or stopped."""

import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tuner.errors import NoEngineError

if TYPE_CHECKING:
    from runners import EngineMetrics
    from runners.prometheus import Scrape

TIMEOUT_S = 10.0
MOST_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 64 * 1024
IDLE_WAIT_S = 5.0
IDLE_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class RunningServer:
    """An OpenAI-compatible server.

    Attributes:
        base_url: Scheme, host and port, and a path if the API lies below one.
        api_key: Sent as a bearer token; empty for none.
    """

    base_url: str
    api_key: str

    def model(self) -> str:
        """The only model that it serves.

        Raises:
            NoEngineError: it does not answer, or serves none or several.
        """
        status, text = self._get("/v1/models")
        try:
            names = [entry["id"] for entry in json.loads(text)["data"]] if status == 200 else []
        except (ValueError, KeyError, TypeError, RecursionError):
            names = []
        if len(names) == 1:
            return str(names[0])
        found = f"{len(names)} models ({', '.join(map(str, names[:5]))})" if names else f"no models (HTTP {status})"
        raise NoEngineError(f"{self.base_url}/v1/models names {found}; say which one with --model")

    def scrape(self) -> "Scrape | None":
        """vLLM's counters now; None where the server has none."""
        status, text = self._get("/metrics")
        if status != 200 or "vllm:" not in text:
            return None
        from runners.prometheus import Scrape

        return Scrape.parse(text, at_s=time.monotonic())

    def counted_since(self, before: "Scrape") -> "EngineMetrics | None":
        """What it counted since, once it is idle: a request is counted a moment after its last byte."""
        give_up_s = time.monotonic() + IDLE_WAIT_S
        while True:
            after = self.scrape()
            if after is None or after.idle or time.monotonic() > give_up_s:
                return None if after is None else after.since(before)
            time.sleep(IDLE_PAUSE_S)

    def _read(self, response: http.client.HTTPResponse) -> str:
        """The body without our own key; not for ever, and not more than a vLLM would have to say."""
        pieces, left_bytes, give_up_s = [], MOST_BYTES, time.monotonic() + TIMEOUT_S
        while piece := response.read1(min(left_bytes, PIECE_BYTES)):
            pieces.append(piece)
            left_bytes -= len(piece)
            if not left_bytes:
                raise http.client.HTTPException(f"it sent more than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > give_up_s:
                raise http.client.HTTPException(f"it was not done after {TIMEOUT_S:g} s")
        text = b"".join(pieces).decode("utf-8", "replace")
        return text.replace(self.api_key, "[redacted]") if self.api_key else text

    def _get(self, path: str) -> tuple[int, str]:
        url = urlsplit(self.base_url)
        make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = make(url.hostname or "", url.port, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        try:
            connection.request("GET", url.path.rstrip("/") + path, headers=headers)
            response = connection.getresponse()
            return response.status, self._read(response)
        except (OSError, http.client.HTTPException) as error:
            raise NoEngineError(
                f"{self.base_url} does not answer ({type(error).__name__}: {error}); is the server running, and is "
                "--url its root, without /v1?"
            ) from error
        finally:
            connection.close()
