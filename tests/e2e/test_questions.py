"""Who asks and what he may read, by the API server's own word."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from stromboli.live.access import AccessReviews
from stromboli.live.client import Credentials, Kube
from tests.controlplane.cluster import Cluster

pytestmark = pytest.mark.e2e

READER = "reader"


@pytest.fixture
def token(plane: Cluster) -> Iterator[str]:
    """Of a ServiceAccount that may read the pods of its namespace."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/readers"
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": "readers"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": READER}
    with plane.client() as api:
        api.post("/api/v1/namespaces", json={"metadata": {"name": "readers"}}).raise_for_status()
        api.post("/api/v1/namespaces/readers/serviceaccounts", json={"metadata": {"name": READER}}).raise_for_status()
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
        api.post(f"{rbac}/roles", json={"metadata": {"name": READER}, "rules": rules}).raise_for_status()
        binding = {"metadata": {"name": READER}, "subjects": [subject], "roleRef": role}
        api.post(f"{rbac}/rolebindings", json=binding).raise_for_status()
        config = json.loads(plane.service_account_kubeconfig("readers", READER).read_text())
        yield config["users"][0]["user"]["token"]
        api.delete("/api/v1/namespaces/readers").raise_for_status()


async def test_a_token_is_known_with_what_its_owner_may_read(plane: Cluster, token: str) -> None:
    kube = Kube(Credentials.load(plane.kubeconfig()))
    try:
        reviews = AccessReviews(kube)
        user = await reviews.user(token)
        assert user is not None
        assert user.name == f"system:serviceaccount:readers:{READER}"
        assert await reviews.may(user, "get", "", "pods", "readers")
        assert not await reviews.may(user, "get", "", "pods", "default")
        assert not await reviews.may(user, "list", "", "pods")
        assert not await reviews.may(user, "get", "scheduling.volcano.sh", "queues")
        assert await reviews.user(token + "x") is None
    finally:
        await kube.close()
