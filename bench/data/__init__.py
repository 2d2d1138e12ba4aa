"""Datasets: one file per adapter, the split rule (splits.py) and the prepared folder (clips.py)."""
