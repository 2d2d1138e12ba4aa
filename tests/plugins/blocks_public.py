"""Other videos of the same twelve colours under other names, for shared networks."""

from bench import dataset, registry


@dataset("blocks_public")
class BlocksPublic(registry.get("datasets", "blocks")):
    """As `blocks`, with people who occur in no split."""

    title = "Blocks for shared networks (made)"
    people = tuple(f"public-{i:02d}" for i in range(12))
    takes = 2

    def _takes(self, position):
        return self.takes
