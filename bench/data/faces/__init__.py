"""Procedural talking faces: numpy and OpenCV only, float32, seeded by name, with true flow and landmarks."""

from bench.data.faces.maker import EXPRESSIONS, FaceMaker, Truth

__all__ = ["EXPRESSIONS", "FaceMaker", "Truth"]
