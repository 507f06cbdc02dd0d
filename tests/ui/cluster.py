"""A service with its API and the page before it, on loopback, about a cluster in memory on which sessions ran."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from msgspec.structs import replace
from starlette.types import ASGIApp

from stromboli.dashboard.history import History
from stromboli.dashboard.routes import dashboard_routes
from stromboli.engine import Engine
from stromboli.explain.checkup import Finding
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.framework.session.session import Session
from stromboli.http.api import api_routes
from stromboli.http.server import listen
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from stromboli.ui import Service, make_ui
from tests.builders import NOON, node, pod, pod_group, queue, state

#: what a browser must show as text, wherever a name may stand
HOSTILE = '"><img src=x onerror=alert(1)>{{7*7}}'

#: as long as a name may be
LONG = "x" * 253


def named(name: str, obj: Any) -> Any:
    """An object by a name that no API server would take."""
    return replace(obj, metadata=replace(obj.metadata, name=name))


def cluster() -> ClusterState:
    """Two queues below one, jobs that run and jobs that wait, each for another reason, some with hostile names."""
    return state(
        *(node("n0", cpu="4"), node("n1", cpu="4"), named(HOSTILE, node("n2", cpu="4", unschedulable=True))),
        *(
            queue("lab"),
            queue("a", parent="lab", weight=3, guarantee={"resource": {"cpu": "1"}}, capability={"cpu": "6"}),
        ),
        *(queue("b", parent="lab"), queue(HOSTILE), queue("old", state="Closed")),
        *(
            pod_group("train", 2, queue="a", phase="Running"),
            *(pod(f"train-{i}", "train", node="n0") for i in range(3)),
        ),
        *(pod_group("grow", 1, queue="b"), *(pod(f"grow-{i}", "grow", cpu="3") for i in range(4))),
        *(pod_group("wide", queue="b", namespace="research"), pod("wide-0", "wide", cpu="64", namespace="research")),
        *(pod_group("late", queue="old"), pod("late-0", "late")),
        *(pod_group(HOSTILE, queue=HOSTILE), named(HOSTILE, pod("h", HOSTILE, cpu="99"))),
        *(pod_group(LONG, queue="b"), pod(LONG, LONG, cpu="99")),
        *(pod_group("lost", queue=HOSTILE + "?"), pod("lost-0", "lost")),
    )


@dataclass
class Ran:
    """A service that has run sessions."""

    known: ClusterState
    history: History = field(default_factory=History)
    session: Session | None = None
    engine: type[Engine] = Engine
    policy: str = DEFAULT_POLICY
    #: why the service does not know the cluster as it is
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, second in enumerate((0, 3, 6), 1):
            result = Engine(self.policy).decide(self.known.snapshot(), now=NOON + second)
            self.session = result.session
            self.history.began(number)
            self.history.snapshot(0.001)
            self.history.session(result.session, NOON + second, 0.004)

    past = PastRuns()

    def last(self) -> Session | None:
        return self.session

    def missing(self) -> Sequence[str]:
        return self.problems

    def absent(self, kind: str, key: str) -> str:
        return ""

    def served(self) -> list[str]:
        return ["stromboli"]

    def outside_sessions(self) -> list[Finding]:
        return []

    def unreadable(self, kind: str, key: str) -> str:
        return ""

    def rehearsal(self) -> Rehearsal:
        return Rehearsal(Engine(self.policy), self.known.fork(), OFFLINE, NOON)

    def app(self) -> FastAPI:
        """Its API."""
        app = FastAPI()
        app.include_router(api_routes(self, None))
        app.include_router(dashboard_routes(self, None, "default"))
        return app


@contextlib.contextmanager
def served(
    app: ASGIApp, at: str = "127.0.0.1:0", service: Service | None = None, certificate: Path | None = None
) -> Iterator[str]:
    """The address of an application, served by a thread as long as the context lasts, and then `service` is closed.

    With a `certificate` (PEM, with its key) it speaks HTTPS.
    """
    listening = listen(at)
    # The caller may stand still in this thread, and would be waited for.
    grace = {"timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ssl_certfile=certificate, **grace))

    async def run() -> None:
        await server.serve([listening])
        if service is not None:
            await service.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield "http://{}:{}".format(*listening.getsockname())
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def page(ran: Ran, refresh: float = 60.0) -> Iterator[str]:
    """The address of the page about a service."""
    with served(ran.app()) as url:
        service = Service(url)
        with served(make_ui(service, refresh=refresh), service=service) as address:
            yield address
