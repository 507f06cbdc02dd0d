"""Kubelet reports about containers that do not run as they should and about failed pods, in words."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api import objects
from stromboli.api.objects.pods import ContainerState

#: reasons of containers that are about to start
_STARTING = ("", "ContainerCreating", "PodInitializing")
_AGAIN = "CrashLoopBackOff"
#: meaning of further reasons, in words
_MEANING = {
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "InvalidImageName"), "image cannot be pulled"),
    "ErrImageNeverPull": "image is not on the node and may not be pulled",
    "CreateContainerConfigError": "a ConfigMap or Secret that it needs is missing or wrong",
    "CreateContainerError": "container cannot be created",
    "RunContainerError": "container cannot be started",
    _AGAIN: "container ends again and again",
}
#: advice about further reasons; for images it depends on what is said of them
_ADVICE = {
    "InvalidImageName": "correct the image {image}",
    "ErrImageNeverPull": "load the image {image} on the node, or have imagePullPolicy: IfNotPresent",
    "CreateContainerConfigError": "create it or correct its name in the pod",
    _AGAIN: "see kubectl logs {pod} -n {namespace} -c {container} --previous",
}
_PULLING = ("ErrImagePull", "ImagePullBackOff")
#: advice about an image, by words that registries and kubelets say of it
_OF_IMAGES = (
    (("no match for platform", "no matching manifest"), "build the image {image} for the node's architecture"),
    (
        ("unauthorized", "authentication", "forbidden", "denied", "credential"),
        "give the pod imagePullSecrets for {registry}",
    ),
    (
        ("toomanyrequests", "429", "rate limit"),
        "wait, or pull {image} from a mirror: {registry} limits how often it is asked",
    ),
    (
        ("no such host", "timeout", "timed out", "connection refused", "x509", "unreachable", "no route"),
        "an administrator sees to it that nodes reach {registry}",
    ),
    (("not found", "manifest unknown", "does not exist"), "correct the image {image}, or push it"),
)
_ANY_IMAGE = "correct the image {image}, or give the pod imagePullSecrets for {registry}"
_USUAL_REGISTRY = "docker.io"
#: meaning of exit codes that shells and kernels give
_EXIT_CODES = {
    126: "its command cannot be executed",
    127: "its command was not found",
    134: "it aborted",
    137: "it was killed",
    139: "it accessed memory that it may not",
    143: "it was told to end",
}
#: reasons of containers that ended which say no more than that
_PLAIN = ("", "Error", "Completed")
#: the most characters shown of a message from a container or a kubelet
_LONGEST = 200


def held_up(pod: objects.Pod) -> str:
    """Why a pod does not run as it should or has failed, from its first container with a known problem.

    `image cannot be pulled (container main: ImagePullBackOff)`, or empty.
    """
    status = pod.status
    failed = status.phase == "Failed"
    if not (status.container_statuses or status.init_container_statuses or (failed and status.reason)):
        return ""
    whole = _line(status.reason, status.message) if failed else ""
    return "; ".join(filter(None, (whole, next(_of_containers(pod, failed=failed), ""))))


def _of_containers(pod: objects.Pod, *, failed: bool) -> Iterator[str]:
    initial, after = pod.status.init_container_statuses or (), pod.status.container_statuses or ()
    for noun, containers in (("init container", initial), ("container", after)):
        for each in containers:
            reason, message = _waiting(each)
            if not failed and reason not in _STARTING:
                what = _MEANING.get(reason, "container does not start")
                before = _ended(pod, each, each.last_state) if reason == _AGAIN else ""
                said = f"{what} ({noun} {each.name}: {_line(reason, message)})"
                told = (said, f"the last time {before}" if before else "", _advice(pod, each, reason, message))
                yield "; ".join(filter(None, told))
            elif ended := _ended(pod, each, each.state, unless=0):
                yield f"{noun} {each.name} ended: {ended}"
    if not failed and any(_waiting(each)[0] == "PodInitializing" for each in after):
        running = next((each.name for each in initial if each.state is not None and each.state.running is not None), "")
        if running:
            yield f"init container {running} runs, and the others start after it"


def _advice(pod: objects.Pod, container: objects.ContainerStatus, reason: str, message: str) -> str:
    """Advice about a container that does not start; empty if nothing is known."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    image = next((each.image for each in containers if each.name == container.name), "") or "of the container"
    host, slash, _ = image.partition("/")
    registry = host if slash and ("." in host or ":" in host or host == "localhost") else _USUAL_REGISTRY
    known = _ADVICE.get(reason, "")
    if reason in _PULLING:
        words = message.lower()
        known = next((what for signs, what in _OF_IMAGES if any(sign in words for sign in signs)), _ANY_IMAGE)
    meta = pod.metadata
    named = {"pod": meta.name, "namespace": meta.namespace or "default", "container": container.name}
    return known.format(image=image, registry=registry, **named)


def _ended(
    pod: objects.Pod,
    container: objects.ContainerStatus,
    state: ContainerState | None,
    unless: int | None = None,
) -> str:
    """End of a container, in words: `OOMKilled, exit code 137: it used ...`; empty if none, or with code `unless`."""
    ended = state.terminated if state is not None else None
    if ended is None or ended.exit_code == unless:
        return ""
    reason, words = ended.reason or "", _cut((ended.message or "").strip().rpartition("\n")[2])
    plain = reason in _PLAIN
    said = "" if plain else f"{reason}, "
    meaning = _out_of_memory(pod, container.name) if reason == "OOMKilled" else _EXIT_CODES.get(ended.exit_code, "")
    told = "; ".join(filter(None, (meaning, f"its last words: {words}" if words and plain else words)))
    return f"{said}exit code {ended.exit_code}{f': {told}' if told else ''}"


def _out_of_memory(pod: objects.Pod, name: str) -> str:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    limits = (each.resources.limits for each in containers if each.name == name and each.resources is not None)
    limit = (next(limits, None) or {}).get("memory")
    return (
        f"it used more memory than its limit of {limit}" if limit else "it has no limit, and its node ran out of memory"
    )


def _waiting(container: objects.ContainerStatus) -> tuple[str, str]:
    """The reason and message why a container waits; empty if it does not."""
    waiting = container.state.waiting if container.state is not None else None
    return ("", "") if waiting is None else (waiting.reason or "", waiting.message or "")


def _line(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, (reason, message)))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
