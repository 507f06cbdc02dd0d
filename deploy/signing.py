"""Sign files with what a releaser has: a key of SSH, one that gpg knows, or cosign with a key or an identity."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

#: how files with keys of SSH begin, private and public
_OF_SSH = (b"-----BEGIN OPENSSH PRIVATE KEY-----", b"ssh-", b"ecdsa-", b"sk-")
#: how files with private keys of cosign begin
_OF_COSIGN = (b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----", b"-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----")
#: in place of a key: cosign signs with a certificate for who logs in
KEYLESS = "keyless"


def key_of(checkout: Path) -> str:
    """The key that git signs with in a checkout, empty for none."""
    words = ["git", "config", "user.signingKey"]
    return subprocess.run(words, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


def sign(path: Path, key: str, config: str = "") -> Path:
    """The signature that is made beside a file, by the file of a key, what gpg or cosign call one, or `keyless`.

    `config` is cosign's signing config, which says what logs of transparency it tells; Sigstore's public ones without.
    """
    if is_of_cosign(key):
        signature = path.with_name(f"{path.name}.sigstore.json")
        words = ["cosign", "sign-blob", "--yes", *_of_cosign(key, config), "--bundle", str(signature), str(path)]
    elif _begins(key, _OF_SSH):
        signature = path.with_name(f"{path.name}.sig")
        # ssh-keygen asks before it writes over one.
        signature.unlink(missing_ok=True)
        words = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(Path(key).expanduser()), str(path)]
    else:
        signature = path.with_name(f"{path.name}.asc")
        words = ["gpg", "--batch", "--yes", "--armor", "--local-user", key, "--output", str(signature)]
        words += ["--detach-sign", str(path)]
    try:
        done = subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError:
        sys.exit(f"release: {words[0]} is not installed, and {key} cannot sign without it")
    if done:
        sys.exit(f"release: {words[0]} ended with {done}, and {path.name} is not signed by {key}")
    return signature


def of_image(digest: str, key: str, statement: Path, config: str = "") -> str:
    """How the image is signed once a registry has it, which keys of SSH and gpg cannot do."""
    if not is_of_cosign(key):
        return f"No signature goes with the image into a registry: SIGNING_KEY={KEYLESS} or a key of cosign makes one."
    image, own = f"REGISTRY/stromboli@sha256:{digest}", _of_cosign(key, config)
    signs = shlex.join(["cosign", "sign", "--yes", *own, image])
    provenance = ["--type", "slsaprovenance1", "--predicate", "-"]
    attests = shlex.join(["cosign", "attest", "--yes", *own, *provenance, image])
    return f"Once a registry has the image, sign it:\n  {signs}\n  jq .predicate {statement} | {attests}"


def is_of_cosign(key: str) -> bool:
    """Whether a key is for cosign: a file, one of a key management service, or none but an identity."""
    return key == KEYLESS or "://" in key or _begins(key, _OF_COSIGN)


def _of_cosign(key: str, config: str) -> list[str]:
    own = [] if key == KEYLESS else ["--key", key if "://" in key else str(Path(key).expanduser())]
    return [*own, "--signing-config", config] if config else own


def _begins(key: str, with_any: tuple[bytes, ...]) -> bool:
    file = Path(key).expanduser()
    return file.is_file() and file.read_bytes().startswith(with_any)
