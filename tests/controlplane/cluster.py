"""A throw-away Kubernetes cluster on loopback: etcd and an API server, and what else a test asks for.

Data, certificates, tokens and logs lie in one directory, in memory where the machine has a tmpfs, and go with
it.  There is no kubelet: kwok plays the nodes.

`python -m tests.controlplane.cluster` runs one until it is interrupted.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import trustme

from tests.controlplane.build import Binaries, control_plane

#: User and groups behind each static token.  All controllers share one user, who may therefore do everything.
USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "kwok": ("kwok", "system:masters"),
}

#: Nothing here takes back the taint, the finalizers and the accounts that these plugins would add or ask for.
ADMISSION_OFF = (
    "DefaultStorageClass",
    "PersistentVolumeClaimResize",
    "PodTopologyLabels",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
)

_TRIES = 10

#: the files of the server's certificate, by what options call them
_CERTIFICATE = (("cert", "crt"), ("private-key", "key"))

CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-binder-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
)


class ClusterError(RuntimeError):
    """A program of the cluster ended, or was not ready in time; the message holds the end of its log."""


class Program:
    """One process of the cluster, in a process group of its own so that a Ctrl-C reaches the tests first."""

    def __init__(self, argv: Iterable[str], log: Path) -> None:
        self.argv = list(argv)
        self.log = log
        self._process = self._start({**os.environ, "GOGC": "200"})

    def _start(self, environment: Mapping[str, str]) -> Any:
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=environment,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], timeout: float = 90) -> None:
        """Poll `ready`, for which a refused connection means no, until it holds; `timeout` is in seconds."""
        deadline = time.monotonic() + timeout
        while not self._holds(ready):
            if not self.running:
                raise ClusterError(f"{self.argv[0]} ended with {self._process.returncode}:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.argv[0]} was not ready within {timeout} s:\n{self._tail()}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM, grace: float = 3) -> None:
        """Signal the process and wait for its end; kill it after `grace` seconds.

        An API server would wait much longer for its watchers to go.
        """
        if self.running:
            self._process.send_signal(how)
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @staticmethod
    def _holds(ready: Callable[[], bool]) -> bool:
        try:
            return ready()
        except httpx.TransportError:
            return False

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


class Cluster:
    """etcd and kube-apiserver; `start_…` adds the controller-manager, the scheduler and kwok.

    A context manager.  The API server keeps its port when it is started again.
    """

    def __init__(self, binaries: Binaries, *, apiserver_args: Iterable[str] = ()) -> None:
        self.binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix="stromboli-", dir=_memory()))
        self._apiserver_args = list(apiserver_args)
        self._port = free_port()
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self._programs: dict[str, Program] = {}
        self._tokens = {name: secrets.token_hex(16) for name in USERS}

    # -- for clients ---

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    def kubeconfig(self, user: str = "admin") -> Path:
        """Path of the kubeconfig of one of USERS."""
        return self.directory / f"{user}.kubeconfig"

    def token(self, user: str = "admin") -> str:
        """The token of one of USERS."""
        return self._tokens[user]

    def client(self, user: str = "admin", *, timeout: float = 10) -> httpx.Client:
        """HTTP client of the API server for one of USERS; the caller closes it."""
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self._tokens[user]}"},
            transport=_Patient(verify=ssl.create_default_context(cafile=str(self.ca_file))),
            trust_env=False,
            timeout=timeout,
        )

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Path of a kubeconfig for an existing ServiceAccount, which has no right beyond its roles."""
        with self.client() as api:
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            answer = api.post(path, json={"spec": {"expirationSeconds": 7200}}).raise_for_status()
        return self._write_kubeconfig(f"{namespace}.{name}", answer.json()["status"]["token"], namespace)

    def pid(self, program: str) -> int:
        """The process id of a program that runs; KeyError when it was not started."""
        return self._programs[program].pid

    def runs(self, program: str) -> bool:
        """Whether a program was started and has not ended."""
        return program in self._programs and self._programs[program].running

    # -- life ---

    def start(self) -> Self:
        try:
            self._issue_certificates()
            self._issue_tokens()
            self.start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything, last started first, and remove the directory."""
        for program in reversed(self._programs.values()):
            program.stop(signal.SIGKILL)  # what it would still write goes with the directory
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_etcd(self) -> None:
        """Start etcd with what it kept, if it ran before."""
        peer = f"http://127.0.0.1:{free_port()}"
        program = self._run(
            "etcd",
            "--name=etcd",
            f"--data-dir={self.directory}/etcd",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=etcd={peer}",
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={8 << 30}",  # room for benchmarks: 2 GiB without it
            "--log-level=warn",
        )
        with httpx.Client(trust_env=False) as http:
            program.wait_until(lambda: http.get(f"{self._etcd}/health").is_success)

    def stop_etcd(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop etcd alone; the API server then says that it is not ready."""
        self._programs["etcd"].stop(how)

    def start_apiserver(self) -> None:
        directory = self.directory
        program = self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--endpoint-reconciler-type=none",  # the Service "kubernetes" may not point to loopback
            f"--tls-cert-file={directory}/server.crt",
            f"--tls-private-key-file={directory}/server.key",
            f"--token-auth-file={directory}/tokens.csv",
            f"--service-account-key-file={directory}/accounts.key",
            f"--service-account-signing-key-file={directory}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            f"--disable-admission-plugins={','.join(ADMISSION_OFF)}",
            "--enable-priority-and-fairness=false",
            "--event-ttl=1h",
            "--profiling=false",
            "--shutdown-delay-duration=0s",
            *self._apiserver_args,
        )
        with self.client(timeout=5) as api:
            program.wait_until(lambda: api.get("/readyz").is_success)
            # /readyz can say yes a moment before the first namespaces exist.
            program.wait_until(lambda: api.get("/api/v1/namespaces/default").is_success)

    def stop_apiserver(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the API server alone; SIGKILL stands for its sudden death."""
        self._programs["kube-apiserver"].stop(how)

    def restart_apiserver(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Start the API server anew on its port; it then knows no resourceVersion older than itself."""
        self.stop_apiserver(how)
        self.start_apiserver()

    def start_controller_manager(self, *args: str) -> None:
        config = self.kubeconfig("controller-manager")
        program = self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            "--secure-port=0",
            "--leader-elect=false",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--service-account-private-key-file={self.directory}/accounts.key",
            f"--root-ca-file={self.ca_file}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *args,
        )
        with self.client() as api:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            program.wait_until(lambda: api.get(account).is_success)

    def start_scheduler(self, config: Mapping[str, Any] | None = None, *args: str) -> None:
        """Run kube-scheduler with the given keys of a KubeSchedulerConfiguration, for example `extenders`."""
        kubeconfig = self.kubeconfig("scheduler")
        file = self.directory / "scheduler.json"
        defaults = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        }
        file.write_text(json.dumps(defaults | dict(config or {})))
        port = free_port()
        program = self._run(
            "kube-scheduler",
            f"--config={file}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.directory}/server.crt",
            f"--tls-private-key-file={self.directory}/server.key",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            *args,
        )
        with self.client() as api:
            program.wait_until(lambda: api.get(f"https://127.0.0.1:{port}/readyz").is_success)

    def stop_scheduler(self) -> None:
        """Stop kube-scheduler: from then on pods of other schedulers stay where they are."""
        self._programs["kube-scheduler"].stop()

    def start_kwok(self, stages: Path | None = None, answers: Path | None = None) -> None:
        """Let kwok play every node: it is Ready, and the pods bound to it run, complete and go, or live by `stages`.

        With `answers`, ClusterLogs and ClusterPortForwards, kubelets are asked for logs and ports.
        """
        port = free_port()
        certificate = (f"--tls-{part}-file={self.directory}/server.{end}" for part, end in _CERTIFICATE)
        kubelet = [f"--config={answers}", "--node-ip=127.0.0.1", f"--node-port={port}", *certificate]
        program = self._run(
            "kwok",
            f"--kubeconfig={self.kubeconfig('kwok')}",
            f"--config={stages or self.binaries.kwok_stages}",
            "--manage-all-nodes",
            f"--server-address=127.0.0.1:{port}",
            *(kubelet if answers else ()),
        )
        with httpx.Client(trust_env=False) as http:
            program.wait_until(lambda: http.get(f"http://127.0.0.1:{port}/readyz").is_success)

    # -- parts ---

    def _run(self, name: str, *args: str) -> Program:
        if self.runs(name):
            raise ClusterError(f"{name} runs already, and would be left behind")
        program = Program([str(self.binaries[name]), *args], self.directory / f"{name}.log")
        self._programs[name] = program
        return program

    def _issue_certificates(self) -> None:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(self.ca_file))
        server = ca.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc")
        server.private_key_pem.write_to_path(str(self.directory / "server.key"))
        server.cert_chain_pems[0].write_to_path(str(self.directory / "server.crt"))
        # Only the key counts here: ServiceAccount tokens are signed with it.
        accounts = ca.issue_cert("service-accounts.test")
        accounts.private_key_pem.write_to_path(str(self.directory / "accounts.key"))

    def _issue_tokens(self) -> None:
        lines = [f'{self._tokens[name]},{user},{name},"{groups}"\n' for name, (user, groups) in USERS.items()]
        (self.directory / "tokens.csv").write_text("".join(lines))
        for name in USERS:
            self._write_kubeconfig(name, self._tokens[name])

    def _write_kubeconfig(self, name: str, token: str, namespace: str = "default") -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name, "namespace": namespace}}],
            "current-context": name,
        }
        path = self.kubeconfig(name)
        path.write_text(json.dumps(config, indent=2))  # JSON is YAML
        path.chmod(0o600)
        return path


class _Patient(httpx.HTTPTransport):
    """Asks again what the API server refuses only for now, as Kubernetes' own clients do."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(_TRIES):
            answer = super().handle_request(request)
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS or "Retry-After" not in answer.headers:
                break
            answer.close()
            time.sleep(float(answer.headers["Retry-After"]))
        return answer


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(
    holds: Callable[[], bool], timeout: float = 60, seen: Callable[[], object] = str, every: float = 0.25
) -> None:
    """Ask until `holds`, soon at first and then `every` so many seconds, for each question takes the cluster's time.

    Raises AssertionError after `timeout` seconds, with what was seen then.
    """
    deadline, pause = time.monotonic() + timeout, min(0.02, every)
    while not holds():
        assert time.monotonic() < deadline, f"not so after {timeout} s: {seen()}"
        time.sleep(pause)
        pause = min(1.5 * pause, every)


def _memory() -> str | None:
    """The tmpfs, unless it is as small as that of many containers."""
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 2**31
    return str(shm) if roomy else None


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), Cluster(control_plane()) as cluster:
        cluster.start_controller_manager()
        cluster.start_kwok()
        print(f"export KUBECONFIG={cluster.kubeconfig()}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
