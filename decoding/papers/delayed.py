"""Dynamic delayed tree expansion: verifiers on i.i.d. paths (Tables 2 and 3), each with its best K and L."""

from decoding.papers.exhibit import PER_PASS, THROUGHPUT, Exhibit, Figure, Ordering, Way

PAPER = "Delayed tree expansion"
PROTOCOL = "means over three pairs, five data sets and eight samplings on H100s; K and L the best for each verifier"
# Tokens per pass and tokens per second, averages over the three pairs.
VERIFIERS = {
    "nss": ("NSS", 4.05, 11.91), "naive_tree": ("NaiveTree", 4.50, 13.29), "specinfer": ("SpecInfer", 4.58, 13.55),
    "spectr": ("SpecTr", 4.61, 13.32), "khisti": ("Khisti", 4.41, 12.75), "traversal": ("Traversal", 5.31, 15.89),
}  # fmt: skip
BEST_OF = ("settings.paths", "settings.length")
PAIRS = (("Traversal", "SpecTr"), ("Traversal", "SpecInfer"), ("SpecTr", "NSS"), ("SpecInfer", "NaiveTree"))


def _table(number: int, title: str, figure: Figure, place: int) -> Exhibit:
    return Exhibit(
        f"delayed/table-{number}", PAPER, f"Table {number}: {title} of the verifiers", "delayed_expansion", PROTOCOL,
        (figure,),
        tuple(Way(entry[0], f"iid_paths:verifier={name}", {figure.column: entry[place]}, BEST_OF)
              for name, entry in VERIFIERS.items()),
        tuple(Ordering(better, worse, figure) for better, worse in PAIRS),
    )  # fmt: skip


EXHIBITS = (_table(2, "tokens per pass", PER_PASS, 1), _table(3, "throughput", THROUGHPUT, 2))
