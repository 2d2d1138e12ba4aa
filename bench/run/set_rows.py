"""The stages that compute features for distances of sets, planned so that equal ones are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench import registry
from bench.registry import Spec
from bench.run.stages import Stage

if TYPE_CHECKING:
    from bench.run.rows import Builder, Road


def features(builder: Builder, metric: Spec, road: Road) -> dict[str, Stage]:
    """What a distance of sets compares: features of the release, of the originals, and behind a recovery those of the
    direct release. Metrics with the same `embeds_like` and budget share them, and so do all methods the originals.
    """
    plugin = registry.get("metrics", metric.name)
    name = plugin.embeds_like or metric.name
    assets = builder.assets(registry.get("metrics", name), metric.variant)
    config = {"metric": name, "variant": metric.variant, "budget": builder.suite.budget_of(str(metric)),
              "profile": builder.suite.profile, "seed": builder.suite.data_seed}

    def embedded(what: str, inputs: Mapping[str, Stage]) -> Stage:
        title = f"embed {Spec(name, metric.variant)} on {what}"
        return builder.stage("embed", title, config, {**inputs, **assets}, (("metrics", name),))

    found = {"features": embedded(road.name, {"release": road.assembled}),
             "originals": embedded("originals", {"clips": builder.clips})}
    if road.behind and plugin.recovered_columns:
        found["direct"] = embedded(str(road.method), {"release": road.direct or road.assembled})
    return found
