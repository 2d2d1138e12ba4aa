"""Stage `score`: trials of all seeds of one row and plug-in become cells with intervals."""

from __future__ import annotations

import json

import numpy as np

from bench.run.cache import write_json
from bench.run.cells import measured_cells
from bench.run.stages import Job
from bench.run.trials import read_trials


def run_score(job: Job) -> None:
    """config: the row's key and columns; inputs: clips and one trials folder per seed."""
    parts = [read_trials(path / "trials.parquet") for name, path in sorted(job.inputs.items()) if name != "clips"]
    results = [json.loads((path / "result.json").read_text(encoding="utf-8"))
               for name, path in sorted(job.inputs.items()) if name != "clips"]
    trials = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    info = json.loads((job.inputs["clips"] / "dataset.json").read_text(encoding="utf-8"))
    write_json(job.out / "cells.json", measured_cells(job.config, trials, results[0], info["split"]))
