"""The policy in force for display, without secrets."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from stromboli.explain.overview import PluginRow, PolicyInForce
from stromboli.framework.runtime.failures import summaries
from stromboli.framework.session.session import Session
from stromboli.policy.switches import OFF_BY_DEFAULT

_HIDDEN = "(hidden)"
#: keys whose values may be secret
_SECRET = re.compile(r"token|secret|passw|passphrase|credential|authorization|api.?key|private", re.IGNORECASE)
#: credentials and query in a URL
_IN_ADDRESS = re.compile(r"(?<=//)[^/?#\s]*@|(?<=\?)\S+")
#: keys of `metrics` without secrets
_METRICS = ("type", "address", "interval", "tls.insecureSkipVerify")
#: length to which values are cut
_LONGEST = 400


def policy_in_force(session: Session, problem: str) -> PolicyInForce:
    """The policy of a session; `problem` is why the current file was refused."""
    policy = session.policy
    return PolicyInForce(
        actions=list(policy.actions),
        tiers=[
            [
                PluginRow(
                    name=option.name,
                    arguments=_told(option.arguments),
                    disabled=sorted(option.disabled - OFF_BY_DEFAULT),
                    hierarchy=option.hierarchy,
                )
                for option in tier.plugins
            ]
            for tier in policy.tiers
        ],
        arguments={name: _told(arguments) for name, arguments in policy.action_arguments.items()},
        rules={name: "strict" if strict else "volcano" for name, strict in asdict(session.rules).items()},
        metrics={key: _plain(key, value) if key in _METRICS else _HIDDEN for key, value in policy.metrics.items()},
        problem=problem,
        failing=list(summaries(list(session.failures), session.view.jobs).values()),
    )


def _told(arguments: BaseModel | None) -> dict[str, str]:
    said = {} if arguments is None else arguments.model_dump(mode="json", by_alias=True)
    return {key: _plain(key, value) for key, value in said.items()}


def _plain(key: str, value: Any) -> str:
    if _SECRET.search(key):
        return _HIDDEN
    if isinstance(value, dict):
        text = ", ".join(f"{name}: {_plain(str(name), each)}" for name, each in value.items())
    elif isinstance(value, list):
        text = ", ".join(_plain("", each) for each in value)
    elif value is None or isinstance(value, bool):
        text = "" if value is None else str(value).lower()
    else:
        text = str(value)
        text = _IN_ADDRESS.sub("", text) if "://" in text else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
