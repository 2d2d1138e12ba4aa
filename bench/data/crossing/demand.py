"""Who drives and walks in one episode: departures drawn from a rate per minute, as SUMO reads them.

Rates are log-normal between episodes, and drift from minute to minute within one. All of it follows from the
dataset's seed and the number of the episode.
"""

from __future__ import annotations

import numpy as np

from bench import seeds

SEED = 42
WARMUP_S, EPISODE_S = 120, 600
ARMS = ("n", "e", "s", "w")  # clockwise
VEHICLES_PER_HOUR, PEOPLE_PER_HOUR = 330.0, 50.0  # medians over episodes, per arm
_SPREAD, _DRIFT, _STAY = 0.5, 0.35, 0.7  # log sd between episodes, log sd and lag-1 correlation within one
_TURNS = (0.25, 0.5, 0.25)  # to the next arm clockwise (left), straight on, to the next arm the other way
_REACH_M = 80.0  # people start and end within this distance of the middle


def routes(episode: int) -> str:
    """The route file of an episode: vehicles and people with departure times, sorted."""
    rng = seeds.derive(SEED, "sumo_crossing", "demand", episode)
    lines = [*_vehicles(rng), *_people(rng)]
    body = "\n".join(line for _, line in sorted(lines))
    return f'<routes>\n<vType id="car" vClass="passenger" sigma="0.5"/>\n{body}\n</routes>\n'


def _departures(rng: np.random.Generator, per_hour: float) -> np.ndarray:
    """Departure times in seconds, a Poisson number in each minute, in tenths."""
    minutes = (WARMUP_S + EPISODE_S) // 60
    drift, level = np.zeros(minutes), 0.0
    for minute in range(minutes):
        level = _STAY * level + np.sqrt(1 - _STAY**2) * _DRIFT * rng.standard_normal()
        drift[minute] = level
    counts = rng.poisson(per_hour / 60.0 * np.exp(drift))
    return np.concatenate([np.sort(rng.integers(0, 600, n)) / 10.0 + 60.0 * m for m, n in enumerate(counts)])


def _vehicles(rng: np.random.Generator) -> list[tuple[float, str]]:
    """Cars from each arm, each with its turn."""
    scale, lines = np.exp(_SPREAD * rng.standard_normal()), []
    for arm, name in enumerate(ARMS):
        for number, time in enumerate(_departures(rng, VEHICLES_PER_HOUR * scale)):
            target = ARMS[(arm + 1 + int(rng.choice(3, p=_TURNS))) % 4]
            lines.append((float(time), f'<vehicle id="{name}{number}" type="car" depart="{time:.1f}" '
                          f'departLane="best" departSpeed="max"><route edges="{name}_in {target}_out"/></vehicle>'))
    return lines


def _people(rng: np.random.Generator) -> list[tuple[float, str]]:
    """People who walk along the sidewalks and across, from one arm to another."""
    scale, lines = np.exp(_SPREAD * rng.standard_normal()), []
    for arm, name in enumerate(ARMS):
        for number, time in enumerate(_departures(rng, PEOPLE_PER_HOUR * scale)):
            target = ARMS[(arm + 1 + int(rng.integers(3))) % 4]
            side, end = ("in", "out")[int(rng.integers(2))], ("in", "out")[int(rng.integers(2))]
            start, stop = rng.uniform(15.0, _REACH_M, 2)
            lines.append((float(time), f'<person id="p{name}{number}" depart="{time:.1f}" '
                          f'departPos="{_along(side, start):.1f}"><walk from="{name}_{side}" to="{target}_{end}" '
                          f'arrivalPos="{_along(end, stop):.1f}"/></person>'))
    return lines


def _along(side: str, metres: float) -> float:
    """Position on an edge, so many metres from the crossing: from its end on the way in, from its start out."""
    return -metres if side == "in" else metres
