"""Shared torch architectures and the one training loop. Owners of timm (image.py) and pytorchvideo (video.py)."""
