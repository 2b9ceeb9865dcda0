"""`python -m decoding.record_race`: measure the race that comes with the program, on a machine that does nothing else.

Every method runs alone, in turn with the others within each repeat; what is written is each one's median repeat.
"""

from decoding.common.prompts import load_prompts
from decoding.compare.comparison import compare
from decoding.compare.contestants import parse_contestant
from decoding.compare.scoreboard import score
from decoding.models.pair import embedded_pair
from decoding.recorded import FOLDER, RACE_PROMPT, RACE_REPEATS, RACE_TOKENS, RACE_WARMUP, RACERS
from decoding.trace.archive import save_run


def main() -> None:
    """Measure, write, and print what was written."""
    pair = embedded_pair()
    text = next(prompt.text for prompt in load_prompts() if f"{prompt.kind}/{prompt.name}" == RACE_PROMPT)
    contestants = [parse_contestant(racer) for racer in RACERS.values()]
    prompts = [(RACE_PROMPT, pair.vocabulary.encode(text))]
    comparison = compare(pair, contestants, prompts, RACE_TOKENS, RACE_REPEATS, RACE_WARMUP)
    assert not comparison.differences, "the outputs differ"
    for name, entry in zip(RACERS, score(comparison, loop_free=False), strict=True):
        save_run(entry.run, FOLDER / name)
        speed = entry.spread_of("throughput")
        print(
            f"{name}: {entry.contestant.label}, {entry.new_tokens} tokens, {entry.typical.wall_s * 1e3:.1f} ms, median "
            f"{speed.median:.1f} tokens/s (quartiles {speed.low:.1f} to {speed.high:.1f})"
        )


if __name__ == "__main__":
    main()
