"""Lives of pods on simulated nodes, as their commands mean them: they sleep, then succeed, fail or go on for ever."""

from __future__ import annotations

import copy
import re
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.controlplane.build import Binaries

_POLL = 0.5
_SLEEP = re.compile(r"\bsleep +(\d+)")
#: programs that serve until they are stopped
_SERVERS = re.compile(r"sshd -D|\bwhile true\b|\btail -f|\bnginx\b|\bray start\b")
#: programs that work for a while, and for how many seconds: specs look for jobs that run
_WORKERS, _WORK = re.compile(r"\bpython3? |\bmpiexec\b"), 5
#: images that take long to be pulled: specs look for pods that wait for them
_LARGE = ["rayproject/ray:2.49.0"]
_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}


def ends(container: dict[str, Any]) -> tuple[float, int] | None:
    """After how many seconds a container ends, and with which code; None for one that serves."""
    words = [*container.get("command", ()), *container.get("args", ())]
    text = " ".join(words)
    if _SERVERS.search(text) or (not words and "busybox" not in container["image"]):
        return None
    seconds = sum(int(each) for each in _SLEEP.findall(text)) + (_WORK if _WORKERS.search(text) else 0)
    last = re.split(r"&&|;", text)[-1].strip()
    if code := re.match(r"exit +(\d+)", last):
        return seconds, int(code[1])
    unknown = "&&" in text and not re.search(r"\bsleep\b|\bexit\b|\becho\b|\bmpiexec\b", last)
    return seconds, 127 if unknown or re.search(r"\bfake\b", text) else 0


def stages(binaries: Binaries, folder: Path) -> Path:
    """kwok's stages, in a folder, but for the one that ends the pods of everything that is called a Job.

    Pods take as long to start and to end as on a machine, where specs look for what they are in between, and those with
    a hook before their end have all their time.
    """
    found = list(yaml.safe_load_all(binaries.kwok_stages.read_text()))
    by_name = {each["metadata"]["name"]: each for each in found}
    del by_name["pod-complete"]
    for name in ("pod-ready", "pod-delete"):
        by_name[name]["spec"]["delay"] = {"durationMilliseconds": 1500}
    slowly = copy.deepcopy(by_name["pod-delete"])
    slowly["metadata"]["name"] = "pod-delete-slowly"
    slowly["spec"]["delay"] = {"durationFrom": {"expressionFrom": ".metadata.deletionTimestamp"}}
    for stage, hook in ((by_name["pod-delete"], "DoesNotExist"), (slowly, "Exists")):
        rules = stage["spec"]["selector"]["matchExpressions"]
        rules.append({"key": ".spec.containers.[].lifecycle.preStop", "operator": hook})
    pulled = copy.deepcopy(by_name["pod-ready"])
    pulled["metadata"]["name"] = "pod-ready-slowly"
    pulled["spec"]["delay"] = {"durationMilliseconds": 8000}
    for stage, is_pulled in ((by_name["pod-ready"], "NotIn"), (pulled, "In")):
        rules = stage["spec"]["selector"]["matchExpressions"]
        rules.append({"key": ".spec.containers.[].image", "operator": is_pulled, "values": _LARGE})
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump_all([*by_name.values(), slowly, pulled]))
    return file


class Kubelet(threading.Thread):
    """Ends pods that run, when their containers would; begins them again where their policy says so."""

    def __init__(self, api: httpx.Client) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._over = threading.Event()
        self._since: dict[tuple[str, int], float] = {}
        self._restarts: dict[str, int] = {}

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_POLL):
            try:
                found = self._api.get("/api/v1/pods", params={"fieldSelector": "status.phase=Running"})
                for pod in found.raise_for_status().json()["items"]:
                    self._live(pod)
                for node in self._api.get("/api/v1/nodes").raise_for_status().json()["items"]:
                    self._offer(node)
            except httpx.HTTPError:
                continue

    def _live(self, pod: dict[str, Any]) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        lives = [ends(each) for each in spec["containers"]]
        if "deletionTimestamp" in metadata or None in lives:
            return
        after = max(life[0] for life in lives if life)
        code = max(life[1] for life in lives if life)
        uid = metadata["uid"]
        restarts = self._restarts.get(uid, 0)
        began = self._since.setdefault((uid, restarts), time.monotonic())
        if time.monotonic() - began < after:
            return
        policy = spec.get("restartPolicy", "Always")
        if policy == "Always" or (policy == "OnFailure" and code):
            self._restarts[uid] = restarts + 1
            return
        self._end(pod, code)

    def _offer(self, node: dict[str, Any]) -> None:
        """Offer pods what a node has of extended resources, as is written into its capacity alone."""
        status = node["status"]
        more = {
            name: amount for name, amount in status.get("capacity", {}).items() if name not in status["allocatable"]
        }
        if more:
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            self._api.patch(path, json={"status": {"allocatable": more}}, headers=_PATCH)

    def _end(self, pod: dict[str, Any], code: int) -> None:
        metadata = pod["metadata"]
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        statuses = [
            {**each, "ready": False, "started": False, "state": {"terminated": ended}}
            for each in pod["status"].get("containerStatuses", ())
        ]
        conditions = [
            {"type": kind, "status": "False", "reason": "PodCompleted"} for kind in ("Ready", "ContainersReady")
        ]
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": statuses, "conditions": conditions}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        self._api.patch(path, json={"status": status}, headers=_PATCH)
