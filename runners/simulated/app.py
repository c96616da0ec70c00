"""The HTTP API: vLLM's routes, with authentication and the faults that live in the transport.

As in vLLM, /v1 needs the API key when there is one and nothing else does; /reset_prefix_cache and /server_info
exist only with VLLM_SERVER_DEV_MODE=1. What an answer contains is `requests` and `responses`; when it comes is
`engine`; how it travels is `http1`.
"""

import hmac
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import orjson

from runners.simulated.engine import Engine, Stream
from runners.simulated.faults import Faults
from runners.simulated.http1 import Exchange, Request
from runners.simulated.requests import ParsedRequest, RequestError, RequestReader
from runners.simulated.responses import Writer, error_body
from runners.simulated.server_info import server_info
from runners.simulated.setup import EngineSetup
from runners.simulated.text import render_chat, tokenize

__all__ = ["Api"]

_GUARDED = ("/v1", "/v2", "/inference", "/cohere")
_STREAM_500, _STREAM_503, _STREAM_DROP, _STREAM_MALFORMED = 21, 22, 23, 24
_Route = Callable[[Request, Exchange], Awaitable[None]]


class Api:
    """The handler of every request of one engine.

    Args:
        setup: the configuration.
        engine: runs the sequences.
        faults: what shall go wrong.
    """

    def __init__(self, setup: EngineSetup, engine: Engine, faults: Faults) -> None:
        self._setup, self._engine, self._faults = setup, engine, faults
        self._reader = RequestReader(setup, wrong_output=faults.wrong_output)
        self._keys = tuple(key.encode() for key in (*setup.flags.api_key, os.environ.get("VLLM_API_KEY", "")) if key)
        self._routes: dict[tuple[str, str], _Route] = {
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/load"): self._load,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/tokenize"): self._tokenize,
        }
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            self._routes["GET", "/server_info"] = self._server_info
            self._routes["POST", "/reset_prefix_cache"] = self._reset

    async def __call__(self, request: Request, exchange: Exchange) -> None:
        """Answer one request."""
        if self._keys and request.path.startswith(_GUARDED) and not self._authorised(request):
            _json(exchange, {"error": "Unauthorized"}, HTTPStatus.UNAUTHORIZED)
            return
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _, path in self._routes)
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            _json(exchange, {"detail": status.phrase}, status)
            return
        try:
            await route(request, exchange)
        except RequestError as error:
            _json(exchange, error_body(error.status, error.kind, str(error), error.param), error.status)

    def _authorised(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Every key is compared, so that the time taken does not tell which one nearly matched.
        known = [hmac.compare_digest(given.encode(), key) for key in self._keys]
        return scheme.lower() == "bearer" and any(known)

    async def _health(self, _: Request, exchange: Exchange) -> None:
        exchange.reply(503 if self._faults.never_ready else 200, b"", "text/plain")

    async def _version(self, _: Request, exchange: Exchange) -> None:
        _json(exchange, {"version": f"{self._setup.calibration.release}+simulated"})

    async def _load(self, _: Request, exchange: Exchange) -> None:
        _json(exchange, {"server_load": self._engine.active})

    async def _metrics(self, _: Request, exchange: Exchange) -> None:
        exchange.reply(200, self._engine.metrics.render(), "text/plain; version=0.0.4; charset=utf-8")

    async def _models(self, _: Request, exchange: Exchange) -> None:
        cards = [
            {
                "id": name,
                "object": "model",
                "owned_by": "vllm",
                "root": self._setup.flags.model,
                "max_model_len": self._setup.max_model_len,
            }
            for name in self._setup.flags.served_model_name
        ]
        _json(exchange, {"object": "list", "data": cards})

    async def _server_info(self, request: Request, exchange: Exchange) -> None:
        info = server_info(self._setup)
        if request.query.get("config_format", "text") == "text":
            info["vllm_config"] = str(info["vllm_config"])
        _json(exchange, info)

    async def _reset(self, _: Request, exchange: Exchange) -> None:
        _json(exchange, {"success": self._engine.reset_prefix_cache()})

    async def _tokenize(self, request: Request, exchange: Exchange) -> None:
        body = _body(request)
        text = render_chat(body["messages"]) if "messages" in body else str(body.get("prompt", ""))
        tokens = tokenize(text)
        _json(exchange, {"count": len(tokens), "max_model_len": self._setup.max_model_len, "tokens": tokens})

    async def _completions(self, request: Request, exchange: Exchange) -> None:
        await self._generate(request, exchange, chat=False)

    async def _chat(self, request: Request, exchange: Exchange) -> None:
        await self._generate(request, exchange, chat=True)

    async def _generate(self, request: Request, exchange: Exchange, *, chat: bool) -> None:
        body = _body(request)
        parsed = self._reader.read(body, chat=chat)
        self._engine.requests += 1
        number = self._engine.requests
        if self._faults.strikes(self._faults.http_500_rate, _STREAM_500, number):
            raise RequestError(500, "InternalServerError", "simulated fault http_500_rate")
        if self._faults.strikes(self._faults.http_503_rate, _STREAM_503, number):
            raise RequestError(503, "ServiceUnavailableError", "simulated fault http_503_rate")
        writer = Writer(
            chat=chat,
            request_id=f"{'chatcmpl' if chat else 'cmpl'}-simulated-{number}",
            model=str(body.get("model", self._setup.flags.served_model_name[0])),
            details=self._setup.flags.enable_prompt_tokens_details,
        )
        stream = self._engine.submit(parsed.sequence, parsed.max_tokens, number)
        drop = self._faults.strikes(self._faults.drop_rate, _STREAM_DROP, number)
        try:
            if parsed.stream:
                await self._send_stream(exchange, parsed, stream, writer, drop=drop)
            else:
                await self._send_whole(exchange, stream, writer, drop=drop)
        finally:
            self._engine.abort(stream)

    async def _send_whole(self, exchange: Exchange, stream: Stream, writer: Writer, *, drop: bool) -> None:
        seen = 0
        while not stream.finished:
            seen = await stream.more(seen)
        if drop:
            exchange.cut()
            return
        answer = stream.sequence.answer
        usage = writer.usage(stream, stream.available, final=True)
        _json(exchange, writer.whole(answer.text(0, stream.available), answer.finish_reason, usage))

    async def _send_stream(
        self, exchange: Exchange, parsed: ParsedRequest, stream: Stream, writer: Writer, *, drop: bool
    ) -> None:
        malformed = self._faults.strikes(self._faults.malformed_sse, _STREAM_MALFORMED, stream.number)
        answer, seen, finished = stream.sequence.answer, 0, False
        while not finished:
            available = await stream.more(seen)
            finished = stream.finished
            usage = writer.usage(stream, available, final=False) if parsed.continuous_usage else None
            data = writer.chunk(answer.text(seen, available), answer.finish_reason if finished else None, usage)
            if seen == 0 and writer.chat:
                data = writer.opening(writer.usage(stream, 0, final=False) if usage else None) + data
            if malformed and (seen or finished):
                data, malformed = data[: len(data) // 2] + b"\n\n", False
            await exchange.stream(data)
            if drop:
                exchange.cut()
                return
            seen = available
        tail = writer.closing(writer.usage(stream, seen, final=True)) if parsed.include_usage else b""
        tail += b"" if self._faults.no_done else b"data: [DONE]\n\n"
        if tail:
            await exchange.stream(tail)
        exchange.end()


def _body(request: Request) -> dict[str, Any]:
    try:
        body = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, "BadRequestError", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError(400, "BadRequestError", "the body must be a JSON object")
    return body


def _json(exchange: Exchange, payload: dict[str, Any], status: int = HTTPStatus.OK) -> None:
    exchange.reply(status, orjson.dumps(payload), "application/json")
