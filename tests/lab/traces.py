"""Small traces for tests."""

from __future__ import annotations

from pathlib import Path

from stromboli.lab.readers.openb import TraceNode, TracePod

NODES = [TraceNode(f"node-{number}", 32_000, 65_536, cards, "T4") for number, cards in enumerate((2, 2, 4))]
PODS = [TracePod(f"pod-{number}", 1_000, 1_024, 1, 400, "") for number in range(10)] + [
    TracePod(f"pod-{number}", 1_000, 1_024, 1, 1_000, "") for number in range(10, 13)
]


def write_trace(folder: Path) -> Path:
    """The nodes, and the pods as the list `small`."""
    nodes = "".join(f"{node.name},32000,65536,{node.cards},T4\n" for node in NODES)
    (folder / "openb_node_list_gpu_node.csv").write_text(f"sn,cpu_milli,memory_mib,gpu,model\n{nodes}")
    pods = "".join(f"{pod.name},1000,1024,1,{pod.part}\n" for pod in PODS)
    (folder / "openb_pod_list_small.csv").write_text(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{pods}")
    return folder
