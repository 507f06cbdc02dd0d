"""Binds pods for kube-scheduler, whose extender the service is (`bindVerb`).

Such a binding goes through the binder: over its connections, which need the lease until the bytes are sent, and only
while the decision for the pod stands. kube-scheduler gives up after its own time-out and asks again, so for a pod that
has the requested node already the answer is success.
"""

from __future__ import annotations

from functools import partial

from stromboli.api import objects
from stromboli.api.decisions import Bind
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, NotSentError
from stromboli.live.api_server.json import Decoder
from stromboli.live.binding.binder import binding
from stromboli.state.cluster import ClusterState

_PODS: Decoder[objects.Pod] = Decoder(objects.Pod)


async def bind_as_asked(kube: Kube, state: ClusterState, bind: Bind) -> str:
    """Bind a pod; why that was not possible, empty when it has its node."""
    record = state.record(bind.key)
    if record is not None and record.uid == bind.uid and record.node_name:
        return _outcome(bind, record.node_name)
    decided = state.assumed.get(bind.key, bind.node)
    if decided != bind.node:
        return f"pod {bind.key} was decided to go to node {decided}, not {bind.node}"
    stands = partial(_stands, state, bind)
    try:
        await kube.persist(
            "POST", f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}/binding", binding(bind), wanted=stands
        )
    except NotSentError as error:
        return str(error)
    except (ApiError, *CONNECTION_ERRORS) as error:
        return await _found(kube, bind, f"pod {bind.key} was not bound to node {bind.node}: {error}")
    return ""


def _stands(state: ClusterState, bind: Bind) -> bool:
    """Whether no session has decided otherwise."""
    return state.assumed.get(bind.key, bind.node) == bind.node


async def _found(kube: Kube, bind: Bind, problem: str) -> str:
    """The outcome of a binding that seems to have failed, judging by the pod in the API server."""
    try:
        pod = _PODS.decode(await kube.persist("GET", f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}"))
    except (ApiError, *CONNECTION_ERRORS):
        return problem
    return _outcome(bind, pod.spec.node_name) if pod.metadata.uid == bind.uid and pod.spec.node_name else problem


def _outcome(bind: Bind, node: str) -> str:
    return "" if node == bind.node else f"pod {bind.key} is on node {node}, not {bind.node}"
