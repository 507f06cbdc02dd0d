"""A service on the cluster of many situations, and what all ways to ask it say of each."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from stromboli.api.reasons import Actionable, next_step
from stromboli.cli import make_app
from tests.controlplane.cluster import Cluster, Program, eventually, free_port
from tests.e2e.service import STROMBOLI, ForkedService, Service
from tests.e2e.situations.site import Site, Situation
from tests.e2e.world import CORE, SCHEDULING

#: what scheduling reads
READ = (
    *(f"{CORE}/{plural}" for plural in ("namespaces", "nodes", "pods", "persistentvolumeclaims", "resourcequotas")),
    *(f"{SCHEDULING}/{plural}" for plural in ("podgroups", "queues")),
    *(f"/apis/resource.k8s.io/v1/{plural}" for plural in ("deviceclasses", "resourceclaims")),
    *("/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/policy/v1/poddisruptionbudgets"),
    *("/apis/storage.k8s.io/v1/storageclasses", "/apis/topology.volcano.sh/v1alpha1/hypernodes"),
)
#: the reason of kube-apiserver for pods with gates
_OF_GATES = "SchedulingGated"
#: enough of all that is admitted and shared: no situation takes from another
SPARE = "spare"
#: names of situations that are made at once
Batch = tuple[str, ...]
PRIORITIES = {"tested-high": 100, "tested-mid": 50, "tested-meek": 50}


@dataclass
class Told:
    """A service on the cluster of many situations, and all ways to ask it."""

    cluster: Cluster
    service: Service
    page: httpx.Client
    sites: dict[str, Site]

    def api(self, path: str) -> Any:
        return self.service.http.get(f"/api/v1/{path}", timeout=60).raise_for_status().json()

    def why(self, *words: str, code: int = 0) -> str:
        """What `stromboli why` prints."""
        done = CliRunner().invoke(make_app(), ["why", *words, "--url", self.service.url])
        assert done.exit_code == code, done.output
        return done.output or str(done.exception)

    def tried(self, *words: str, code: int = 0) -> str:
        """What `stromboli why` prints once all was tried that may help, which a busy machine may leave out."""
        for _ in range(4):
            text = self.why(*words, code=code)
            if "Others were not tried" not in text:
                break
        return text

    def shown(self, path: str) -> str:
        """What a page says, without its tags."""
        text = self.page.get(path, timeout=60).raise_for_status().text
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))

    def described(self, site: Site, kind: str, name: str) -> str:
        """`kubectl describe`."""
        kubectl = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(self.cluster.kubeconfig())]
        asked = [*kubectl, "describe", kind, name, "--namespace", site.namespace]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout

    def noted(self, site: Site, kind: str, name: str) -> list[str]:
        """What Events say about an object."""
        found = [(each["regarding"], each["note"]) for each in site.events() if each["regarding"]]
        return [note for about, note in found if (about["kind"], about["name"]) == (kind, name)]


def batches(names: Iterable[str], size: int) -> list[Batch]:
    """What would help is found by sessions with all that waits: the fewer jobs wait at once, the sooner."""
    found = tuple(names)
    return [found[first : first + size] for first in range(0, len(found), size)]


def each(names: Iterable[str], of: Sequence[Batch]) -> pytest.MarkDecorator:
    """Parametrize a test with names of situations, and the fixture `told` with the batch that each is part of."""
    cases = [(batch, name) for name in names for batch in of if name in batch]
    ids = [name for _, name in cases]
    return pytest.mark.parametrize(("told", "name"), cases, indirect=["told"], ids=ids, scope="module")


@contextmanager
def telling(
    cluster: Cluster,
    folder: Path,
    policy: str,
    makers: Mapping[str, Callable[[Site], None]],
    waiting: Mapping[str, Situation],
) -> Iterator[Told]:
    """All situations at once, and the service after its first sessions."""
    page_at = f"127.0.0.1:{free_port()}"
    spare = Site(cluster, SPARE)
    spare.node(cpu="1000")
    for name, value in PRIORITIES.items():
        never = {"preemptionPolicy": "Never"} if name == "tested-meek" else {}
        priority = {"metadata": {"name": name}, "value": value, **never}
        spare.create("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    sites = {name: Site(cluster, name) for name in makers}
    for name, site in sites.items():
        site.begin()
        makers[name](site)
    (folder / "policy.conf").write_text(policy)
    service = ForkedService(cluster.kubeconfig(), folder / "service.log", "--policy", str(folder / "policy.conf"))
    page = Program([str(STROMBOLI), "ui", "--listen", page_at, "--url", service.url], folder / "ui.log")
    with httpx.Client(base_url=f"http://{page_at}", trust_env=False) as pages:
        try:
            service.wait_ready()
            page.wait_until(lambda: pages.get("/healthz").is_success)
            with suppress(AssertionError):
                # Tests say of which it is not so.
                eventually(lambda: all(_settled(sites[name], waiting[name]) for name in waiting))
            yield Told(cluster, service, pages, sites)
        finally:
            page.stop()
            service.end()


def explained(told: Told, policy: str, folder: Path) -> dict[str, Any]:
    """What `simulate --explain` says of a dump of the cluster."""
    site = next(iter(told.sites.values()))
    (folder / "policy.conf").write_text(policy)
    dump = {"apiVersion": "v1", "kind": "List", "items": [each for path in READ for each in _listed(site, path)]}
    (folder / "dump.json").write_text(json.dumps(dump))
    files = [str(folder / "dump.json"), "--policy", str(folder / "policy.conf"), "--lenient", "--explain"]
    done = CliRunner().invoke(make_app(), ["simulate", *files, "--format", "outcome"])
    found: dict[str, Any] = json.loads(done.stdout)["explain"]
    return found


def _listed(site: Site, path: str) -> list[dict[str, Any]]:
    """All objects of a kind, each with its own."""
    found = site.api.get(path).raise_for_status().json()
    kind = found["kind"].removesuffix("List")
    return [{"apiVersion": found["apiVersion"], "kind": kind, **each} for each in found["items"]]


def missing(wanted: tuple[str, ...], name: str, text: str) -> list[str]:
    """What of some words, in which braces stand for the name, a text does not have."""
    return [each for word in wanted if (each := word.replace("{}", name)) not in text]


def check(told: Told, name: str, situation: Situation) -> None:
    """All say the same of a job that waits."""
    site = told.sites[name]
    job = told.api(f"explain/job/{name}/train?remedies=false")
    text, page = told.tried("job", f"{name}/train"), told.shown(f"/jobs/{name}/train")
    assert (job["reason"], job["who"]) == (situation.reason, situation.who), text

    # The cluster's own objects: what kubectl shows.
    condition = site.condition("train", "Unschedulable")
    sentence = next_step(situation.reason, Actionable(situation.who))
    assert condition["message"].startswith(f"{situation.reason}: ")
    assert condition["message"].endswith(sentence)
    begins, notes = f"{situation.reason}: ", partial(told.noted, site, "PodGroup", "train")
    eventually(lambda: any(note.startswith(begins) and sentence in note for note in notes()), seen=notes)
    assert situation.reason in told.described(site, "podgroup", "train")
    if job["pods"]:
        # Conditions of pods, like Events, are written after those of their PodGroup.
        eventually(lambda: any(situation.reason in each for each in _refusals(site)), seen=lambda: _refusals(site))
    eventually(lambda: _stale(told, site) == {}, seen=lambda: _stale(told, site))

    # Answers of the service, in all forms.
    row = told.api(f"jobs/{name}/train")
    assert (row["stage"], row["reason"], row["who"]) == (job["stage"], job["reason"], job["who"])
    listed = CliRunner().invoke(make_app(), ["job", "list", "-n", name, "--url", told.service.url, "-o", "json"])
    assert job["reason"] in {each["reason"] for each in json.loads(listed.stdout) if each["name"] == "train"}
    assert f"waits at {job['stage']}: {job['reason']}" in text
    assert f"Waits at {job['stage']}: {job['reason']}" in page
    assert job["message"] in text
    assert job["message"] in page
    if job["pods"]:
        queue = job["queue"] if job["reason"] != "QueueNotFound" else ""
        pods = told.service.metric("stromboli_pending_pods", queue=queue, stage=job["stage"], reason=job["reason"])
        assert pods > 0
        assert situation.reason in told.why("pod", f"{name}/train-0", "--no-try")

    # Cause, number and names, and what a person would do.
    assert missing(situation.says, name, text) == [], text
    # The page has holders in a table.
    assert missing(tuple(each.partition(" in queue ")[0] for each in situation.says), name, page) == [], page
    helps = text.partition("What would help")[2]
    assert missing(situation.helps, name, helps) == [], text
    assert [each for each in situation.silly if each in helps] == [], text


def _settled(site: Site, situation: Situation) -> bool:
    """Whether the service has said of the job what it says now."""
    return site.condition("train", "Unschedulable").get("reason") == situation.reason


def _stale(told: Told, site: Site) -> dict[str, tuple[str, str]]:
    """The pods whose conditions and Events give another reason than the answer about them, with both."""
    stale = {}
    for pod in site.items(f"{CORE}/namespaces/{site.namespace}/pods"):
        name, conditions = pod["metadata"]["name"], pod["status"].get("conditions", ())
        said = [each for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False")]
        if not said or said[0]["reason"] == _OF_GATES:
            continue
        answer = told.api(f"explain/pod/{site.namespace}/{name}?remedies=false")["reason"]
        words = {said[0]["message"].partition(":")[0]}
        words |= {answer} if any(note.startswith(f"{answer}: ") for note in told.noted(site, "Pod", name)) else {""}
        if words != {answer}:
            stale[name] = said[0]["message"], answer
    return stale


def _refusals(site: Site) -> list[tuple[str, str]]:
    """Why pods have no node, as their conditions say: the reason, and the word that the message begins with."""
    pods = site.items(f"{CORE}/namespaces/{site.namespace}/pods")
    conditions = [each for pod in pods for each in pod["status"].get("conditions", ())]
    return [
        (each["reason"], each["message"].partition(":")[0])
        for each in conditions
        if (each["type"], each["status"]) == ("PodScheduled", "False")
    ]
