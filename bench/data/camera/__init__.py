"""What a fixed camera sees, counted by experts that look at one chunk each: pictures of a user's own, and drawn ones.

    experts.py   background, components, people, weather, signs of one chunk; the owner of OpenCV's detectors
    chunks.py    a video file as chunks of four frames, two a second, one at a time
    folder.py    a camera's folder: videos, public pictures, camera.toml, counts
"""
