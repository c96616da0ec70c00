"""The HTTP API: vLLM's routes over aiohttp, with authentication and the faults that live in the transport.

As in vLLM, /v1 needs the API key when there is one and nothing else does; /reset_prefix_cache and /server_info exist only with
VLLM_SERVER_DEV_MODE=1. What an answer contains is `requests` and `responses`; when it comes is `engine`.
"""

import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from runners.simulated.engine import Engine, Stream
from runners.simulated.faults import Faults
from runners.simulated.requests import ParsedRequest, RequestError, RequestReader
from runners.simulated.responses import Writer, error_body
from runners.simulated.server_info import server_info
from runners.simulated.setup import EngineSetup
from runners.simulated.text import render_chat, tokenize

__all__ = ["Api", "build_app"]

_GUARDED = ("/v1", "/v2", "/inference", "/cohere")
_STREAM_500, _STREAM_503, _STREAM_DROP, _STREAM_MALFORMED = 21, 22, 23, 24
_MAX_BODY = 64 * 2**20
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """Handlers of one engine.

    Args:
        setup: the configuration.
        engine: runs the sequences.
        faults: what shall go wrong.
    """

    def __init__(self, setup: EngineSetup, engine: Engine, faults: Faults) -> None:
        self._setup, self._engine, self._faults = setup, engine, faults
        self._reader = RequestReader(setup, wrong_output=faults.wrong_output)
        self._version = f"{setup.calibration.release}+simulated"

    def routes(self) -> list[web.RouteDef]:
        """All routes; the development ones only where vLLM would have them."""
        routes = [
            web.get("/health", self._health),
            web.get("/version", self._show_version),
            web.get("/load", self._load),
            web.get("/metrics", self._metrics),
            web.get("/v1/models", self._models),
            web.post("/v1/completions", self._completions),
            web.post("/v1/chat/completions", self._chat),
            web.post("/tokenize", self._tokenize),
        ]
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            routes += [web.get("/server_info", self._server_info), web.post("/reset_prefix_cache", self._reset)]
        return routes

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._faults.never_ready else 200)

    async def _show_version(self, _: web.Request) -> web.Response:
        return _json({"version": self._version})

    async def _load(self, _: web.Request) -> web.Response:
        return _json({"server_load": self._engine.active})

    async def _metrics(self, _: web.Request) -> web.Response:
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=self._engine.metrics.render(), headers={"Content-Type": content_type})

    async def _models(self, _: web.Request) -> web.Response:
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
        return _json({"object": "list", "data": cards})

    async def _server_info(self, request: web.Request) -> web.Response:
        info = server_info(self._setup)
        if request.query.get("config_format", "text") == "text":
            info["vllm_config"] = str(info["vllm_config"])
        return _json(info)

    async def _reset(self, _: web.Request) -> web.Response:
        return _json({"success": self._engine.reset_prefix_cache()})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await _body(request)
        text = render_chat(body["messages"]) if "messages" in body else str(body.get("prompt", ""))
        tokens = tokenize(text)
        return _json({"count": len(tokens), "max_model_len": self._setup.max_model_len, "tokens": tokens})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        body = await _body(request)
        parsed = self._reader.read(body, chat=chat)
        self._engine.requests += 1
        number = self._engine.requests
        if self._faults.strikes(self._faults.http_500_rate, _STREAM_500, number):
            raise RequestError(500, "InternalServerError", "simulated fault http_500_rate")
        if self._faults.strikes(self._faults.http_503_rate, _STREAM_503, number):
            raise RequestError(503, "ServiceUnavailableError", "simulated fault http_503_rate")
        prefix = "chatcmpl" if chat else "cmpl"
        writer = Writer(
            chat=chat,
            request_id=f"{prefix}-simulated-{number}",
            model=str(body.get("model", self._setup.flags.served_model_name[0])),
            details=self._setup.flags.enable_prompt_tokens_details,
        )
        stream = self._engine.submit(parsed.sequence, parsed.max_tokens, number)
        try:
            if parsed.stream:
                return await self._send_stream(request, parsed, stream, writer)
            return await self._send_whole(request, stream, writer)
        finally:
            self._engine.abort(stream)

    async def _send_whole(self, request: web.Request, stream: Stream, writer: Writer) -> web.Response:
        seen = 0
        while not stream.finished:
            seen = await stream.more(seen)
        if self._faults.strikes(self._faults.drop_rate, _STREAM_DROP, stream.number):
            _cut(request)
        answer = stream.sequence.answer
        usage = writer.usage(stream, stream.available, final=True)
        return _json(writer.whole(answer.text(0, stream.available), answer.finish_reason, usage))

    async def _send_stream(
        self, request: web.Request, parsed: ParsedRequest, stream: Stream, writer: Writer
    ) -> web.StreamResponse:
        drop = self._faults.strikes(self._faults.drop_rate, _STREAM_DROP, stream.number)
        malformed = self._faults.strikes(self._faults.malformed_sse, _STREAM_MALFORMED, stream.number)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        answer, seen, finished = stream.sequence.answer, 0, False
        while not finished:
            available = await stream.more(seen)
            finished = stream.finished
            usage = writer.usage(stream, available, final=False) if parsed.continuous_usage else None
            data = writer.chunk(answer.text(seen, available), answer.finish_reason if finished else None, usage)
            if seen == 0:
                await response.prepare(request)
                if writer.chat:
                    start = writer.usage(stream, 0, final=False) if parsed.continuous_usage else None
                    data = writer.opening(start) + data
            elif malformed:
                data, malformed = data[: len(data) // 2] + b"\n\n", False
            await response.write(data)
            if drop:
                _cut(request)
            seen = available
        tail = writer.closing(writer.usage(stream, seen, final=True)) if parsed.include_usage else b""
        await response.write(tail if self._faults.no_done else tail + b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def build_app(setup: EngineSetup, engine: Engine, faults: Faults) -> web.Application:
    """The application with its middleware: authentication first, then errors as JSON."""
    keys = tuple(key.encode() for key in (*setup.flags.api_key, os.environ.get("VLLM_API_KEY", "")) if key)

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if keys and request.path.startswith(_GUARDED):
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            # Every key is compared, so that the time taken does not tell which one nearly matched.
            known = [hmac.compare_digest(given.encode(), key) for key in keys]
            if scheme.lower() != "bearer" or not any(known):
                return _json({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except RequestError as error:
            return _json(error_body(error.status, error.kind, str(error), error.param), status=error.status)

    app = web.Application(middlewares=[guard], client_max_size=_MAX_BODY)
    app.add_routes(Api(setup, engine, faults).routes())
    return app


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise RequestError(400, "BadRequestError", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError(400, "BadRequestError", "the body must be a JSON object")
    return body


def _json(payload: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(payload), status=status, content_type="application/json")


def _cut(request: web.Request) -> None:
    """Close the connection without ending the answer."""
    if request.transport is not None:
        request.transport.abort()
    msg = "simulated fault drop_rate"
    raise ConnectionResetError(msg)
