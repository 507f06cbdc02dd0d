"""Who asks and what he may read, by the API server's own word."""

from __future__ import annotations

import pytest

from stromboli.live.api_server.access import AccessReviews
from stromboli.live.api_server.client import Credentials, Kube
from tests.controlplane.cluster import Cluster
from tests.e2e.world import World

pytestmark = pytest.mark.e2e

READER = "reader"


async def test_a_token_is_known_with_what_its_owner_may_read(plane: Cluster, world: World) -> None:
    token = world.reader(READER, {"": ["pods"]})
    kube = Kube(Credentials.load(plane.kubeconfig()))
    try:
        reviews = AccessReviews(kube)
        user = await reviews.user(token)
        assert user is not None
        assert user.name == f"system:serviceaccount:{world.namespace}:{READER}"
        assert await reviews.may(user, "get", "", "pods", world.namespace)
        assert not await reviews.may(user, "get", "", "pods", "default")
        assert not await reviews.may(user, "list", "", "pods")
        assert not await reviews.may(user, "get", "scheduling.volcano.sh", "queues")
        assert await reviews.user(token + "x") is None
    finally:
        await kube.close()
