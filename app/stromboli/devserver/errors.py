"""API failures, each carrying the `Status` object that a Kubernetes client switches on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .resources import Resource


class ApiError(Exception):
    """A refused request: `code` is the HTTP status, `reason` the word that clients go by, if there is one."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        """The `meta/v1 Status` body of the answer, or the object of a watch's ERROR event."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return body


def success(resource: Resource | None = None, name: str = "", uid: str = "") -> dict[str, Any]:
    """The Status of a request that has no object to return."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if resource is not None:
        body["details"] = {**_details(resource, name), "uid": uid}
    return body


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_details(resource, name))


def path_not_found() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_details(resource, name))


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> ApiError:
    suffix = f"/{subresource}" if subresource else ""
    message = f'Operation cannot be fulfilled on {resource.qualified}{suffix} "{name}": {why}'
    details = _details(resource, name)
    return ApiError(409, "Conflict", message, details={**details, "kind": resource.plural + suffix})


def stale(resource: Resource, name: str) -> ApiError:
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, details=_details(resource, name))


def invalid(resource: Resource, name: str, problems: Sequence[tuple[str, str]]) -> ApiError:
    """422 with one cause per problem; a problem is (field path, what is wrong with it)."""
    listed = ", ".join(f"{path}: {what}" for path, what in problems)
    text = f"[{listed}]" if len(problems) > 1 else listed
    causes = [{"reason": "FieldValueInvalid", "message": what, "field": path} for path, what in problems]
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    return ApiError(422, "Invalid", f'{resource.kind} "{name}" is invalid: {text}', details=details)


def patch_failed(why: str) -> ApiError:
    """A well-formed JSON patch that does not apply, a failed `test` included: 422, never 409."""
    causes = [{"reason": "UnexpectedServerResponse", "message": why}]
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, details={"causes": causes})


def unnamed(why: str) -> ApiError:
    """An error that real servers return as an internal error without a reason."""
    return ApiError(500, "", why)


def bad_request(why: str) -> ApiError:
    return ApiError(400, "BadRequest", why)


def expired(why: str) -> ApiError:
    return ApiError(410, "Expired", why)


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def unsupported_media_type(got: str, accepted: Sequence[str]) -> ApiError:
    message = f"the body of the request was in an unknown format ({got}) - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    message = "only the following media types are accepted: "
    return ApiError(406, "NotAcceptable", message + ", ".join(accepted))


def version_too_large(asked: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1})


def disruption_budget(why: str) -> ApiError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    causes = [{"reason": "DisruptionBudget", "message": why}]
    return ApiError(429, "TooManyRequests", message, details={"causes": causes})


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
