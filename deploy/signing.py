"""Sign files with the key that a releaser has: one of SSH, or one that gpg knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: how files with keys of SSH begin, private and public
_OF_SSH = (b"-----BEGIN OPENSSH PRIVATE KEY-----", b"ssh-", b"ecdsa-", b"sk-")


def key_of(checkout: Path) -> str:
    """The key that git signs with in a checkout, empty for none."""
    words = ["git", "config", "user.signingKey"]
    return subprocess.run(words, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


def sign(path: Path, key: str) -> Path:
    """The signature that is made beside a file, by the file of a key or by what gpg calls one."""
    file = Path(key).expanduser()
    if file.is_file() and file.read_bytes().startswith(_OF_SSH):
        signature = path.with_name(f"{path.name}.sig")
        # ssh-keygen asks before it writes over one.
        signature.unlink(missing_ok=True)
        words = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(file), str(path)]
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
