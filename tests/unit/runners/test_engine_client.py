"""What the client makes of answers that are JSON, but not those of vLLM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from runners.client import EngineClient
from runners.errors import LaunchFailure


@pytest.mark.parametrize("body", [{"data": [1]}, {"data": ["id"]}, {"data": 1}, {"data": [None, {}]}, []])
async def test_a_list_of_models_that_lists_no_model_is_a_foreign_server_s(body: Any) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=json.dumps(body), content_type="application/json")

    application = web.Application()
    application.router.add_get("/v1/models", answer)
    async with TestServer(application) as server:
        client = EngineClient(str(server.make_url("")).rstrip("/"), "key", "tiny")
        try:
            with pytest.raises(LaunchFailure, match="lists no model") as failed:
                await client.models()
        finally:
            await client.close()
    assert failed.value.kind == "foreign_server"
