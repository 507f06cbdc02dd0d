"""Many histories of small clusters, in several processes: `python -m tests.expectations.histories 10000 --jobs 2`.

Each chunk of a hundred has a seed, which repeats it; half of the chunks are plain histories. What fails is printed and
not made smaller, which `STROMBOLI_SHRINK=1` does; a chunk ends with its first failure.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import cycle, islice

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import tests.conftest  # noqa: F401 - without it each history reads what is installed
from tests.expectations.test_changing_histories import ChangingHistories
from tests.expectations.test_claim_histories import ClaimHistories
from tests.expectations.test_histories import PHASES, Histories
from tests.expectations.test_limit_histories import LimitHistories
from tests.expectations.test_part_histories import PartHistories
from tests.expectations.test_pool_histories import PoolHistories
from tests.expectations.test_restless_histories import RestlessLimitHistories, RestlessPoolHistories
from tests.expectations.test_role_histories import RoleHistories

KINDS: dict[str, type[Histories]] = {
    "plain": Histories,
    "changing": ChangingHistories,
    "claim": ClaimHistories,
    "limit": LimitHistories,
    "pool": PoolHistories,
    "part": PartHistories,
    "role": RoleHistories,
    "restless limit": RestlessLimitHistories,
    "restless pool": RestlessPoolHistories,
}
_CHUNK = 100


def told(kind: str, number: int, count: int) -> str:
    """Run histories of a kind by a seed; what failed, empty if none did."""
    machine = type(KINDS[kind].__name__, (KINDS[kind],), {})
    seed(number)(machine)
    chunk = settings(
        max_examples=count,
        stateful_step_count=8,
        phases=PHASES,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            run_state_machine_as_test(machine, settings=chunk)
        except Exception:  # a session that raises fails a history, too
            return f"{printed.getvalue()}\n{traceback.format_exc()}"
    return ""


def chunks(kinds: list[str], count: int) -> Iterator[tuple[str, int]]:
    """The kind and the size of each chunk; every other one is plain, or all are of the kinds that are asked for."""
    usual = [each for kind in list(KINDS)[1:] for each in ("plain", kind)]
    sizes = [_CHUNK] * (count // _CHUNK) + ([count % _CHUNK] if count % _CHUNK else [])
    return zip(islice(cycle(kinds or usual), len(sizes)), sizes, strict=True)


def main() -> int:
    """Exits with 1 if a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.expectations.histories", description=__doc__)
    parser.add_argument("count", type=int, help="how many histories")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first chunk")
    parser.add_argument("--kind", action="append", choices=KINDS, default=[], help="only these kinds of histories")
    options = parser.parse_args()
    passed = failed = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        asked = {
            pool.submit(told, kind, number, size): (kind, number, size)
            for number, (kind, size) in enumerate(chunks(options.kind, options.count), options.seed)
        }
        for done in as_completed(asked):
            kind, number, size = asked[done]
            failure = done.result()
            failed, passed = failed + bool(failure), passed + (0 if failure else size)
            print(f"{kind} histories by seed {number}: {failure or f'{size} hold'}", flush=True)
    print(f"{passed} histories hold, {failed} chunks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
