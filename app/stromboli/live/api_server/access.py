"""Authentication and authorization of callers, by the API server's TokenReview and SubjectAccessReview."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from stromboli.live.api_server.client import Kube

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: seconds for which an answer is cached, and the capacity of the cache
_REMEMBERED = 10.0
_MOST = 1_000

_Question: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class User:
    """The user that a token belongs to."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class AccessReviews:
    """Asks the API server. Raises ApiError and CONNECTION_ERRORS when it does not answer."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        #: the time of each answer, oldest first
        self._answers: dict[_Question, tuple[float, Any]] = {}

    async def user(self, token: str) -> User | None:
        """The user that a token belongs to; None for an invalid token. The token itself is not stored."""
        question = ("token", hashlib.sha256(token.encode()).digest())
        known = self._recall(question)
        if known is not None:
            return known[0]  # type: ignore[no-any-return]
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._kube.create(_TOKENS, review)).get("status") or {}
        user = _user(status.get("user") or {}) if status.get("authenticated") is True else None
        self._remember(question, (user,))
        return user

    async def may(self, user: User, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Whether a user may use a verb on a resource in a namespace, or cluster-wide without one."""
        question = (user, verb, group, resource, namespace)
        known = self._recall(question)
        if known is not None:
            return bool(known[0])
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": attributes,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._kube.create(_ACCESS, review)).get("status") or {}
        allowed = status.get("allowed") is True and status.get("denied") is not True
        self._remember(question, (allowed,))
        return allowed

    def _recall(self, question: _Question) -> tuple[Any] | None:
        at, answer = self._answers.get(question, (-_REMEMBERED, None))
        return answer if self._clock() - at < _REMEMBERED else None

    def _remember(self, question: _Question, answer: tuple[Any]) -> None:
        self._answers.pop(question, None)
        while len(self._answers) >= _MOST:
            del self._answers[next(iter(self._answers))]
        self._answers[question] = self._clock(), answer


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


def _user(said: object) -> User | None:
    info = msgspec.convert(said, _UserInfo)
    extra = tuple((key, tuple(values)) for key, values in sorted(info.extra.items()))
    return User(info.username, info.uid, tuple(info.groups), extra) if info.username else None
