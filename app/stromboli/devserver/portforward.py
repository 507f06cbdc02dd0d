"""The way to a pod's port, as kubelets open one: this one leads to the same port of this machine's loopback."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import WSMsgType, web

from .errors import bad_request
from .resources import Object

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = b"\0", b"\1"
_CHUNK = 1 << 16


async def forward(request: web.BaseRequest, pod: Object, ports: str) -> web.StreamResponse:
    """Serve one connection over a WebSocket until either end closes it. Raises ApiError for an invalid port."""
    declared = {
        each.get("containerPort")
        for container in (pod.get("spec") or {}).get("containers") or ()
        for each in container.get("ports") or ()
    }
    if not ports.isdecimal() or int(ports) not in declared:
        raise bad_request(f"port {ports!r} is none of the pod's")
    socket = web.WebSocketResponse(protocols=(_PROTOCOL,))
    await socket.prepare(request)
    for stream in (_DATA, _ERROR):
        await socket.send_bytes(stream + int(ports).to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(ports))
    except OSError as error:
        await socket.send_bytes(_ERROR + str(error).encode())
        await socket.close()
        return socket
    answering = asyncio.create_task(_answer(reader, socket))
    try:
        async for said in socket:
            if said.type is WSMsgType.BINARY and said.data[:1] == _DATA:
                writer.write(said.data[1:])
                await writer.drain()
    finally:
        answering.cancel()
        writer.close()
    return socket


async def _answer(reader: asyncio.StreamReader, socket: Any) -> None:
    while chunk := await reader.read(_CHUNK):
        await socket.send_bytes(_DATA + chunk)
    await socket.close()
