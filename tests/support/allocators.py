"""A caching allocator that searches every gap of every segment."""

from assay.cost.simulation.caching_allocator import SMALL_REQUEST, block_bytes, segment_bytes


class Slow:
    """Every segment as a list of pieces, searched from its beginning for the best gap."""

    def __init__(self) -> None:
        self.segments: list[tuple[bool, list[list[int]]]] = []
        """The pool of each segment, and its pieces: bytes, and the number of their request or −1."""

    def allocate(self, number: int, nbytes: int) -> None:
        size = block_bytes(nbytes)
        gaps = [
            (piece[0], segment, place)
            for segment, (small, pieces) in enumerate(self.segments)
            for place, piece in enumerate(pieces)
            if small == (size <= SMALL_REQUEST) and piece[1] == -1 and piece[0] >= size
        ]
        if gaps:
            _, segment, place = min(gaps)
        else:
            self.segments.append((size <= SMALL_REQUEST, [[segment_bytes(size), -1]]))
            segment, place = len(self.segments) - 1, 0
        small, pieces = self.segments[segment]
        rest = pieces[place][0] - size
        if (small and rest >= 512) or rest > SMALL_REQUEST:
            pieces[place : place + 1] = [[size, number], [rest, -1]]
        else:
            pieces[place][1] = number

    def release(self, number: int) -> None:
        for small, pieces in self.segments:
            if any(one == number for _, one in pieces):
                joined: list[list[int]] = []
                for size, one in pieces:
                    owner = -1 if one == number else one
                    if joined and joined[-1][1] == owner == -1:
                        joined[-1][0] += size
                    else:
                        joined.append([size, owner])
                self.segments[self.segments.index((small, pieces))] = (small, joined)
                return

    @property
    def reserved_bytes(self) -> int:
        return sum(size for _, pieces in self.segments for size, _ in pieces)
