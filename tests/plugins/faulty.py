"""A method that breaks its contract in the way its variant says."""

import os
import sys
import time

import numpy as np

from bench import Anonymizer, Video, method

FAULTS = ("raises", "nan", "shape", "length", "none", "array", "fps", "writes", "prints", "hangs", "dies", "exits",
          "killed", "late", "asks", "slow", "subprocess")


@method("faulty")
class Faulty(Anonymizer):
    """Each variant is one fault of a release, but for `prints`, which is none: what it prints goes to the log."""

    variants = {fault: {"fault": fault} for fault in FAULTS}

    def __init__(self, *, fault: str = "prints"):
        self.fault = fault

    def release(self, video, rng):
        return getattr(self, f"_{self.fault}")(video)

    def _raises(self, video):
        raise ZeroDivisionError("the sum of nothing")

    def _nan(self, video):
        return Video(np.full(video.frames.shape, np.nan), video.fps)

    def _shape(self, video):
        return Video(video.frames[:, 1:], video.fps)

    def _length(self, video):
        return Video(video.frames[1:], video.fps)

    def _none(self, video):
        return None

    def _array(self, video):
        return video.frames

    def _fps(self, video):
        return Video(video.frames, video.fps + 5)

    def _writes(self, video):
        video.frames[:] = 0
        return video

    def _prints(self, video):
        print("spoken by the method")
        os.write(1, b"written past Python\n")
        sys.stdout.write('{"arrays": []}')
        return Video(255 - video.frames, video.fps)

    def _hangs(self, video):
        while True:
            time.sleep(0.05)

    def _dies(self, video):
        os._exit(7)

    def _exits(self, video):
        sys.exit(3)

    def _killed(self, video):
        os.kill(os.getpid(), 9)

    def _late(self, video):
        import no_such_package_anywhere  # noqa: F401

    def _asks(self, video):
        return Video(np.full_like(video.frames, len(input("your name? "))), video.fps)

    def _slow(self, video):
        time.sleep(0.2)
        return Video(video.frames.copy(), video.fps)

    def _subprocess(self, video):
        import subprocess

        subprocess.run(["sleep", "600"], check=False)
