"""The crossing as a camera sees it: rendered episodes, read by vision experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from bench import DataError, dataset, seeds
from bench.data.camera.experts import EMPTY_FRAMES, Camera, read_chunk
from bench.data.crossing import committed, render
from bench.data.crossing.demand import SEED
from bench.data.crossing.labels import chain, one_hot
from bench.data.streams import StreamDataset, Table
from bench.traffic import CHUNK_FRAMES, EXPERTS

PERSON_PX, VEHICLE_PX = 11.0, 134.0  # areas, measured on public episodes
_BOARD_PX = (6, 48, 29, 25)  # left, top, width, height: where the sign stands


@dataset("crossing_video")
class CrossingVideo(StreamDataset):
    """Pictures instead of fields: the 24 episodes of `sumo_crossing` whose tracks are committed, drawn at 320 x 240
    pixels and two frames a second, 4 public and 20 test ones, and what vision experts read in them, chunk by chunk.
    Reports are compared with the exact counts. The scenes are easy, seen from above, flat colours, nothing hides
    anything: errors of the experts are a lower bound. Drawing and reading takes some minutes.
    """

    title: ClassVar[str] = "The simulated crossing, rendered: 20 test episodes"
    licence: ClassVar[str] = "Apache-2.0"
    publishable: ClassVar[bool] = True
    episodes: ClassVar[tuple[int, ...]] = committed.TRACKED

    def table(self, root: Path | None, report: Callable[[str], None]) -> Table:
        """All episodes; reads no folder."""
        if root is not None:
            raise DataError(f"{self.name} reads no folder.", "It is drawn from committed tracks.", "Leave out --root.")
        seen, failed = [], 0
        for episode in self.episodes:
            chunks = len(exact(episode))
            readings = [read_chunk(render.chunk(episode, k), camera()) for k in range(chunks)]
            seen.append(np.stack([r.steps for r in readings]))
            failed += sum(bool(r.failed) for r in readings)
            report(f"episode {episode}: {chunks} chunks read")
        notes = (f"Experts failed in {failed} chunks; they count as nothing seen.",) if failed else ()
        return Table(tuple(f"episode{e:03d}" for e in self.episodes), np.stack(seen),
                     np.array(self.episodes) < committed.PUBLIC,
                     truth=np.stack([exact(e) for e in self.episodes]), notes=notes)


@cache
def camera() -> Camera:
    """The rendered crossing's camera, from public pictures: the empty street, and the board in each state."""
    left, top, wide, high = _BOARD_PX
    rng, nobody = seeds.derive(SEED, "crossing_video", "boards"), np.zeros((0, 7), int)
    boards = {state: render.draw(nobody, state, "clear", rng, noise=False)[top:top + high, left:left + wide]
              for state in EXPERTS[2].components}
    side = render.HEIGHT
    return Camera(render.empty_frames(EMPTY_FRAMES), person_px=(PERSON_PX,) * 2, vehicle_px=(VEHICLE_PX,) * 2,
                  boards=boards, board_px=(left, top), view_px=((render.WIDTH - side) // 2, 0, side, side))


def exact(episode: int) -> np.ndarray:
    """Exact steps int16 (chunks, 12) of an episode."""
    counts = committed.counts()[episode].reshape(-1, CHUNK_FRAMES, 4).sum(axis=1, dtype=np.int16)
    states = [one_hot(chain(name, episode)) * np.int16(CHUNK_FRAMES) for name in ("signs", "environment")]
    return np.concatenate([counts, *states], axis=1)
