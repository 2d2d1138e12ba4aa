"""What a recovery attack has to beat: the same metric for two guesses that need no network, on the same clips.

`copied` takes the released clip itself, `mean_face` one picture for everybody: the mean of the development originals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench import stats
from bench.data.clips import Clips
from bench.errors import DataError
from bench.measures import Metric
from bench.nets.recovery import always, copied, mean_face
from bench.run.released import Released, cut, isolated, open_release
from bench.run.stages import Job
from bench.run.trials import mean_defined, number
from bench.types import Video

Floors = dict[str, dict[str, float | None]]


class Guesses:
    """The two guesses at each clip of a derived release, and what the metric says of them."""

    def __init__(self, job: Job, metric: Metric, clips: Sequence[Released]):
        source = Clips(job.inputs["clips"])
        self._face = mean_face(clip for row in source.rows("train") for clip in cut(source.video(row)))
        wanted = {(item.video, item.draw, max(item.clip, 0)) for item in clips}
        videos = {(video, draw) for video, draw, _ in wanted}
        files = [i for i in open_release(job.inputs["direct"], parts=("test",)) if (i.video, i.draw) in videos]
        self._released = {(item.video, item.draw, number): clip for item, number, clip in isolated(files)
                          if (item.video, item.draw, number) in wanted}
        self._metric = metric
        self._people: list[str] = []
        self._values: dict[str, list[float]] = {"recovered": [], "copied": [], "mean_face": []}

    def compare(self, item: Released, original: Video, recovered: float) -> None:
        """Note the values of one clip; `recovered` is the attack's, the mean over its frames."""
        clip = self._released.get((item.video, item.draw, max(item.clip, 0)))
        if clip is None or len(clip) != len(original):
            raise DataError(f"The release has no clip {item.clip} of a recovered video.",
                            "What was recovered is measured beside the clip that it was made from.",
                            "Run the recovery attack again.")
        self._people.append(item.person)
        self._values["recovered"].append(recovered)
        for name, guess in (("copied", copied(clip)), ("mean_face", always(self._face, original))):
            values = self._metric.function(original.as_float(), guess.as_float())
            self._values[name].append(mean_defined(np.asarray(values, dtype=float)))

    def floors(self) -> Floors:
        """{guess: its mean over people; and recovered - guess, paired over people, with its interval}."""
        found: Floors = {}
        own = np.array(self._values["recovered"])
        for name in ("copied", "mean_face"):
            guess = np.array(self._values[name])
            apart = stats.mean_interval((own - guess).tolist(), self._people)
            value = stats.mean_interval(guess.tolist(), self._people).value
            found[name] = {"value": number(value), "apart": number(apart.value), "lo": number(apart.lo),
                           "hi": number(apart.hi)}
        return found
