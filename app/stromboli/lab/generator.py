"""Generated workloads: the model of Lublin and Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs" (JPDC 63, 2003), with its parameters for jobs of all kinds.

- Processors: 1 with probability 0.244. Others are 2^x, with x two-stage uniform between 0.8 and log2 of the largest
  job, with the step 2.5 below that; with probability 0.576 x is a whole number.
- Run time: e^g, with g from gamma(4.2, 0.94) with probability 0.78 - 0.0054 processors, else from gamma(312, 0.03).
- Arrivals: gaps are e^g, with g from gamma(10.2303 x 1.0225, 0.4871), in a time that goes by as fast as jobs arrive,
  which over the day is gamma(8.1737, 3.9631) in half hours.

To it are added weekends, on which fewer jobs arrive; users, who are told apart by the jobs that they like; and declared
run times. Gaps are scaled so that the jobs ask for a given part of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stromboli.lab.processors import Processors
from stromboli.lab.workload import Numbers, Seconds, Workload

Floats = npt.NDArray[np.float64]

_SERIAL, _POWER_OF_TWO = 0.244, 0.576
_LOW, _BELOW_HIGH, _MOSTLY_SMALL = 0.8, 2.5, 0.86
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
_SHARE_SLOPE, _SHARE_OF_SHORT = -0.0054, 0.78
_GAP = (10.2303 * 1.0225, 0.4871)
_DAY = (8.1737, 3.9631)
#: the half hour of the day at which its first bucket is: the model's day begins in the morning
_DAY_BEGINS, _BUCKETS, _BUCKET = 11, 48, 1800.0
#: no run time is longer than e^12 s, 45 h, and no gap than e^13
_LONGEST, _LONGEST_GAP = 12.0, 13.0
#: times that users ask for, in minutes
_ROUND = np.array([5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1080, 1440, 2160, 2880, 4320, 10080])


@dataclass(frozen=True, slots=True)
class Model:
    """The parameters of generated workloads."""

    jobs: int = 10_000
    #: processors of the machine
    processors: int = 1_024
    #: processors of the largest job, 0 for all
    largest: int = 0
    #: the part of the machine that jobs ask for from the first arrival to the last
    load: float = 0.7
    users: int = 8
    #: arrivals on a day of the weekend, relative to another day
    weekend: float = 0.5
    #: the part of jobs that declare a run time, and of these the part that run for exactly that time
    declared: float = 1.0
    exact: float = 0.15
    #: the true part of the others' declared times is uniform between this and 1
    accuracy: float = 0.05
    shape: Processors = field(default_factory=Processors)


def generate(model: Model, seed: int) -> Workload:
    """A workload, the same for the same model and seed. Each user has a queue."""
    random = np.random.default_rng(seed)
    processors = _sizes(random, model)
    run_time = _run_times(random, processors)
    span = float((processors * run_time).sum()) / (model.processors * model.load)
    arrival = _arrivals(random, model, span)
    gangs = {size: model.shape.gang(size) for size in np.unique(processors).tolist()}
    numbers = {size: number for number, size in enumerate(gangs)}
    users = [f"user-{number}" for number in range(model.users)]
    user = _users(random, model, processors, run_time)
    return Workload(
        arrival=arrival,
        run_time=run_time,
        declared=_declared(random, model, run_time),
        gang=np.array([numbers[size] for size in processors.tolist()], np.int32),
        queue=user,
        user=user,
        priority=np.zeros(model.jobs, np.int32),
        gangs=list(gangs.values()),
        queues=users,
        users=users,
    )


def _sizes(random: np.random.Generator, model: Model) -> npt.NDArray[np.int64]:
    """The processors of each job."""
    largest = model.largest or model.processors
    high = np.log2(largest)
    middle = max(high - _BELOW_HIGH, _LOW)
    small = random.random(model.jobs) < _MOSTLY_SMALL
    exponent = np.where(small, random.uniform(_LOW, middle, model.jobs), random.uniform(middle, high, model.jobs))
    kind = random.random(model.jobs)
    exponent = np.where(kind < _SERIAL + _POWER_OF_TWO, np.round(exponent), exponent)
    sizes = np.where(kind < _SERIAL, 1, np.round(2**exponent)).astype(np.int64)
    return np.minimum(sizes, largest)


def _run_times(random: np.random.Generator, processors: npt.NDArray[np.int64]) -> Seconds:
    short = random.random(len(processors)) < np.clip(_SHARE_OF_SHORT + _SHARE_SLOPE * processors, 0, 1)
    logarithm = np.where(short, random.gamma(*_SHORT, len(processors)), random.gamma(*_LONG, len(processors)))
    run_time: Seconds = np.maximum(np.round(np.exp(np.minimum(logarithm, _LONGEST))), 1.0)
    return run_time


def _arrivals(random: np.random.Generator, model: Model, span: float) -> Seconds:
    """Arrival times of jobs. Gaps are drawn in a time in which jobs arrive evenly, and taken to the clock's."""
    week = _week(model.weekend)
    passed = np.concatenate([[0.0], np.cumsum(week) * _BUCKET])
    weeks = int(np.ceil(span / passed[-1])) + 1
    even = np.concatenate([[0.0], (passed[1:] + passed[-1] * np.arange(weeks)[:, None]).ravel()])
    clock = np.arange(len(even)) * _BUCKET
    gaps = np.exp(np.minimum(random.gamma(*_GAP, model.jobs), _LONGEST_GAP))
    arrived = np.cumsum(gaps) - gaps[0]
    end = np.interp(span, clock, even)
    arrived *= end / arrived[-1] if arrived[-1] else 0.0
    moments: Seconds = np.floor(np.interp(arrived, even, clock))
    return moments


def _week(weekend: float) -> Floats:
    """Number of jobs that arrive in each half hour from Monday, 0:00, relative to the average."""
    # The share of a bucket is the mass of a gamma distribution around it: of a million samples, which is exact enough.
    samples = np.round(np.random.default_rng(0).gamma(*_DAY, 1_000_000)).astype(np.int64)
    inside = samples[(samples >= _DAY_BEGINS) & (samples < _DAY_BEGINS + _BUCKETS)] % _BUCKETS
    day = np.bincount(inside, minlength=_BUCKETS) + 1.0
    week = np.concatenate([day] * 5 + [day * weekend] * 2)
    relative: Floats = week / week.mean()
    return relative


def _users(random: np.random.Generator, model: Model, processors: npt.NDArray[np.int64], run_time: Seconds) -> Numbers:
    """The user of each job: users are the less busy the later they come, and like jobs near a size and a length.

    Taking jobs as they were drawn leaves the model's distributions as they are.
    """
    kinds = np.stack([np.log2(processors), np.log(run_time)], axis=1)
    kinds = (kinds - kinds.mean(axis=0)) / np.maximum(kinds.std(axis=0), 1e-9)
    liked = random.normal(size=(model.users, 2))
    busy = 1.0 / np.arange(1, model.users + 1)
    weights = busy * np.exp(-((kinds[:, None, :] - liked) ** 2).sum(axis=2) / 2) + 1e-12
    chosen = random.random((model.jobs, 1)) * weights.sum(axis=1, keepdims=True)
    user: Numbers = (np.cumsum(weights, axis=1) < chosen).sum(axis=1).astype(np.int32)
    return user


def _declared(random: np.random.Generator, model: Model, run_time: Seconds) -> Seconds:
    """Declared run times: mostly too long, and round numbers; jobs that run exactly as long are ended by them."""
    wanted = run_time / random.uniform(model.accuracy, 1.0, len(run_time))
    places = np.searchsorted(_ROUND * 60, wanted)
    rounded = np.where(places < len(_ROUND), (_ROUND * 60.0)[np.minimum(places, len(_ROUND) - 1)], wanted)
    declared = np.where(random.random(len(run_time)) < model.exact, run_time, rounded)
    return np.where(random.random(len(run_time)) < model.declared, declared, np.nan)
