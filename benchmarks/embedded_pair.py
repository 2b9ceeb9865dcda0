"""How good the embedded pair is on held-out text: losses, acceptance, calibration, loops, sizes and samples.

    python -m benchmarks.embedded_pair --corpus DIR --python-source
    python -m benchmarks.embedded_pair --corpus DIR --target out/target --draft out/draft --against embedded

The text that the pair was trained on is not part of the program: `--corpus` names it, and its held-out part is read.
Without it the sample prompts are read, which were written for this program and are in no training text.
"""

import argparse
import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.held_out import Figure, KindFigures, Reading, continuations, difference, kind_figures, pieces_of, read
from decoding.common.errors import run_main
from decoding.common.prompts import load_prompts
from decoding.experiments.command import arguments, pair_from, print_table, save_figures
from decoding.models.embedded import EMBEDDED_FOLDER
from decoding.models.pair import Pair, load_pair, release
from decoding.models.presets import EMBEDDED, PairSettings, add_pair_arguments, model_folder
from decoding.training.text import read_corpus

PIECES, QUICK_PIECES = 40, 3  # of each kind
PROMPT_TOKENS, NEW_TOKENS = 48, 160
SAMPLE_PROMPT_TOKENS = 24  # sample prompts are short
SHOWN_TOKENS = 60
SAMPLED_AT = 0.8
LOWER_IS_BETTER = ("nats_per_byte", "draft_nats_per_byte", "looping", "looping_tokens")
WORDS = {
    "nats_per_token": "nats/token", "nats_per_byte": "nats/byte", "draft_nats_per_byte": "draft nats/byte",
    "overlap": "overlap", "agreement": "greedy agreement", "looping": "looping texts",
    "looping_tokens": "looping tokens",
}  # fmt: skip
# What a figure is the ratio of, by piece.
RATIOS = {
    "nats_per_byte": "target_nats",
    "draft_nats_per_byte": "draft_nats",
    "overlap": "overlap",
    "agreement": "agrees",
}


@dataclass(frozen=True)
class KindMeasured:
    """One pair on all kinds of text."""

    pair: str
    kinds: tuple[KindFigures, ...]
    readings: dict[str, list[Reading]]
    greedy: dict[str, list[list[int]]]


def texts_of(args: argparse.Namespace) -> dict[str, list[str]]:
    """Pieces of held-out text by kind."""
    count = QUICK_PIECES if args.quick else args.pieces
    if args.corpus is not None:
        corpus = read_corpus(args.corpus, python_source=args.python_source)
        return {kind: pieces_of(texts, count) for kind, texts in corpus.held_out.items()}
    print("No --corpus DIR is given: these are the sample prompts, some hundred characters each; give the folder of "
          "the training text for figures on its held-out part.\n")  # fmt: skip
    by_kind: dict[str, list[str]] = {}
    for prompt in load_prompts(args.prompts):
        by_kind.setdefault(prompt.kind, []).append(prompt.text)
    return {kind: texts[:count] for kind, texts in by_kind.items()}


def measure(pair: Pair, texts: dict[str, list[str]], prompt_tokens: int, new_tokens: int) -> KindMeasured:
    """Every figure of a pair."""
    readings = {kind: [read(pair, text) for text in pieces] for kind, pieces in texts.items()}
    greedy = {kind: continuations(pair, pieces, prompt_tokens, new_tokens) for kind, pieces in texts.items()}
    kinds = tuple(kind_figures(kind, readings[kind], greedy[kind]) for kind in texts)
    return KindMeasured(pair.info.name, kinds, readings, greedy)


def print_figures(measured: KindMeasured) -> None:
    """Losses and acceptance by kind, then calibration by kind and rank."""
    print(f"{measured.pair}: 95% intervals over pieces of text")
    header = ("kind", *WORDS.values())
    print_table(header, [(kind.kind, *(getattr(kind, name) for name in WORDS)) for kind in measured.kinds])
    print("\nthe draft's n-th likeliest token: its probability / the target's / how often the target's likeliest (ECE)")
    rows = [
        (kind.kind, *(f"{rank.draft_chance:.3f}/{rank.target_chance:.3f}/{rank.hit_rate:.3f} "
                      f"({rank.calibration_error:.3f})" for rank in kind.ranks))
        for kind in measured.kinds
    ]  # fmt: skip
    print_table(("kind", *(f"rank {rank.rank}" for rank in measured.kinds[0].ranks)), rows)


def compared(measured: KindMeasured, other: KindMeasured) -> list[tuple[str, str, Figure]]:
    """What one pair has more than another, by kind and figure, on the same pieces."""
    found = []
    for kind in measured.readings:
        for name, field in RATIOS.items():
            figures = []
            for side in (measured.readings[kind], other.readings[kind]):
                sizes = [each.text_bytes if name.endswith("per_byte") else len(each.overlap) for each in side]
                figures += [np.array([getattr(each, field).sum() for each in side]), np.array(sizes)]
            found.append((kind, name, difference(*figures)))
        figures = [next(each for each in side.kinds if each.kind == kind).looping for side in (measured, other)]
        half = float(np.hypot(figures[0].half, figures[1].half))
        found.append((kind, "looping", Figure(figures[0].value - figures[1].value, half)))
    return found


def signed(found: Figure) -> str:
    """A difference with its interval."""
    return f"{found.value:+.4f}" + ("" if found.half is None else f"±{found.half:.4f}")


def verdict(name: str, found: Figure) -> str:
    """Whether a difference is for the better, beyond its interval."""
    if found.half is None or abs(found.value) <= found.half:
        return "no clear difference"
    return "better" if (found.value < 0) == (name in LOWER_IS_BETTER) else "WORSE"


def files_of(pair: Pair) -> list[dict[str, Any]]:
    """Weights of both models on disk: size and SHA-256."""
    found = []
    for role in ("target", "draft"):
        name = getattr(pair.settings, role)
        folder = EMBEDDED_FOLDER / role if name == EMBEDDED else model_folder(name, role)
        for file in sorted(folder.glob("*.safetensors*")) if folder is not None else ():
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            parameters = getattr(pair, role).info.parameters
            found.append({"role": role, "file": file.name, "bytes": len(content), "sha256": digest,
                          "parameters": parameters})  # fmt: skip
    return found


@torch.inference_mode()
def samples(
    pair: Pair, texts: dict[str, list[str]], measured: KindMeasured, prompt_tokens: int
) -> list[dict[str, str]]:
    """The first prompt of each kind with its greedy text, and one drawn at a temperature."""
    found = []
    for number, (kind, pieces) in enumerate(texts.items()):
        prompt = next(ids for ids in map(pair.vocabulary.encode, pieces) if len(ids) >= prompt_tokens)[:prompt_tokens]
        rows = torch.tensor([prompt], device=pair.target.device)
        torch.manual_seed(number)
        config = pair.generation_config(
            max_new_tokens=SHOWN_TOKENS, do_sample=True, temperature=SAMPLED_AT, top_k=0, top_p=1.0
        )
        drawn = pair.target.network.generate(rows, attention_mask=torch.ones_like(rows), generation_config=config)
        drawn_ids = drawn[0, prompt_tokens:].tolist()
        found.append({"kind": kind, "prompt": pair.vocabulary.decode(prompt),
                      "greedy": pair.vocabulary.decode(measured.greedy[kind][0][:SHOWN_TOKENS]),
                      "sampled": pair.vocabulary.decode(drawn_ids)})  # fmt: skip
    return found


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="the text that the pair was trained on")
    parser.add_argument(
        "--python-source", action="store_true", help="and the Python standard library as a kind of text"
    )
    parser.add_argument(
        "--against", metavar="PAIR", help="embedded, or a folder with target and draft, to compare with"
    )
    parser.add_argument("--pieces", type=int, default=PIECES, metavar="N", help="of text of each kind")
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, metavar="N", help="of each greedy continuation")
    args = parser.parse_args()
    texts = texts_of(args)
    prompt_tokens = PROMPT_TOKENS if args.corpus is not None else SAMPLE_PROMPT_TOKENS
    new_tokens = args.tokens // 4 if args.quick else args.tokens
    pair = pair_from(args)
    measured = measure(pair, texts, prompt_tokens, new_tokens)
    print_figures(measured)
    files = files_of(pair)
    print()
    print_table(("weights", "parameters", "MB", "SHA-256"), [
        (f"{file['role']}/{file['file']}", f"{file['parameters']:,}", f"{file['bytes'] / 1e6:.2f}", file["sha256"])
        for file in files
    ])  # fmt: skip
    shown = samples(pair, texts, measured, prompt_tokens)
    for sample in shown:
        print(f"\n{sample['kind']}: {sample['prompt']!r}")
        print(f"  greedy:  {sample['greedy']!r}\n  T = {SAMPLED_AT}: {sample['sampled']!r}")
    figures: dict[str, Any] = {"pair": measured.pair, "held_out": args.corpus is not None,
                               "kinds": [asdict(kind) for kind in measured.kinds], "files": files,
                               "samples": shown}  # fmt: skip
    device = pair.target.device
    if args.against is not None:
        release(pair)
        folder = Path(args.against).expanduser()
        roles = {role: args.against if args.against == EMBEDDED else str(folder / role) for role in ("target", "draft")}
        rival = load_pair(PairSettings(**roles, device=args.device, dtype=args.dtype))
        other = measure(rival, texts, prompt_tokens, new_tokens)
        print()
        print_figures(other)
        rows = [(kind, name, found, verdict(name, found)) for kind, name, found in compared(measured, other)]
        print(f"\n{measured.pair} less {other.pair}, on the same pieces")
        print_table(("kind", "figure", "difference", ""), [(k, WORDS[n], signed(f), v)
                                                           for k, n, f, v in rows])  # fmt: skip
        figures["against"] = {"pair": other.pair, "kinds": [asdict(kind) for kind in other.kinds],
                              "differences": [{"kind": k, "figure": n, **asdict(f), "verdict": v}
                                              for k, n, f, v in rows]}  # fmt: skip
    save_figures(args, "embedded_pair", figures, device)
    return 0


if __name__ == "__main__":
    run_main(main)
