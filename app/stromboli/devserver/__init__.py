"""An embedded Kubernetes API server for demos and tests: in memory, one process, nothing to install.

It reads JSON, YAML and protobuf over plain HTTP on 127.0.0.1, answers in JSON and trusts every client. Contract tests
compare it with a real API server. It lacks field ownership of server-side apply, CEL rules and conversion of custom
resources, `/scale` and `/log`, garbage collection by ownerReferences, and all controllers but a fake kubelet.
"""

from .kubelet import RUN_SECONDS
from .server import DevServer, Options, write_kubeconfig

__all__ = ["RUN_SECONDS", "DevServer", "Options", "write_kubeconfig"]
