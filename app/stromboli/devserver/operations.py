"""The verbs of the API on stored objects: what a request means, without HTTP.

Every operation runs to its end without awaiting, so each is atomic for all clients.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .binding import bound
from .clock import timestamp
from .crds import custom_resource
from .disruption import check_budgets
from .errors import already_exists, bad_request, conflict, forbidden, invalid, not_found, stale, unnamed
from .events import from_core, to_core
from .resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTION_BUDGETS,
    EVENTS,
    EVENTS_V1,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    Object,
    Resource,
    ResourceTable,
)
from .store import Key, Store, Stored, encode
from .strategies import check_shape, prepare_create, prepare_update

_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_EVENT_LIMIT = 5_000
#: objects that go only when everything that they hold has gone
_HOLDERS = (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS)
#: metadata that clients cannot change
_SYSTEM_METADATA = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


class Api:
    """The objects of one cluster and the operations on them."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.resources = ResourceTable()
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self._bootstrap(NAMESPACES, name, {})
        for name, value in (("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)):
            self._bootstrap(PRIORITY_CLASSES, name, {"value": value})

    # -- reading ------------------------------------------------------------------------------------

    def get(self, resource: Resource, key: Key) -> Stored:
        found = self.store.collection(resource).get(key)
        if found is None:
            raise not_found(resource, key[1])
        return found

    def resource(self, key: tuple[str, str]) -> Resource:
        """The served resource with this (group, plural); KeyError if there is none."""
        return self.resources.by_key(key)

    # -- writing ------------------------------------------------------------------------------------

    def load(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Creates objects from manifests, definitions before the resources that they define."""
        for manifest in manifests:
            body: Object = msgspec.json.decode(encode(manifest))
            resource = self.resources.by_kind(body.get("apiVersion", ""), body.get("kind", ""))
            if resource is None:
                raise bad_request(f"no resource of kind {body.get('kind')} in {body.get('apiVersion')} is served")
            namespace = body.get("metadata", {}).get("namespace", "default") if resource.namespaced else ""
            self.create(resource, namespace, body)

    def create(self, resource: Resource, namespace: str, body: Object, *, dry_run: bool = False) -> Stored:
        """Stores a new object; `body` belongs to the store afterwards."""
        if resource.key == EVENTS_V1:
            return self.create(self.resource(EVENTS), namespace, to_core(body), dry_run=dry_run)
        check_shape(body)
        metadata = self._identify(resource, namespace, body)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}
        key = (namespace, metadata["name"])
        if namespace:
            self._check_namespace(resource, namespace, metadata["name"])
        if self.store.collection(resource).get(key) is not None:
            raise already_exists(resource, metadata["name"])
        body = prepare_create(resource, body, self._priority_classes)
        if dry_run:
            return Stored(key, self.store.version, body, encode(body))
        stored = self.store.write(resource, key, body)
        self._after_create(resource, stored)
        return stored

    def update(
        self, resource: Resource, key: Key, body: Object, subresource: str = "", *, dry_run: bool = False
    ) -> Stored:
        """Replaces an object, or its status, with the body of a PUT."""
        if resource.key == EVENTS_V1:
            return self.update(self.resource(EVENTS), key, to_core(body), dry_run=dry_run)
        old = self.get(resource, key)
        versioned = isinstance(body.get("metadata"), dict) and body["metadata"].get("resourceVersion")
        if not versioned and not resource.unconditional_update:
            what = "Invalid value: 0: must be specified for an update"
            raise invalid(resource, key[1], [("metadata.resourceVersion", what)])
        return self._replace(resource, old, body, subresource, dry_run)

    def patch(
        self,
        resource: Resource,
        key: Key,
        apply: Callable[[Object], Object],
        subresource: str = "",
        *,
        dry_run: bool = False,
    ) -> Stored:
        """Replaces an object with the result of `apply`; `apply` must not change its argument."""
        if resource.key == EVENTS_V1:
            events = self.resource(EVENTS)
            return self.patch(events, key, lambda old: to_core(apply(from_core(old))), dry_run=dry_run)
        old = self.get(resource, key)
        return self._replace(resource, old, apply(old.body), subresource, dry_run)

    def delete(
        self, resource: Resource, key: Key, options: Mapping[str, Any] | None = None, *, dry_run: bool = False
    ) -> Stored | None:
        """Deletes an object, or marks it as being deleted: then it is returned, else None."""
        old = self.get(resource, key)
        options = options or {}
        self._check_preconditions(resource, old, options.get("preconditions") or {})
        grace = _grace_seconds(resource, old.body, options)
        held = old.body["metadata"].get("finalizers") or resource.key in _HOLDERS
        if dry_run:
            return old
        if not held and grace == 0:
            self._remove(resource, old)
            return None
        marked = self._mark_deleted(resource, old, grace)
        if resource.key == NAMESPACES:
            self._empty_namespace(key[1])
        elif resource.key == CUSTOM_RESOURCE_DEFINITIONS:
            self._empty_definition(marked.body)
        return marked

    def bind(self, key: Key, binding: Object, *, dry_run: bool = False) -> None:
        """Assigns a pod to a node, once: the `binding` subresource."""
        pods = self.resource(PODS)
        old = self.get(pods, key)
        self._check_preconditions(pods, old, binding.get("metadata") or {})
        pod = bound(pods, old.body, binding)
        if not dry_run:
            self.store.write(pods, key, pod)

    def evict(self, key: Key, eviction: Object) -> None:
        """Deletes a pod if its disruption budgets allow it, else TooManyRequests (429)."""
        pods = self.resource(PODS)
        pod = self.get(pods, key).body
        budgets = self._bodies(DISRUPTION_BUDGETS, key[0])
        if budgets and not pod["metadata"].get("deletionTimestamp"):
            check_budgets(pod, budgets, self._bodies(PODS, key[0]))
        options = eviction.get("deleteOptions") or {}
        self.delete(pods, key, options, dry_run="All" in (options.get("dryRun") or ()))

    # -- parts of the above -------------------------------------------------------------------------

    def _bootstrap(self, key: tuple[str, str], name: str, fields: dict[str, Any]) -> None:
        self.create(self.resource(key), "", {"metadata": {"name": name}, **fields})

    def _bodies(self, key: tuple[str, str], namespace: str = "") -> Sequence[Object]:
        return [s.body for s in self.store.collection(self.resource(key)).ordered(namespace)]

    def _priority_classes(self) -> Sequence[Object]:
        return self._bodies(PRIORITY_CLASSES)

    def _identify(self, resource: Resource, namespace: str, body: Object) -> dict[str, Any]:
        """The metadata of a new object: what the client may choose, and what the system adds."""
        if body.get("kind", resource.kind) != resource.kind:
            raise bad_request(f"{body['kind']} in the body does not match the expected kind {resource.kind}")
        if body.get("apiVersion", resource.api_version) != resource.api_version:
            raise bad_request(
                f"the API version in the data ({body['apiVersion']}) does not match the expected API version "
                f"({resource.api_version})"
            )
        metadata = {k: v for k, v in (body.get("metadata") or {}).items() if v not in (None, {}, [])}
        if metadata.get("resourceVersion"):
            raise unnamed("resourceVersion should not be set on objects to be created")
        _check_place(metadata, namespace)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise invalid(resource, "", [("metadata.name", "Required value: name or generateName is required")])
            suffix = "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))
            metadata["name"] = metadata["generateName"] + suffix
        for field in (*_SYSTEM_METADATA, "namespace", "managedFields", "selfLink"):
            metadata.pop(field, None)
        if namespace:
            metadata["namespace"] = namespace
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp()
        if resource.generation:
            metadata["generation"] = 1
        return metadata

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self.get(self.resource(NAMESPACES), ("", namespace))
        if found.body["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource, name, why)

    def _after_create(self, resource: Resource, stored: Stored) -> None:
        if resource.key == CUSTOM_RESOURCE_DEFINITIONS:
            self.resources.add(custom_resource(stored.body))
        elif resource.key == EVENTS:
            # Real servers let events expire after an hour; a count bounds the memory just as well.
            collection = self.store.collection(resource)
            if len(collection) > _EVENT_LIMIT:
                self.store.delete(resource, collection.oldest())

    def _replace(self, resource: Resource, old: Stored, new: Object, subresource: str, dry_run: bool) -> Stored:
        check_shape(new)
        self._check_same_object(resource, old, new)
        body = self._merged(resource, old.body, new, subresource)
        # A write that changes nothing keeps the version and makes no event: controllers come to rest by it.
        if body == old.body:
            return old
        if resource.generation and _desired(resource, body) != _desired(resource, old.body):
            body["metadata"]["generation"] = old.body["metadata"].get("generation", 0) + 1
        if dry_run:
            return Stored(old.key, old.version, body, encode(body))
        metadata = body["metadata"]
        released = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if released and resource.key not in _HOLDERS and not metadata.get("deletionGracePeriodSeconds"):
            self._remove(resource, old)
            return old
        stored = self.store.write(resource, old.key, body)
        if released and resource.key == NAMESPACES:
            self._finish_namespace(old.key[1])
        elif released and resource.key == CUSTOM_RESOURCE_DEFINITIONS:
            self._finish_definition(custom_resource(stored.body))
        if resource.key == CUSTOM_RESOURCE_DEFINITIONS:
            self._redefine(old.body, stored.body)
        return stored

    def _check_same_object(self, resource: Resource, old: Stored, new: Object) -> None:
        metadata = new.get("metadata") or {}
        namespace, name = old.key
        if metadata.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        _check_place(metadata, namespace)
        if new.get("kind", resource.kind) != resource.kind:
            raise bad_request(f"{new['kind']} in the body does not match the expected kind {resource.kind}")
        self._check_preconditions(resource, old, metadata)

    def _check_preconditions(self, resource: Resource, old: Stored, wanted: Mapping[str, Any]) -> None:
        uid = old.body["metadata"]["uid"]
        if wanted.get("uid") and wanted["uid"] != uid:
            why = f"Precondition failed: UID in precondition: {wanted['uid']}, UID in object meta: {uid}"
            raise conflict(resource, old.key[1], why)
        if wanted.get("resourceVersion") and wanted["resourceVersion"] != str(old.version):
            raise stale(resource, old.key[1])

    def _merged(self, resource: Resource, old: Object, new: Object, subresource: str) -> Object:
        """The object after the write: each side changes only its half, and neither the system's metadata."""
        if subresource == "status":
            body = {**old, "metadata": dict(old["metadata"]), "status": new.get("status")}
            if body["status"] is None:
                del body["status"]
            return prepare_update(resource, old, body)
        body = {**new, "apiVersion": resource.api_version, "kind": resource.kind}
        if resource.status:
            body.pop("status", None)
            if "status" in old:
                body["status"] = old["status"]
        metadata = {k: v for k, v in (new.get("metadata") or {}).items() if v not in (None, {}, [])}
        for field in ("name", "namespace", "resourceVersion", "generateName", *_SYSTEM_METADATA):
            metadata.pop(field, None)
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        metadata.pop("managedFields", None)
        body["metadata"] = metadata
        return prepare_update(resource, old, body)

    # -- deletion -----------------------------------------------------------------------------------

    def _mark_deleted(self, resource: Resource, old: Stored, grace: int) -> Stored:
        before = old.body["metadata"]
        if "deletionTimestamp" in before and before.get("deletionGracePeriodSeconds", 0) <= grace:
            return old
        metadata = {**before, "deletionTimestamp": timestamp(grace), "deletionGracePeriodSeconds": grace}
        if resource.generation and "deletionTimestamp" not in before:
            metadata["generation"] = before.get("generation", 0) + 1
        body = {**old.body, "metadata": metadata}
        if resource.key == NAMESPACES:
            body["status"] = {**(old.body.get("status") or {}), "phase": "Terminating"}
        return self.store.write(resource, old.key, body)

    def _remove(self, resource: Resource, old: Stored) -> None:
        self.store.delete(resource, old)
        if resource.namespaced:
            self._finish_namespace(old.key[0])
        if resource.custom:
            self._finish_definition(resource)

    def _empty_namespace(self, namespace: str) -> None:
        for collection in self.store.collections():
            if collection.resource.namespaced:
                for stored in list(collection.ordered(namespace)):
                    self.delete(collection.resource, stored.key)
        self._finish_namespace(namespace)

    def _finish_namespace(self, namespace: str) -> None:
        """Removes a namespace that is being deleted, once it is empty."""
        resource = self.resource(NAMESPACES)
        found = self.store.collection(resource).get(("", namespace))
        if found is None or not _released(found):
            return
        if not any(c.count(namespace) for c in self.store.collections() if c.resource.namespaced):
            self.store.delete(resource, found)

    def _empty_definition(self, definition: Object) -> None:
        resource = custom_resource(definition)
        served = self.resources.find(resource.group, resource.version, resource.plural)
        if served is not None:
            for stored in list(self.store.collection(served).ordered()):
                self.delete(served, stored.key)
            self._finish_definition(served)

    def _finish_definition(self, resource: Resource) -> None:
        """Removes a definition that is being deleted, once no object of its kind is left."""
        definitions = self.resource(CUSTOM_RESOURCE_DEFINITIONS)
        found = self.store.collection(definitions).get(("", resource.qualified))
        if found is not None and _released(found) and not len(self.store.collection(resource)):
            self.store.delete(definitions, found)
            self.resources.remove(resource)
            self.store.drop(resource)

    def _redefine(self, old: Object, new: Object) -> None:
        """Serves a changed definition; objects and watches of the resource go on."""
        if old["spec"] != new["spec"]:
            self.resources.remove(custom_resource(old))
            resource = custom_resource(new)
            self.resources.add(resource)
            self.store.collection(resource).resource = resource


def _check_place(metadata: Mapping[str, Any], namespace: str) -> None:
    if metadata.get("namespace", namespace) not in ("", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _desired(resource: Resource, body: Object) -> Object:
    """The part of an object whose changes `metadata.generation` counts."""
    unobserved = ("metadata", "status") if resource.status else ("metadata",)
    return {key: value for key, value in body.items() if key not in unobserved}


def _released(stored: Stored) -> bool:
    metadata = stored.body["metadata"]
    return "deletionTimestamp" in metadata and not metadata.get("finalizers")


def _grace_seconds(resource: Resource, body: Object, options: Mapping[str, Any]) -> int:
    """Grace period of a deletion in seconds: 0 unless the pod may be running on a node."""
    if resource.key != PODS:
        return 0
    finished = body.get("status", {}).get("phase") in ("Succeeded", "Failed")
    running = body["spec"].get("nodeName") and not finished
    asked = options.get("gracePeriodSeconds")
    default = body["spec"].get("terminationGracePeriodSeconds", 30)
    return max(0, int(default if asked is None else asked)) if running else 0
