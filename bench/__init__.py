"""Veilbench: the names that a plug-in author may import. Importing this package does not import torch."""

from bench.errors import ConfigError, DataError, Diverged, PluginError, UserError
from bench.privacy.claims import FullClaim, LabelClaim, PixelsClaim
from bench.privacy.contract import Branch, Plan, PrivateMethod
from bench.registry import attack, dataset, method, metric
from bench.types import (
    CLIP_FRAMES,
    NO_CLAIM,
    Anonymizer,
    Attack,
    Claim,
    Column,
    Compare,
    Context,
    Dataset,
    Evaluator,
    Identify,
    Method,
    Metric,
    Noise,
    Prepared,
    Sample,
    Source,
    ThreatModel,
    Video,
)

__version__ = "0.1.0"

__all__ = [
    "CLIP_FRAMES", "NO_CLAIM", "Anonymizer", "Attack", "Branch", "Claim", "Column", "Compare", "ConfigError",
    "Context", "DataError", "Dataset", "Diverged", "Evaluator", "FullClaim", "Identify", "LabelClaim", "Method",
    "Metric", "Noise", "PixelsClaim", "Plan", "PluginError", "Prepared", "PrivateMethod", "Sample", "Source",
    "ThreatModel", "UserError", "Video", "attack", "dataset", "method", "metric",
]
