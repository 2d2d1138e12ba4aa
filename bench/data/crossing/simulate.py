"""SUMO, through libsumo: one episode of the crossing as counts a frame and tracks of what is in view.

Two frames a second; the camera sees a square of 80 x 80 m. A vehicle moves above 0.5 m/s, a person walks above 0.2.
Needs the extra `traffic`; nothing else in the project does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.data.crossing.demand import EPISODE_S, SEED, WARMUP_S, routes
from bench.errors import EnvironmentFault

VERSION = "1.28.0"  # of SUMO; another one drives differently
NETWORK = Path(__file__).resolve().parent / "network" / "crossing.net.xml"
NETCONVERT = ("--crossings.guess", "--walkingareas", "--offset.disable-normalization", "--tls.default-type", "static",
              "--no-turnarounds")
STEP_S = 0.5
FRAMES = int(EPISODE_S / STEP_S)
HALF_M = 40.0  # half the side of what the camera sees
MOVING_M_S, WALKING_M_S = 0.5, 0.2
TRACK = ("frame", "object", "kind", "active", "x_dm", "y_dm", "angle")  # columns; kind 0 = vehicle, 1 = person


def library() -> Any:
    """The module libsumo. Raises EnvironmentFault when it is missing or another version."""
    try:
        import libsumo
    except ImportError:
        raise EnvironmentFault("libsumo is not installed.", "The crossing is simulated again by SUMO; its committed "
                               "counts need nothing.", "pip install 'veilbench[traffic]'") from None
    found = str(libsumo.simulation.getVersion()[1]).removeprefix("SUMO ").replace("v", "").replace("_", ".").strip()
    if found != VERSION:
        raise EnvironmentFault(f"SUMO is version {found}, the committed counts are of {VERSION}.",
                               "Another version drives differently.", f"pip install libsumo=={VERSION}")
    return libsumo


def run_episode(sumo: Any, episode: int) -> tuple[np.ndarray, np.ndarray]:
    """(counts uint8 (1200, 4): moving, stopped, walking, waiting; tracks int32 (n, 7), columns TRACK).

    Tracks are sorted by object, then frame.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "routes.xml"
        path.write_text(routes(episode), encoding="utf-8")
        sumo.start(["sumo", "-n", str(NETWORK), "-r", str(path), "--seed", str(SEED + episode), "--step-length",
                    str(STEP_S), "--no-step-log", "--no-warnings", "--time-to-teleport", "-1",
                    "--pedestrian.model", "striping", "--duration-log.disable"])
        try:
            for _ in range(int(WARMUP_S / STEP_S)):
                sumo.simulationStep()
            return _record(sumo)
        finally:
            sumo.close()


def _record(sumo: Any) -> tuple[np.ndarray, np.ndarray]:
    counts, rows = np.zeros((FRAMES, 4), np.uint8), []
    numbers: dict[str, int] = {}
    for frame in range(FRAMES):
        sumo.simulationStep()
        for kind, domain, least in ((0, sumo.vehicle, MOVING_M_S), (1, sumo.person, WALKING_M_S)):
            for name in domain.getIDList():
                x, y = domain.getPosition(name)
                if abs(x) < HALF_M and abs(y) < HALF_M:
                    active = int(domain.getSpeed(name) > least)
                    number = numbers.setdefault(f"{kind}{name}", len(numbers))
                    counts[frame, 2 * kind + 1 - active] += 1
                    rows.append((frame, number, kind, active, round(10 * x), round(10 * y),
                                 round(domain.getAngle(name)) % 360))
    tracks = np.array(rows, np.int32).reshape(-1, len(TRACK))
    return counts, tracks[np.lexsort((tracks[:, 0], tracks[:, 1]))]


def run_all(episodes: int, tracked: frozenset[int],
            report: Callable[[str], None]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Counts uint8 (episodes, 1200, 4) of every episode and the tracks of some."""
    sumo, counts, tracks = library(), [], {}
    for episode in range(episodes):
        counted, seen = run_episode(sumo, episode)
        counts.append(counted)
        if episode in tracked:
            tracks[episode] = seen
        if (episode + 1) % 20 == 0:
            report(f"{episode + 1}/{episodes} episodes")
    return np.stack(counts), tracks
