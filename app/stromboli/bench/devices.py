"""Trials of pods that share the cards of nodes."""

from __future__ import annotations

from typing import Any

from stromboli.bench.trial import Fields, Trial

_GPU_MEMORY, _GPU_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
_VGPU = {"volcano.sh/vgpu-number": "100", "volcano.sh/vgpu-memory": "1000000", "volcano.sh/vgpu-cores": "800"}


def limits(**amounts: str) -> Fields:
    named = {"memory": "1Gi", "cpu": "1"} | {name.replace("_", "-"): amount for name, amount in amounts.items()}
    named = {f"volcano.sh/{name}" if "gpu" in name else name: amount for name, amount in named.items()}
    return {"containers": [{"name": "main", "resources": {"requests": named, "limits": named}}]}


def _cards(number: int) -> Fields:
    cards = "".join(f"card-{number}-{card},10,32000,NVIDIA-A100,true,hami-core:" for card in range(8))
    gpus = {_GPU_MEMORY: "256000", _GPU_NUMBER: "8"}
    return {"annotations": {"volcano.sh/node-vgpu-register": cards}, "amounts": _VGPU | gpus}


def _sharer(number: int) -> Fields:
    """A pod that holds a part of a card, as each way of sharing writes it."""
    ids = f"card-{number}-0,NVIDIA,100,0:"
    return {
        "annotations": {"volcano.sh/gpu-index": str(number % 8), "volcano.sh/vgpu-ids-new": ids},
        **limits(gpu_memory="100", vgpu_memory="100"),
    }


def sharing(way: str, pod: Any, weight: int = 0) -> Trial:
    policy = {"deviceshare.SchedulePolicy": "binpack", "deviceshare.ScheduleWeight": weight} if weight else {}
    plugins = {"deviceshare": {f"deviceshare.{way}": True, **policy}}
    return Trial(pod=pod, placed=_sharer, node=_cards, plugins=plugins)
