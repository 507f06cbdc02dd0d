"""The service of a cluster, as its objects show it: the pod that leads, how it is spoken to, and what it decides by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube

#: the arguments of `stromboli run` that affect decisions
_POLICY, _NAME, _MODE = "--policy", "--scheduler-name", "--compatibility"
#: the label by which pods of the chart are found, and its value unless the release has another
_CHART, _USUAL = "app.kubernetes.io/name", "stromboli"
_PORT = "http"


@dataclass(frozen=True, slots=True)
class Located:
    """A service in a cluster. An empty field is not known."""

    namespace: str
    #: the pod that leads; empty while none does
    pod: str = ""
    port: int = 8080
    https: bool = False
    #: the name of the Deployment or pod by which it was found
    found_as: str = ""
    #: the container in its pods
    container: str = ""
    #: its label as a part of the chart
    label: str = ""
    scheduler_names: tuple[str, ...] = ()
    compatibility: str = ""
    #: the ConfigMap with its policy, and the key; empty when it runs without `--policy`
    config_map: str = ""
    config_key: str = ""
    #: the policy; None when the ConfigMap cannot be read
    policy: str | None = None

    @property
    def beside(self) -> str:
        """A selector of pods: its replicas, and those of other releases."""
        return f"{_CHART} in ({', '.join(sorted({self.label or _USUAL, _USUAL}))})"


async def locate(kube: Kube) -> Located | None:
    """The service of a cluster; None when there is none, or what shows it may not be read.

    Raises CONNECTION_ERRORS when the API server does not answer.
    """
    from stromboli.live.api_server.client import ApiError
    from stromboli.live.leadership.leader_mark import LABEL

    for path, selector in (("/api/v1/pods", f"{LABEL}=true"), ("/apis/apps/v1/deployments", f"{_CHART}={_USUAL}")):
        try:
            items = (await kube.get(f"{path}?labelSelector={quote(selector)}")).get("items") or []
        except ApiError:
            continue
        for item in items:
            is_pod = path.endswith("pods")
            spec = item.get("spec") or {} if is_pod else ((item.get("spec") or {}).get("template") or {}).get("spec")
            found = _of_spec(item["metadata"], spec or {}, is_pod=is_pod)
            if found is not None:
                return await _with_policy(kube, found)
    return None


def _of_spec(meta: Mapping[str, Any], spec: Mapping[str, Any], *, is_pod: bool) -> Located | None:
    """The service that a pod runs, from its spec; None if it runs none."""
    for container in spec.get("containers") or ():
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        if "run" not in words:
            continue
        port: Mapping[str, Any] = next((each for each in container.get("ports") or () if each.get("name") == _PORT), {})
        probe = (container.get("readinessProbe") or {}).get("httpGet") or {}
        config_map, key = _config_map(container, spec, next(values_of(words, _POLICY), ""))
        return Located(
            namespace=str(meta.get("namespace") or ""),
            pod=str(meta["name"]) if is_pod else "",
            port=int(port.get("containerPort") or 8080),
            https=str(probe.get("scheme") or "HTTP").upper() == "HTTPS",
            found_as=f"{meta.get('namespace')}/{meta['name']}",
            container=str(container.get("name") or ""),
            label=str((meta.get("labels") or {}).get(_CHART) or ""),
            scheduler_names=tuple(values_of(words, _NAME)),
            compatibility=next(values_of(words, _MODE), ""),
            config_map=config_map,
            config_key=key,
        )
    return None


def values_of(words: list[str], option: str) -> Iterator[str]:
    """The values of an option on a command line, in either way of writing it."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option and equals:
            yield value
        elif name == option and index + 1 < len(words):
            yield words[index + 1]


def _config_map(container: Mapping[str, Any], spec: Mapping[str, Any], path: str) -> tuple[str, str]:
    """The ConfigMap that a file of a container comes from, and the key in it; empty when it is no such file."""
    folder, _, key = path.rpartition("/")
    volumes = {each["name"]: (each.get("configMap") or {}).get("name") for each in spec.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        name = volumes.get(mount.get("name"))
        if path and name and str(mount.get("mountPath") or "").rstrip("/") == folder:
            return str(name), key
    return "", ""


async def _with_policy(kube: Kube, found: Located) -> Located:
    from dataclasses import replace

    from stromboli.live.api_server.client import ApiError

    if not found.config_map:
        return found
    try:
        config = await kube.get(f"/api/v1/namespaces/{found.namespace}/configmaps/{found.config_map}")
    except ApiError:
        return found
    text = (config.get("data") or {}).get(found.config_key)
    return replace(found, policy=text if isinstance(text, str) else None)
