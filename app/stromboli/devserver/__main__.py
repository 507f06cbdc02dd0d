"""`python -m stromboli.devserver`: prints the server's URL on its first line and serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from dataclasses import fields
from pathlib import Path

import yaml

from .server import DevServer, Options, write_kubeconfig


def main(arguments: list[str] | None = None) -> None:
    parsed = _parser().parse_args(arguments)
    options = Options(**{field.name: getattr(parsed, field.name) for field in fields(Options)})
    # The collector would walk all stored objects again and again, and they hold no cycles.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    asyncio.run(_serve(options, parsed.kubeconfig, parsed.manifest, parsed.until_stdin_closes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stromboli.devserver", description=__doc__)
    for field in fields(Options):
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            parser.add_argument(flag, type=type(field.default), default=field.default)
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for the server to this file")
    parser.add_argument("--manifest", type=Path, action="append", default=[], help="create these objects first")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the parent process does")
    return parser


async def _serve(options: Options, kubeconfig: Path | None, manifests: list[Path], until_stdin_closes: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    if until_stdin_closes:
        loop.add_reader(sys.stdin, ended.set)
    server = DevServer(options)
    for path in manifests:
        server.api.load(body for body in yaml.safe_load_all(path.read_text()) if body)
    async with server:
        if kubeconfig is not None:
            write_kubeconfig(kubeconfig, server.url)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    main()
