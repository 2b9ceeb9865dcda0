"""Repetition: small models loop under greedy decoding, and loops flatter every speculative method."""

NGRAM = 16


class LoopDetector:
    """Watches the output; `in_loop` is True while its last 16 tokens have been seen before."""

    def __init__(self):
        self._tail: list[int] = []
        self._seen: set[tuple[int, ...]] = set()
        self.in_loop = False

    def push(self, tokens: tuple[int, ...]) -> None:
        """Add committed tokens."""
        for token in tokens:
            self._tail = [*self._tail[-(NGRAM - 1) :], token]
            if len(self._tail) == NGRAM:
                ngram = tuple(self._tail)
                self.in_loop = ngram in self._seen
                self._seen.add(ngram)

    @classmethod
    def after(cls, output_ids: list[int]) -> "LoopDetector":
        """A detector that has watched some output."""
        detector = cls()
        detector.push(tuple(output_ids))
        return detector

    def copy(self) -> "LoopDetector":
        """An independent copy."""
        copy = LoopDetector()
        copy._tail, copy._seen, copy.in_loop = list(self._tail), set(self._seen), self.in_loop
        return copy


def tokens_before_loop(output_ids: list[int] | tuple[int, ...]) -> int:
    """Number of output tokens up to the first that completes a repeated 16-gram; all of them if none does."""
    detector = LoopDetector()
    for count, token in enumerate(output_ids):
        detector.push((token,))
        if detector.in_loop:
            return count
    return len(output_ids)
