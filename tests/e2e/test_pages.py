"""Every command of README.md and of docs is run: here, by the test that `tests.pages` names, or not for a reason."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from stromboli.policy.document import DEFAULT_POLICY
from tests import pages
from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.kubelets import Kubelets
from tests.e2e.service import Service
from tests.e2e.world import CORE, Object, World, define, pod

pytestmark = pytest.mark.e2e

#: commands that go on until they are ended, by pattern: what they have printed by then
LASTING = {
    r"stromboli demo --serve": r"scheduler +http://127\.0\.0\.1:",
    r"kubectl .* port-forward ": "Forwarding from 127",
    r"stromboli run ": "",
    r"stromboli top(?! --once)": "",
    r"stromboli ui ": "",
}
#: commands that say by their code what they found, by pattern
FINDING = r"stromboli doctor|crds diff|--fail-on-pending|--diff|replay .*--policy"
_KAI = ("queues", "Queue", "Cluster", "v2"), ("podgroups", "PodGroup", "Namespaced", "v2alpha2")
PAGES = sorted({each.page for each in pages.commands()})


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster with a service, and a folder with the files that the pages speak of."""

    world: World
    folder: Path
    environment: Mapping[str, str]
    #: what stands in the pages for something else, by pattern
    instead: Mapping[str, str]
    kubelets: Kubelets

    def command(self, words: str) -> list[str]:
        """A command as a shell runs it here."""
        for pattern, value in self.instead.items():
            words = re.sub(pattern, value, words)
        return ["bash", "-ec", f"set -o pipefail; {words}"]

    def run(self, words: str) -> None:
        """Run a command to its end."""
        self.kubelets.show_log()
        place = {"cwd": self.folder, "env": self.environment}
        done = subprocess.run(self.command(words), capture_output=True, text=True, check=False, timeout=300, **place)
        said = done.stdout + done.stderr
        assert done.returncode in ((0, 1) if re.search(FINDING, words) else (0,)), f"{words}: {said}"
        assert "Traceback" not in said, f"{words}: {said}"

    def begin(self, words: str, says: str) -> None:
        """Run a command until it has said something, or for a moment, and end it; it is not to end by itself."""
        printed = self.folder / "printed.txt"
        with printed.open("w") as out:
            process = subprocess.Popen(
                self.command(f"exec {words}"), cwd=self.folder, env=self.environment, stdout=out, stderr=out
            )
            try:
                eventually(lambda: bool(re.search(says, printed.read_text())), 120)
                time.sleep(2)
                assert process.poll() in (None, 0), f"{words}: {printed.read_text()}"
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        assert "Traceback" not in printed.read_text(), f"{words}: {printed.read_text()}"


@pytest.fixture(scope="module")
def demo() -> Iterator[Mapping[str, str]]:
    """The addresses of a demo: of its API server and of its scheduler."""
    command = [sys.executable, "-m", "stromboli", "demo", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found: dict[str, str] = {}
        for line in process.stdout:
            found |= dict(re.findall(r"^(API server|scheduler) +(http://\S+)", line))
            if len(found) == 2:
                break
        yield found
        process.send_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def scene(
    binaries: Binaries,
    definitions: list[Object],
    repository: Path,
    demo: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("pages")
    with Cluster(binaries) as cluster:
        cluster.start_controller_manager()
        with cluster.client() as api:
            define(api, definitions)
        world = World(cluster, "research")
        world.begin()
        _write(folder, repository, cluster)
        world.create(f"{CORE}/namespaces", {"metadata": {"name": "stromboli-system"}})
        arguments = ("--policy", str(folder / "policy.conf"), "--journal-dir", str(folder / "kept"))
        arguments += ("--leader-elect", "--lease-namespace", "stromboli-system")
        service = Service(cluster.kubeconfig(), folder / "log", *arguments).wait_ready()
        kubelets = Kubelets(service, folder)
        cluster.start_kwok(answers=kubelets.answers)
        _fill(world)
        scene = _scene(world, folder, service, demo, kubelets)
        # The pages say once how it is made, and more than one has commands that read it.
        scene.run("kubectl get nodes,pods,queues,podgroups -A -o json > cluster.json")
        yield scene
        service.end()
        world.api.close()


def _scene(world: World, folder: Path, service: Service, demo: Mapping[str, str], kubelets: Kubelets) -> Scene:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STROMBOLI_")}
    own = {
        "PYTHONUNBUFFERED": "1",
        "HOME": str(folder),
        "KUBECONFIG": str(folder / ".kube/config"),
        "STROMBOLI_URL": service.url,
        "PATH": path,
    }
    instead = {
        r"(kubectl --server )http://127\.0\.0\.1:PORT": rf"\1{demo['API server']}",
        r"http://127\.0\.0\.1:PORT": demo["scheduler"],
        r"http://127\.0\.0\.1:8080": service.url,
        r"/var/lib/stromboli/journal": str(folder / "kept"),
        r"\.venv/bin/": "",
        r"--policy POLICY": "--policy policy.conf",
        r"dump\.json": "cluster.json",
        # Half a minute of simulation shows no more than three seconds do.
        r"(lab generate) --jobs 1000": r"\1 --jobs 100",
        r"--plugins-dir \.": "--plugins-dir ~/src/stromboli-team-nodes",
        # A log without what is looked for is as good as one with it.
        r'(logs .*) \| grep (".*")': r"\1 | { grep \2 || test $? = 1; }",
        r"(port-forward \S+) (\d+)": r"\1 :\2",
        # The port of the service that runs here is taken.
        r"(stromboli run .*)": r"\1 --listen 127.0.0.1:0",
        r"(stromboli ui .*)": r"\1 --listen 127.0.0.1:0",
    }
    return Scene(world, folder, {**kept, **own}, instead, kubelets)


def _write(folder: Path, repository: Path, cluster: Cluster) -> None:
    """The files that commands name."""
    for name in ("charts", "deploy", "examples"):
        (folder / name).symlink_to(repository / name)
    for name in ("policy.conf", "other.conf", "volcano-scheduler.conf"):
        (folder / name).write_text(DEFAULT_POLICY)
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "more"}, "spec": {}}
    for name in ("queue.yaml", "change.yaml"):
        (folder / name).write_text(yaml.safe_dump(queue))
    (first,) = re.findall(r"^```yaml\n(.*?)^```$", (repository / "docs/start.md").read_text(), re.DOTALL | re.MULTILINE)
    (folder / "first.yaml").write_text(first)
    (folder / "jobs").mkdir()
    (folder / "jobs" / "first.yaml").write_text(first)
    (folder / "cluster.yaml").write_text((repository / "examples/two-gangs.yaml").read_text())
    (folder / "src").mkdir()
    config = yaml.safe_load(cluster.kubeconfig().read_text())
    (context,) = config["contexts"]
    named = [{**context, "name": name} for name in ("prod", "production")]
    for each in (context, *named):
        each["context"] = each["context"] | {"namespace": "default" if each is context else "research"}
    (folder / ".kube").mkdir()
    (folder / ".kube/config").write_text(yaml.safe_dump({**config, "contexts": [context, *named]}))


def _fill(world: World) -> None:
    """Nodes, a queue and a job to ask about, and Volcano's scheduler."""
    world.nodes(2, cpu="4")
    world.queue("research")
    world.queue("retired")
    world.group("train", 1, "research")
    template = pod("train", "train")
    made = {"metadata": template["metadata"], "spec": {**template["spec"], "restartPolicy": "Never"}}
    # Kubernetes' controller would not keep the pod.
    spec = {"template": made, "managedBy": "example.com/by-hand"}
    jobs = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
    uid = world.create(jobs, {"metadata": {"name": "train"}, "spec": spec})["metadata"]["uid"]
    by = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    first = pod("train-0", "train")
    first["metadata"]["ownerReferences"] = [by]
    world.pods([first])
    world.create(f"{CORE}/namespaces", {"metadata": {"name": "volcano-system"}})
    for name in ("stromboli", "stromboli-usage", "stromboli-kube-scheduler"):
        world.create(f"{CORE}/namespaces/stromboli-system/configmaps", {"metadata": {"name": name}})
    for namespace, name in (("volcano-system", "volcano-scheduler"), ("stromboli-system", "stromboli")):
        labels = {"app": name}
        template = pod(name)
        template["spec"] |= {"nodeName": "node-0"}
        deployed = {"selector": {"matchLabels": labels}, "template": {**template, "metadata": {"labels": labels}}}
        world.create(
            f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": name}, "spec": deployed}
        )
    path = f"{CORE}/namespaces/volcano-system/configmaps"
    world.create(
        path, {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": DEFAULT_POLICY}}
    )
    ports = {"selector": {"app": "stromboli"}, "ports": [{"port": 8081}]}
    world.create(f"{CORE}/namespaces/stromboli-system/services", {"metadata": {"name": "stromboli-ui"}, "spec": ports})
    eventually(lambda: "train-0" in world.placed())


@pytest.fixture
def kai(scene: Scene) -> Iterator[None]:
    """The definitions of KAI-Scheduler, as far as they are asked for, and a queue."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    for plural, kind, scope, version in _KAI:
        names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
        versions = [{"name": version, "served": True, "storage": True, "schema": anything}]
        spec = {"group": "scheduling.run.ai", "names": names, "scope": scope, "versions": versions}
        scene.world.create(path, {"metadata": {"name": f"{plural}.scheduling.run.ai"}, "spec": spec})
    queues = "/apis/scheduling.run.ai/v2/queues"
    eventually(lambda: scene.world.api.get(queues).is_success)
    quota = {"cpu": {"quota": 1000, "limit": 2000, "overQuotaWeight": 1}}
    scene.world.create(
        queues,
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": "kai"},
            "spec": {"resources": quota},
        },
    )
    yield
    for plural, *_ in _KAI:
        scene.world.api.delete(f"{path}/{plural}.scheduling.run.ai").raise_for_status()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_they_say(page: str, scene: Scene, request: pytest.FixtureRequest) -> None:
    every, begun = list(pages.commands()), set[str]()
    for each in every:
        if each.page != page or _listed(pages.ELSEWHERE, each.words) or _listed(pages.NOT_RUN, each.words):
            continue
        if "kai.json" in each.words:
            request.getfixturevalue("kai")
        lasting = _listed(LASTING, each.words)
        if lasting and (each.words in begun or each != next(first for first in every if first.words == each.words)):
            continue  # It leaves nothing for other commands, so that the first page that has it is enough.
        begun.add(each.words)
        if lasting:
            scene.begin(each.words, LASTING[lasting[0]])
        else:
            scene.run(each.words)


def _listed(table: Mapping[str, str], words: str) -> list[str]:
    return [pattern for pattern in table if re.search(pattern, words)]
