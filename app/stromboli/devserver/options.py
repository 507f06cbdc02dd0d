"""The query parameters of lists and watches, and the checks that they make sense together."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from .errors import ApiError, bad_request, version_too_large
from .store import Key, encode


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`meta/v1 ListOptions`; `version` is None when no resourceVersion was given, 0 stands for any."""

    labels: str
    fields: str
    version: int | None
    version_match: str
    limit: int
    continue_token: str
    watch: bool
    bookmarks: bool
    initial_events: bool | None
    timeout_seconds: float | None

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ListOptions:
        """BadRequest (400) for values that cannot be read, Invalid (422) for contradictions."""
        version = query.get("resourceVersion", "")
        if version and not version.isdigit():
            raise bad_request(f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax')
        options = cls(
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            version=int(version) if version else None,
            version_match=query.get("resourceVersionMatch", ""),
            limit=max(0, number(query, "limit") or 0),
            continue_token=query.get("continue", ""),
            watch=_flag(query, "watch"),
            bookmarks=_flag(query, "allowWatchBookmarks"),
            initial_events=_flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
            timeout_seconds=number(query, "timeoutSeconds"),
        )
        options._check()
        return options

    def check_reached(self, current: int) -> None:
        """Timeout (504) when the client has seen a version that this server has not."""
        if self.version is not None and self.version > current:
            raise version_too_large(self.version, current)

    def _check(self) -> None:
        if self.initial_events is not None and not self.watch:
            raise _invalid("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")
        if self.watch and self.initial_events is not None and self.version_match != "NotOlderThan":
            raise _invalid(
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        if not self.version_match:
            return
        if self.watch and self.initial_events is None:
            raise _invalid("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden for watch")
        if self.version_match not in ("Exact", "NotOlderThan"):
            raise _invalid("resourceVersionMatch", f'Unsupported value: "{self.version_match}"')
        if self.version_match == "Exact" and self.version == 0:
            raise _invalid(
                "resourceVersionMatch",
                'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            )
        if not self.watch and self.version is None:
            raise _invalid(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )
        if not self.watch and self.continue_token:
            raise _invalid(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            )


def continue_token(version: int, last: Key) -> str:
    """Names the rest of a list: everything after the key `last`, as of `version`."""
    token = {"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(last) + "\0"}
    return base64.urlsafe_b64encode(encode(token)).decode().rstrip("=")


def parse_continue(token: str) -> tuple[int, Key]:
    """(version, last key) of a continue token; BadRequest (400) if it is not one."""
    try:
        fields = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = str(fields["start"]).rstrip("\0").rpartition("/")
        return int(fields["rv"]), (namespace, name)
    except (binascii.Error, msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "false").lower() in ("true", "1", "t", "")


def number(query: Mapping[str, str], name: str) -> int | None:
    """The integer that a parameter gives, None without it; BadRequest (400) for anything else."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f'{name}: Invalid value: "{text}": must be a number') from error


def _invalid(field: str, message: str) -> ApiError:
    cause = {"reason": "FieldValueForbidden", "message": message, "field": field}
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
    return ApiError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {field}: {message}', details=details)
