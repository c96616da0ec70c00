"""The few requests that a runner itself sends to an engine: is it alive, is it ours, does it work, what did it count.

Speaks vLLM's HTTP API. Every call opens its own connection, because a kept one that the server closes while idle would
make a good engine look broken. Replaying traffic is somebody else's job, with its own session.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from runners.errors import EngineUnreachable, LaunchFailure, MetricsError
from runners.prometheus import Scrape
from runners.redaction import REDACTED

_TIMEOUT_S = 10.0
_HEALTH_TIMEOUT_S = 2.0
_RESET_TRIES = 20
_RESET_PAUSE_S = 0.05
# /server_info lists every package of the machine, /metrics of 64 engines is some 3 MB.
_MOST_BYTES = 16 * 1024 * 1024
_QUOTED_CHARACTERS = 300
_PROOF_PROMPT = "The capital of France is"
_PROOF_TOKENS = 4


class EngineClient:
    """vLLM's API at one base URL.

    Every method but ``healthy`` raises EngineUnreachable when the engine does not answer.
    """

    def __init__(self, base_url: str, api_key: str, model: str) -> None:
        self.base_url = base_url
        self.api_key = api_key
        self.model = model
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
            # What is read is counted as it comes, so nobody may unpack more out of it first.
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            # A proxy from the environment must not stand between the tuner and an engine on loopback.
            trust_env=False,
        )

    async def close(self) -> None:
        """Give the session back."""
        await self._session.close()

    async def healthy(self) -> bool:
        """/health answers 200; False also when nothing listens yet."""
        timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
        try:
            async with self._session.get(f"{self.base_url}/health", timeout=timeout, allow_redirects=False) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def version(self) -> str:
        """What /version says.

        Raises:
            LaunchFailure: The server has no /version: it is not vLLM.
        """
        async with self._request("GET", "/version") as response:
            body = _json_object(await self._text(response))
        if not isinstance(body.get("version"), str):
            message = f"the server at {self.base_url} has no /version, so it is not vLLM; check the engine command"
            raise LaunchFailure("foreign_server", message)
        return str(body["version"])

    async def refuses_wrong_key(self) -> bool:
        """A request with a key that is not ours gets 401: the server was started with ours."""
        headers = {"Authorization": "Bearer not-the-key"}
        async with self._request("GET", "/v1/models", headers=headers) as response:
            return response.status == 401

    async def prove_completion(
        self, *, timeout_s: float, prompt: str = _PROOF_PROMPT, tokens: int = _PROOF_TOKENS
    ) -> None:
        """Ask for a few tokens with our key and model.

        Raises:
            LaunchFailure: It answered with an error or without a token.
        """
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.0}
        async with self._request("POST", "/v1/completions", json=body, timeout_s=timeout_s) as response:
            text = await self._text(response)
        answer = _json_object(text)
        usage = answer.get("usage")
        if response.status != 200 or not isinstance(usage, dict) or not usage.get("completion_tokens"):
            message = (
                f"the engine is up, but a completion for model {self.model!r} got HTTP {response.status}: "
                f"{text.strip()[:300]}; check the served model name and the model"
            )
            raise LaunchFailure("no_completion", message)

    async def server_info(self, *, timeout_s: float) -> Mapping[str, Any]:
        """/server_info as JSON; empty when the engine does not offer it (VLLM_SERVER_DEV_MODE is off).

        The first call takes seconds, because vLLM then describes the whole machine with it (``pip list`` included).
        """
        params = {"config_format": "json"}
        async with self._request("GET", "/server_info", params=params, timeout_s=timeout_s) as response:
            return _json_object(await self._text(response)) if response.status == 200 else {}

    async def scrape(self) -> Scrape:
        """/metrics, parsed.

        Raises:
            MetricsError: There is none, or it is not vLLM's.
        """
        async with self._request("GET", "/metrics") as response:
            at_s = time.perf_counter()
            text = await self._text(response)
        if response.status != 200:
            raise MetricsError(f"{self.base_url}/metrics got HTTP {response.status}; start the engine with metrics")
        return Scrape.parse(text, at_s=at_s)

    async def metrics_text(self, *, timeout_s: float) -> bytes:
        """/metrics as it is; EngineUnreachable also when it answers with an error."""
        async with self._request("GET", "/metrics", timeout_s=timeout_s) as response:
            if response.status != 200:
                raise EngineUnreachable(f"{self.base_url}/metrics got HTTP {response.status}")
            return await _body(response)

    async def models(self) -> tuple[str, ...]:
        """Names that the server answers to.

        Raises:
            LaunchFailure: It refuses the key, or does not list models.
        """
        async with self._request("GET", "/v1/models") as response:
            body = _json_object(await self._text(response))
            if response.status == 401:
                message = f"the server at {self.base_url} refuses the API key; name the right one"
                raise LaunchFailure("foreign_server", message)
        cards = body.get("data")
        names = tuple(str(card["id"]) for card in _objects(cards) if "id" in card)
        if not names:
            message = f"the server at {self.base_url} lists no model (/v1/models got HTTP {response.status})"
            raise LaunchFailure("foreign_server", message)
        return names

    async def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False when the engine still says no after about a second, or has no such endpoint.

        vLLM answers 200 with ``"success": false`` while blocks are held, which is so for a moment after a request ends.
        """
        for attempt in range(_RESET_TRIES):
            if attempt:
                await asyncio.sleep(_RESET_PAUSE_S)
            async with self._request("POST", "/reset_prefix_cache") as response:
                if response.status != 200:
                    return False
                if _json_object(await self._text(response)).get("success") is True:
                    return True
        return False

    async def _text(self, response: aiohttp.ClientResponse) -> str:
        """The body without our own key, should a server quote the request: messages are made of it."""
        text = (await _body(response)).decode(errors="replace")
        return text.replace(self.api_key, REDACTED) if self.api_key else text

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, *, timeout_s: float = _TIMEOUT_S, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = options.pop("headers", {"Authorization": f"Bearer {self.api_key}"})
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        url = self.base_url + path
        try:
            async with self._session.request(
                # An engine does not redirect; whoever does would have us measure, and give our key to, somebody else.
                method,
                url,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                **options,
            ) as response:
                yield response
        except TimeoutError as error:
            raise EngineUnreachable(f"the engine did not answer {method} {path} within {timeout_s:g} s") from error
        except aiohttp.ClientError as error:
            # Not its repr: that of some has the request's headers, and so the key.
            said = f"{type(error).__name__}: {error}"[:_QUOTED_CHARACTERS]
            raise EngineUnreachable(f"{method} {path} to the engine failed: {said}") from None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, if it is not too long to be an engine's.

    Raises:
        EngineUnreachable: It is.
    """
    pieces, size_bytes = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > _MOST_BYTES:
            raise EngineUnreachable(
                f"{response.method} {response.url.path} to the engine brought more than {_MOST_BYTES >> 20} MiB; "
                "see what answers there"
            )
    return b"".join(pieces)


def _objects(value: object) -> list[dict[str, Any]]:
    """What is an object in a list of JSON; nothing where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _json_object(text: str) -> dict[str, Any]:
    """The text as a JSON object; empty when it is anything else."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):  # the latter for brackets nested by the thousand
        return {}
    return body if isinstance(body, dict) else {}
