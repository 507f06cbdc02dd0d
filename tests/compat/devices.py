"""Random small clusters whose pods want devices: claims of all forms, shared cards, and resources that are devices.

A claim that is made of a template is like the one of the template's name.

Left out is what kube-scheduler 1.36.1 gets wrong: what it has tried of a pool with counters goes on counting where a
taint or a constraint then speaks against a device, or it is given in parts; it fails for all devices of such a pool;
devices that are only looked at draw on counters and capacities; and of devices of one request it tells only two apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.compat.scenes import FAR, HOST, NEAR, Object, Scenes, ending

_GROUP = "/apis/resource.k8s.io/v1"
_DRIVERS = ["a.example.com", "b.example.com"]
_CLASSES = ["any", "large", "none-such", "b"]
_CLAIMS = 6
#: what more is asked of a device; the last ones fail for some
_EXPRESSIONS = [
    "",
    ' && device.attributes["THERE"].kind == "x"',
    ' && "index" in device.attributes["THERE"] && device.attributes["THERE"].index > 0',
    ' && device.attributes["THERE"].?fast.orValue(false)',
    " && device.allowMultipleAllocations == true",
    ' && device.attributes["THERE"].?version.orValue(semver("0.0.1")).isGreaterThan(semver("1.5.0"))',
    ' && device.attributes["THERE"].index > 0',
    ' && device.capacity["THERE"].memory.compareTo(quantity("30Gi")) > 0',
]
_CARDS = ["example.com/card", "example.com/large"]


def _cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


class DeviceScenes(Scenes):
    """Slices of two drivers, claims in all states, and pods that name them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        #: pools and devices by driver, of which allocated claims have some
        self._known: list[tuple[str, str, str, Object]] = []
        #: what is seen together of pools with counters, claims for all devices, and constraints
        self._about = self.any("counters", "all", "constraints", "all and constraints")

    def node(self, number: int) -> Object:
        name = f"n{number}"
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        amounts |= {card: self.any("0", "1", "2") for card in _CARDS if self.often(0.2)}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        return {"metadata": {"name": name, "labels": {HOST: name, "zone": self.any("z1", "z2")}}, "status": status}

    def objects(self) -> Iterator[tuple[str, Object]]:
        yield from super().objects()
        large = _cel(
            f'"memory" in device.capacity["{_DRIVERS[0]}"] && '
            f'device.capacity["{_DRIVERS[0]}"].memory.isGreaterThan(quantity("30Gi"))'
        )
        one = _cel(f'device.driver == "{_DRIVERS[0]}"')
        other = _cel(f'device.driver == "{_DRIVERS[1]}"')
        for name, selectors, extended in (
            ("any", [], _CARDS[0]),
            ("large", [one, large], _CARDS[1]),
            ("b", [other], ""),
        ):
            spec = {"selectors": selectors, **({"extendedResourceName": extended} if extended else {})}
            yield f"{_GROUP}/deviceclasses", {"metadata": {"name": name}, "spec": spec}
        for number in range(self.count):
            if self.often(0.8):
                yield from self._pool(f"n{number}", {"nodeName": f"n{number}"})
        if self.often(0.6):
            zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}]}
            yield from self._pool("fabric", self.any({"allNodes": True}, {"nodeSelector": zone}))
        for space in (NEAR, FAR):
            for number in range(_CLAIMS):
                yield f"{_GROUP}/namespaces/{space}/resourceclaims", self._claim(f"c{number}")

    # -- slices ----------------------------------------------------------------------------------------------------

    def _pool(self, name: str, where: Object) -> Iterator[tuple[str, Object]]:
        driver = self.any(*_DRIVERS)
        shared = self.often(0.6) and self._about == "counters"
        each_its_own = self.often(0.2)
        slices = self.any(1, 1, 2) + shared
        # A pool of which slices are missing, or which has one of an older generation.
        promised = slices + self.often(0.1)
        pool = {"name": name, "generation": 2, "resourceSliceCount": promised}
        path = f"{_GROUP}/resourceslices"
        if shared:
            counters = [{"name": "set", "counters": {"memory": {"value": self.any("40Gi", "80Gi")}}}]
            spec = {"driver": driver, "pool": pool, **where, "sharedCounters": counters}
            yield path, {"metadata": {"name": f"{name}-counters"}, "spec": spec}
        for number in range(slices - shared):
            devices = [
                self._device(f"d{number}-{i}", driver, shared, each_its_own) for i in range(self.any(1, 2, 3, 4))
            ]
            old = self.often(0.05)
            its = {**pool, "generation": 1} if old else pool
            self._known += [(driver, name, each["name"], each) for each in devices]
            reach = {"perDeviceNodeSelection": True} if each_its_own else where
            yield (
                path,
                {
                    "metadata": {"name": f"{name}-{number}"},
                    "spec": {"driver": driver, "pool": its, **reach, "devices": devices},
                },
            )

    def _device(self, name: str, driver: str, shared: bool, each_its_own: bool) -> Object:
        device: Object = {
            "name": name,
            "attributes": {
                "kind": {"string": self.any("x", "y")},
                "root": {"string": self.any("r1", "r2")},
                **({"index": {"int": self.any(0, 1, 2)}} if self.often(0.6) else {}),
                **({"version": {"version": self.any("1.0.0", "2.1.0")}} if self.often(0.4) else {}),
                **({"fast": {"bool": self.often(0.5)}} if self.often(0.5) else {}),
            },
            "capacity": {"memory": {"value": self.any("20Gi", "40Gi", "80Gi")}} if self.often(0.9) else {},
        }
        if shared and self.often(0.7):
            counters = {"memory": {"value": self.any("20Gi", "40Gi", "50Gi")}}
            device["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
        elif self.often(0.25):
            effect = self.any("NoSchedule", "NoExecute", "None")
            device["taints"] = [{"key": "bad", "value": self.any("", "v"), "effect": effect}]
        elif "constraints" not in self._about and self.often(0.4):
            device["allowMultipleAllocations"] = True
            if "memory" in device["capacity"] and self.often(0.6):
                policy = self.any(
                    {"default": "10Gi", "validRange": {"min": "10Gi", "max": "20Gi", "step": "5Gi"}},
                    {"default": "10Gi", "validRange": {"min": "10Gi"}},
                    {"default": "10Gi", "validValues": ["10Gi", "15Gi", "20Gi"]},
                )
                device["capacity"]["memory"]["requestPolicy"] = policy
        if self.often(0.1):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
            device |= {"bindsToNode": True} if self.often(0.5) else {}
        if each_its_own:
            device |= self.any({"nodeName": f"n{self.any(*range(self.count))}"}, {"allNodes": True})
        return device

    # -- claims ----------------------------------------------------------------------------------------------------

    def _claim(self, name: str) -> Object:
        requests = [self._request(f"r{number}") for number in range(self.any(1, 1, 1, 2, 3))]
        devices: Object = {"requests": requests}
        if self.often(0.4) and "constraints" in self._about:
            several = "all" in self._about or any(
                each["exactly"].get("count", 1) > 1 for each in requests if "exactly" in each
            )
            several |= any(each.get("count", 1) > 1 for one in requests for each in one.get("firstAvailable", ()))
            kind = "matchAttribute" if several else self.any("matchAttribute", "distinctAttribute")
            over = {"requests": [self.any(*requests)["name"]]} if self.often(0.3) else {}
            attribute = f"{self.any(*_DRIVERS)}/{self.any('root', 'kind', 'index', 'version')}"
            devices["constraints"] = [{kind: attribute, **over}]
        claim: Object = {"metadata": {"name": name}, "spec": {"devices": devices}}
        if self._known and self.often(0.3):
            claim["status"] = self._allocated(requests)
        return claim

    def _request(self, name: str) -> Object:
        if self.often(0.2):
            some = [{"name": f"s{number}", **self._exactly(often_many=False)} for number in range(self.any(1, 2, 3, 4))]
            return {"name": name, "firstAvailable": some}
        exactly = self._exactly(often_many=True)
        if self.often(0.1) and "constraints" in self._about:
            exactly["adminAccess"] = True
        return {"name": name, "exactly": exactly}

    def _exactly(self, often_many: bool) -> Object:
        exactly: Object = {"deviceClassName": self.any("any", "any", *_CLASSES)}
        if "all" in self._about and self.often(0.4):
            exactly["allocationMode"] = "All"
        elif self.often(0.4 if often_many else 0.2):
            exactly |= {"allocationMode": "ExactCount", "count": self.any(1, 2, 3)}
        if self.often(0.35):
            domain = self.any(*_DRIVERS)
            exactly["selectors"] = [
                _cel(f'device.driver == "{domain}"{self.any(*_EXPRESSIONS).replace("THERE", domain)}')
            ]
        if self.often(0.3):
            exactly["tolerations"] = [
                self.any({"operator": "Exists"}, {"key": "bad", "operator": "Equal", "value": "v"})
            ]
        if self.often(0.25):
            exactly["capacity"] = {"requests": {"memory": self.any("5Gi", "12Gi", "20Gi", "40Gi")}}
        return exactly

    def _allocated(self, requests: list[Object]) -> Object:
        results = []
        for request in requests:
            driver, pool, device, what = self.any(*self._known)
            name = request["name"] + (f"/{request['firstAvailable'][0]['name']}" if "firstAvailable" in request else "")
            result = {"request": name, "driver": driver, "pool": pool, "device": device}
            if what.get("allowMultipleAllocations"):
                result["shareID"] = f"00000000-0000-4000-8000-{self._random.randrange(10**12):012}"
                if "memory" in what["capacity"]:
                    result["consumedCapacity"] = {"memory": self.any("10Gi", "20Gi")}
            if request.get("exactly", {}).get("adminAccess"):
                result["adminAccess"] = True
            if "bindingConditions" in what and self.often(0.5):
                result |= {key: what[key] for key in ("bindingConditions", "bindingFailureConditions")}
            results.append(result)
        terms = [
            {
                "matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [f"n{self.any(*range(self.count))}"]}
                ]
            }
        ]
        allocation: Object = {"devices": {"results": results}}
        if self.often(0.8):
            allocation["nodeSelector"] = {"nodeSelectorTerms": terms}
        return {"allocation": allocation}

    def changes(self) -> Iterator[tuple[str, Object | None]]:
        for number in range(_CLAIMS):
            if self.often(0.04):
                yield from ending(f"{_GROUP}/namespaces/{self.any(NEAR, FAR)}/resourceclaims/c{number}")
        for number in range(self.count):
            if self.often(0.1):
                allocatable = {card: self.any("0", "1", None) for card in _CARDS}
                yield f"/api/v1/nodes/n{number}/status", {"status": {"allocatable": allocatable}}

    # -- pods ------------------------------------------------------------------------------------------------------

    def placed(self, name: str, node: str) -> Object:
        return {
            "metadata": {"name": name},
            "spec": {"nodeName": node, "schedulerName": "none", "containers": [self._main({})]},
        }

    def pending(self, name: str) -> Object:
        names = (
            self.some([f"c{number}" for number in range(_CLAIMS + self.often(0.1))], self.any(1, 1, 2))
            if self.often(0.8)
            else []
        )
        cards = {
            card: self.any("1", "2", "3")
            for card in [*_CARDS, "deviceclass.resource.kubernetes.io/b"]
            if self.often(0.2)
        }
        claims = [
            {"name": each, "resourceClaimTemplateName" if self.often(0.3) else "resourceClaimName": each}
            for each in names
        ]
        containers = [self._main(cards), *([self._main(cards, "more")] if self.often(0.2) else [])]
        first = [self._main(dict.fromkeys(cards, "1"), "first")] if self.often(0.2) else []
        first = [each | self.any({}, {"restartPolicy": "Always"}) for each in first]
        spec = {"containers": containers, "initContainers": first, "resourceClaims": claims}
        return {"metadata": {"name": name}, "spec": spec}

    def _main(self, cards: Object, name: str = "main") -> Object:
        return {"name": name, "image": "example.com/x:1", "resources": {"requests": cards, "limits": cards}}
