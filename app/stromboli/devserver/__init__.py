"""An embedded Kubernetes API server for demos and tests: in memory, one process, nothing to install.

It reads JSON, YAML and protobuf over plain HTTP on 127.0.0.1, answers in JSON and believes every client. What it does,
the contract tests compare with a real API server. What it leaves out: field ownership of server-side apply, CEL rules
and conversion of custom resources, `/scale` and `/log`, garbage collection by ownerReferences, and all controllers but
a fake kubelet.
"""

from .kubelet import RUN_SECONDS
from .server import DevServer, Options, write_kubeconfig

__all__ = ["RUN_SECONDS", "DevServer", "Options", "write_kubeconfig"]
