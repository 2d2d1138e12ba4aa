"""Plan, run and remember stages: plan.py, stages.py, cache.py, workers.py, executors.py."""
