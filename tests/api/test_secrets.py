"""What is left out of texts that are handed on."""

from __future__ import annotations

import json

import pytest

from stromboli.api.secrets import names_secret, without_secrets

SECRET = "hunter2"
TOLD = [
    "password: {}",
    "DB_PASSWORD={}",
    "passphrase = {}",
    "pwd={};",
    "secretKey: {}",
    "private_key: {}",
    "AWS_SECRET_ACCESS_KEY={}",
    "AccountKey={};EndpointSuffix=example.com",
    "GET https://example.com/?access_token={}&page=1",
    "http://prometheus:{}@example.com/",
    "http://prometheus:with@{}@example.com/",
    "redis://:{}@example.com",
    "Authorization: Token {}",
    'authorization="Digest username=me, response={}"',
    'Authorization: Digest username="me", response="{}"',
    "Cookie: session={}",
    "X-API-Key: {}",
    "Bearer {}",
    "run --token {}",
    "run --smtp-password={}",
    "-----BEGIN PRIVATE KEY-----\n{}\n",
    'password: "two words {}"',
    "password: 'a \" and {}'",
]


@pytest.mark.parametrize("text", TOLD)
@pytest.mark.parametrize("times", [0, 1, 2])
def test_secrets_are_left_out_however_often_a_text_was_quoted(text: str, times: int) -> None:
    said = text.format(SECRET)
    for _ in range(times):
        said = json.dumps({"event": said, "kind": "Node"})
    assert SECRET not in without_secrets(said)
    if times:
        assert "Node" in without_secrets(said)


@pytest.mark.parametrize(
    "value", [f"{SECRET} and more", f'a "quoted" {SECRET}', f"a\\{SECRET}", f"{SECRET}, {SECRET}", f"}}{SECRET}"]
)
@pytest.mark.parametrize("name", ["token", "clientSecret", "Authorization", "access-key"])
def test_fields_of_json_are_left_out_whole(name: str, value: str) -> None:
    body = json.dumps({name: value, "kind": "Node"})
    for said in (body, json.dumps({"error": f"answered 401: {body}"})):
        assert SECRET not in without_secrets(said)
        assert "Node" in without_secrets(said)
    assert json.loads(without_secrets(body))["kind"] == "Node"
    assert SECRET not in without_secrets(json.dumps({"args": ["--token", SECRET]}))


@pytest.mark.parametrize(
    "text",
    [
        "12 tokens left in the bucket",
        "PodGroup default/secret-santa: 3 of 4 pods",
        'stromboli_sessions_total{result="failed"} 3',
        "https://example.com/a@b",
        '{"secretName": "tls", "topologyKey": "zone"}',
        "error: token expired",
        "no authorization of users is asked for",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_fields_are_known_by_their_names() -> None:
    for name in ("password", "smtp_password", "clientSecret", "Authorization", "apiKey", "tokens"):
        assert names_secret(name)
    for name in ("secretName", "topologyKey", "bindTimeoutSeconds", "tokenBucket", "monkey"):
        assert not names_secret(name)
