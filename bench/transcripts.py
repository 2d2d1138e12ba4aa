"""Sample transcripts for the site: the reports of one test episode, with exact counts and as they were released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import pictures
from bench.data.crossing import committed
from bench.data.splits import hashed
from bench.data.streams import Streams
from bench.reports import text
from bench.run.cache import WorkFolder
from bench.traffic import EXPERTS, WINDOW_CHUNKS

DRAWN = "sumo_crossing"  # the dataset whose episodes can be drawn
MOMENTS = (0, 4, 9)  # windows whose first frame is shown


def samples(work: WorkFolder, stages: list[dict[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    """One episode of each report stage on a dataset that may be shown: caption, picture (None where nothing is drawn),
    rows {window, asked, original, released}. The episode is the first by the split's hash, the same for every method.
    """
    for record in stages:
        if record["kind"] != "report":
            continue
        streams = Streams(work.stage("streams", record["identity"]["inputs"]["streams"]))
        if streams.info["publishable"]:
            yield _sample(streams, work.stage("report", record["digest"]), folder)


def _sample(streams: Streams, report: Path, folder: Path) -> dict[str, Any]:
    test, ids = streams.test(), streams.info["ids"]
    able = [int(e) for e in test if streams.info["name"] != DRAWN or int(e) in committed.TRACKED]
    episode = min(able or test.tolist(), key=lambda e: hashed(ids[e]))
    truth = streams.truth(np.array([episode]))[0]  # (T, 12)
    asked, weight = streams.requests.expert[episode], streams.requests.priority[episode]
    fresh, said = np.zeros(len(EXPERTS)), _released(report, int(np.flatnonzero(test == episode)[0]))
    rows = [{"window": f"{t}:00 to {t + 1}:00", "asked": f"{EXPERTS[asked[t]].name}, priority {weight[t]}",
             "original": text(truth[t], fresh, fresh == 0), "released": said[t]} for t in range(len(truth))]
    picture = _picture(streams.info["name"], episode, folder)
    return {"caption": f"{streams.info['name']}, {ids[episode]}: one of the test episodes, first draw of the noise",
            "picture": picture, "moments": ", ".join(f"{t}:00" for t in MOMENTS), "rows": rows}


def _released(report: Path, position: int) -> list[str]:
    """The texts of one test episode, draw 0, window by window."""
    known = pq.read_table(report / "vault" / "idmap.parquet").to_pylist()
    name = next(r["id"] for r in known if r["episode"] == position)
    table = pq.read_table(report / "release" / "reports.parquet", columns=["id", "draw", "window", "text"])
    mine = [r for r in table.to_pylist() if r["id"] == name and r["draw"] == 0]
    return [r["text"] for r in sorted(mine, key=lambda r: r["window"])]


def _picture(dataset: str, episode: int, folder: Path) -> Path | None:
    """A few frames side by side, drawn once for all methods; None where nothing can be drawn."""
    if dataset != DRAWN:
        return None
    path = folder / f"crossing-{episode}.png"
    if not path.is_file():
        from bench.data.crossing.render import chunk  # opencv, which nothing else here needs

        pictures.write_strip(path, [chunk(episode, t * WINDOW_CHUNKS)[0] for t in MOMENTS])
    return path
