"""HTTP requests to operations, and their outcomes to answers."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
import yaml
from aiohttp import web

from . import discovery, protobuf
from .errors import (
    ApiError,
    bad_request,
    method_not_allowed,
    path_not_found,
    success,
    unsupported_media_type,
)
from .operations import Api
from .options import ListOptions, continue_token, number, parse_continue
from .patch import json_patch, merge_patch, strategic_merge
from .portforward import forward
from .representation import Full, negotiate
from .resources import Object, Resource
from .selectors import query_matcher
from .store import Key, Stored, encode
from .watch import Watch

logger = logging.getLogger(__name__)

_JSON = "application/json"
_YAML = "application/yaml"
_APPLY = "application/apply-patch+yaml"
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    _APPLY,
)


@dataclass(frozen=True, slots=True)
class Target:
    """The resource or object that a path under /api or /apis names."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class Handler:
    """Answers every request to the server; has no state but the cluster's."""

    def __init__(self, api: Api, *, bookmark_seconds: float) -> None:
        self._api = api
        self._bookmark_seconds = bookmark_seconds

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, raw_query = request.raw_path.partition("?")
        query = dict(parse_qsl(raw_query, keep_blank_values=True)) if raw_query else {}
        segments = [unquote(segment) for segment in path.strip("/").split("/")]
        try:
            target = self._target(segments)
            if target is not None:
                return await self._resource_request(request, target, query)
            return self._document(request, segments)
        except ApiError as error:
            return _answer(encode(error.status()), error.code)
        except web.HTTPRequestEntityTooLarge as error:
            return _answer(encode(ApiError(413, "RequestEntityTooLarge", error.text or "").status()), 413)
        except Exception:
            logger.exception("request failed method=%s path=%s", request.method, path)
            return _answer(encode(ApiError(500, "InternalError", "internal error").status()), 500)

    # -- routing ------------------------------------------------------------------------------------

    def _target(self, segments: Sequence[str]) -> Target | None:
        """The resource that the path names, or None for another sort of path; NotFound (404) if unserved."""
        match segments:
            case ["api", version, _, *_]:
                group, rest = "", list(segments[2:])
            case ["apis", group, version, _, *_]:
                rest = list(segments[3:])
            case _:
                return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        resource = self._api.resources.find(group, version, rest[0])
        if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
            raise path_not_found()
        name, subresource = [*rest[1:], "", ""][:2]
        if subresource and not resource.has(subresource):
            raise path_not_found()
        if name and resource.namespaced and not namespace:
            raise path_not_found()
        return Target(resource, namespace, name, subresource)

    async def _resource_request(
        self, request: web.BaseRequest, target: Target, query: dict[str, str]
    ) -> web.StreamResponse:
        if target.resource.verbs == ("create",):
            return await self._review(request, target)
        if target.subresource == "portforward":
            return await forward(request, self._api.get(target.resource, target.key).body, query.get("ports", ""))
        if target.subresource in target.resource.subresources:
            return await self._pod_action(request, target, query)
        match request.method, bool(target.name):
            case "GET", True:
                return self._get(request, target)
            case "GET", False:
                return await self._list_or_watch(request, target, query)
            case "POST", False:
                return await self._create(request, target, query)
            case "PUT", True:
                return await self._update(request, target, query)
            case "PATCH", True:
                return await self._patch(request, target, query)
            case "DELETE", True if not target.subresource:
                return await self._delete(request, target, query)
            case "DELETE", False:
                return await self._delete_collection(request, target, query)
            case _:
                raise method_not_allowed()

    # -- reading ------------------------------------------------------------------------------------

    def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        stored = self._api.get(target.resource, target.key)
        return self._object(request, target.resource, stored)

    async def _list_or_watch(
        self, request: web.BaseRequest, target: Target, query: dict[str, str]
    ) -> web.StreamResponse:
        options = ListOptions.parse(query)
        if not options.watch:
            return self._list(request, target, options)
        resource = target.resource
        matches = query_matcher(resource, options.labels, options.fields)
        representation = negotiate(resource, request.headers.get("Accept", ""))
        collection = self._api.store.collection(resource)
        watch = Watch(
            self._api.store, collection, target.namespace, options, matches, representation, self._bookmark_seconds
        )
        return await watch.serve(request)

    def _list(self, request: web.BaseRequest, target: Target, options: ListOptions) -> web.Response:
        resource, store = target.resource, self._api.store
        options.check_reached(store.version)
        matches = query_matcher(resource, options.labels, options.fields)
        representation = negotiate(resource, request.headers.get("Accept", ""))
        collection = store.collection(resource)
        version = store.version
        objects: Sequence[Stored] = collection.ordered(target.namespace)
        whole = not options.continue_token and (not options.limit or len(objects) <= options.limit)
        if options.version_match == "Exact" and options.version != version:
            version = options.version or 0
            objects = store.snapshots.get(resource, target.namespace, version)
        elif whole and matches is None and isinstance(representation, Full):
            joined = collection.joined(target.namespace)
            return _answer(representation.list_of(joined, {"resourceVersion": str(version)}))
        start = 0
        if options.continue_token:
            version, last = parse_continue(options.continue_token)
            objects = store.snapshots.get(resource, target.namespace, version)
            start = bisect_right(objects, last, key=attrgetter("key"))
        page: list[Stored] = []
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        for index in range(start, len(objects)):
            if matches is not None and not matches(objects[index].body):
                continue
            if options.limit and len(page) == options.limit:
                store.snapshots.keep(resource, target.namespace, version, objects)
                metadata["continue"] = continue_token(version, page[-1].key)
                if matches is None:
                    metadata["remainingItemCount"] = len(objects) - index
                break
            page.append(objects[index])
        return _answer(representation.list(page, metadata))

    # -- writing ------------------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target, query: dict[str, str]) -> web.Response:
        resource = target.resource
        body = await _body(request, resource)
        namespace = target.namespace
        if resource.namespaced and not namespace:
            raise method_not_allowed()
        stored = self._api.create(resource, namespace, body, dry_run=_dry_run(query))
        return self._object(request, resource, stored, 201)

    async def _update(self, request: web.BaseRequest, target: Target, query: dict[str, str]) -> web.Response:
        body = await _body(request, target.resource)
        stored = self._api.update(target.resource, target.key, body, target.subresource, dry_run=_dry_run(query))
        return self._object(request, target.resource, stored)

    async def _patch(self, request: web.BaseRequest, target: Target, query: dict[str, str]) -> web.Response:
        content_type = request.content_type
        if content_type not in _PATCH_TYPES or (
            target.resource.custom and content_type == "application/strategic-merge-patch+json"
        ):
            raise unsupported_media_type(content_type, _PATCH_TYPES)
        patch = _decode(await request.read(), content_type)
        if content_type == _APPLY:
            return self._apply(request, target, patch, query)
        apply = _patcher(content_type, patch)
        stored = self._api.patch(target.resource, target.key, apply, target.subresource, dry_run=_dry_run(query))
        return self._object(request, target.resource, stored)

    def _apply(self, request: web.BaseRequest, target: Target, body: Object, query: dict[str, str]) -> web.Response:
        """Server-side apply without ownership of fields: fields that are no longer applied stay."""
        resource, collection = target.resource, self._api.store.collection(target.resource)
        if not isinstance(body, dict):
            raise bad_request("an applied configuration must be an object")
        if collection.get(target.key) is None and not target.subresource:
            body.setdefault("metadata", {})["name"] = target.name
            created = self._api.create(resource, target.namespace, body, dry_run=_dry_run(query))
            return self._object(request, resource, created, 201)
        merge: Callable[[Any, Any], Object] = merge_patch if resource.custom else strategic_merge
        stored = self._api.patch(
            resource, target.key, lambda old: merge(old, body), target.subresource, dry_run=_dry_run(query)
        )
        return self._object(request, resource, stored)

    async def _delete(self, request: web.BaseRequest, target: Target, query: dict[str, str]) -> web.Response:
        resource = target.resource
        options = await _delete_options(request, resource, query)
        before = self._api.get(resource, target.key)
        held = self._api.delete(resource, target.key, options, dry_run=bool(options.get("dryRun")))
        if held is not None or resource.kind == "Pod":
            return self._object(request, resource, held or before)
        return _answer(encode(success(resource, target.name, before.body["metadata"]["uid"])))

    async def _delete_collection(self, request: web.BaseRequest, target: Target, query: dict[str, str]) -> web.Response:
        resource = target.resource
        if resource.namespaced and not target.namespace:
            raise method_not_allowed()
        options = await _delete_options(request, resource, query)
        selection = ListOptions.parse(query)
        matches = query_matcher(resource, selection.labels, selection.fields)
        chosen = [
            stored
            for stored in self._api.store.collection(resource).ordered(target.namespace)
            if matches is None or matches(stored.body)
        ]
        for stored in chosen:
            self._api.delete(resource, stored.key, options, dry_run=bool(options.get("dryRun")))
        version = {"resourceVersion": str(self._api.store.version)}
        return _answer(Full(resource).list(chosen, version))

    async def _pod_action(self, request: web.BaseRequest, target: Target, query: dict[str, str]) -> web.Response:
        if request.method != "POST":
            raise method_not_allowed()
        body = await _body(request, target.resource)
        if target.subresource == "binding":
            self._api.bind(target.key, body, dry_run=_dry_run(query))
        else:
            self._api.evict(target.key, body)
        return _answer(encode({**success(), "code": 201}), 201)

    async def _review(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Access and identity reviews: every caller is the administrator and may do everything."""
        if request.method != "POST":
            raise method_not_allowed()
        body = await _body(request, target.resource)
        if target.resource.kind == "SelfSubjectReview":
            body["status"] = {"userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}}
        else:
            body["status"] = {"allowed": True}
        return _answer(encode(body), 201)

    # -- documents ----------------------------------------------------------------------------------

    def _document(self, request: web.BaseRequest, segments: Sequence[str]) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        resources = self._api.resources
        aggregated = discovery.wants_aggregated(request.headers.get("Accept", ""))
        document: Any
        match segments:
            case ["api" | "apis" as root] if aggregated:
                body = encode(discovery.aggregated(resources, core=root == "api"))
                return _answer(body, headers={"Content-Type": discovery.AGGREGATED_TYPE})
            case ["api"]:
                document = discovery.core_versions(request.host)
            case ["apis"]:
                document = discovery.group_list(resources)
            case ["apis", group]:
                document = discovery.group(resources, group)
            case ["api", version]:
                document = discovery.resource_list(resources, "", version)
            case ["apis", group, version]:
                document = discovery.resource_list(resources, group, version)
            case ["openapi", "v2"]:
                return _answer(discovery.OPENAPI_V2, headers={"Content-Type": discovery.OPENAPI_V2_TYPE})
            case ["openapi", "v3"]:
                document = discovery.openapi_index(resources)
            case ["openapi", "v3", *path]:
                document = discovery.openapi_document(resources, "/".join(path))
            case ["version"]:
                document = discovery.VERSION
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case _:
                document = None
        if document is None:
            raise path_not_found()
        return _answer(encode(document))

    def _object(self, request: web.BaseRequest, resource: Resource, stored: Stored, code: int = 200) -> web.Response:
        return _answer(negotiate(resource, request.headers.get("Accept", "")).object(stored), code)


def _answer(body: bytes, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=code, headers={"Content-Type": _JSON, **(headers or {})})


def _dry_run(query: dict[str, str]) -> bool:
    wanted = query.get("dryRun", "")
    if wanted not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{wanted}": supported values: "All"')
    return wanted == "All"


async def _body(request: web.BaseRequest, resource: Resource) -> Object:
    content_type = request.content_type if request.headers.get("Content-Type") else _JSON
    accepted = (_JSON, _YAML) if resource.custom else (_JSON, _YAML, protobuf.MEDIA_TYPE)
    if content_type not in accepted:
        raise unsupported_media_type(content_type, accepted)
    if content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(await request.read())
    body = _decode(await request.read(), content_type)
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be an object")
    return body


def _decode(data: bytes, content_type: str) -> Any:
    try:
        return yaml.safe_load(data) if content_type.endswith("yaml") else msgspec.json.decode(data)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error


def _patcher(content_type: str, patch: Any) -> Callable[[Object], Object]:
    if content_type == "application/json-patch+json":
        return lambda old: json_patch(old, patch)
    if not isinstance(patch, dict):
        raise bad_request("a merge patch must be an object")
    if content_type == "application/merge-patch+json":
        return lambda old: merge_patch(old, patch)
    return lambda old: strategic_merge(old, patch)


async def _delete_options(request: web.BaseRequest, resource: Resource, query: dict[str, str]) -> Object:
    """DeleteOptions from the body, or from the query, which kubectl uses for dry runs."""
    options = await _body(request, resource) if request.can_read_body and await request.read() else {}
    if "gracePeriodSeconds" in query:
        options.setdefault("gracePeriodSeconds", number(query, "gracePeriodSeconds"))
    if _dry_run(query):
        options["dryRun"] = ["All"]
    return options
