"""Veilbench: the names that a plug-in author may import. Importing this package does not import torch."""

from bench.diagnostics import (
    Anatomy,
    Assignments,
    Diagnostic,
    Labelled,
    Opened,
    Probe,
    Repeat,
    Reread,
    told_apart,
)
from bench.errors import ConfigError, DataError, Diverged, PluginError, UserError
from bench.measures import (
    Attack,
    Column,
    Compare,
    Evaluator,
    Identify,
    Match,
    Metric,
    Noise,
    Pair,
    Recover,
    SetMetric,
    ThreatModel,
    VideoMetric,
    column_key,
)
from bench.privacy.claims import EventClaim, FullClaim, LabelClaim, PixelsClaim
from bench.privacy.contract import Branch, Plan, PrivateMethod
from bench.registry import attack, dataset, method, metric
from bench.report_measures import ReportMetric, Reports, Stream
from bench.types import (
    CLIP_FRAMES,
    NO_CLAIM,
    Anonymizer,
    Claim,
    Context,
    Dataset,
    Method,
    Prepared,
    Sample,
    Source,
    Video,
)

__version__ = "0.1.0"

__all__ = [
    "CLIP_FRAMES", "NO_CLAIM", "Anatomy", "Anonymizer", "Assignments", "Attack", "Branch", "Claim", "Column",
    "Compare", "ConfigError", "Context", "DataError", "Dataset", "Diagnostic", "Diverged", "Evaluator", "EventClaim",
    "FullClaim", "Identify", "LabelClaim", "Labelled", "Match", "Method", "Metric", "Noise", "Opened", "Pair",
    "PixelsClaim", "Plan", "PluginError", "Prepared", "PrivateMethod", "Probe", "Recover", "Repeat", "ReportMetric",
    "Reports", "Reread", "Sample", "SetMetric", "Source", "Stream", "ThreatModel", "UserError", "Video",
    "VideoMetric", "attack", "column_key", "dataset", "method", "metric", "told_apart",
]
