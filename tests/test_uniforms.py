"""Uniform numbers: bit for bit those of one generator of PyTorch, however many are asked for at once."""

import pytest
import torch

from decoding.recorded import recorded_run
from decoding.sampling.draws import GeneratorDraws, Uniforms

SEEDS = (0, 1, 5489, 2**31, 2**32 - 1, 2**32, 2**40 + 12345, 2**63 - 1)
COUNTS = (*range(1, 40), 63, 64, 65, 311, 312, 313, 624, 1, 4097, 2, 30000, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_they_are_those_of_one_generator_read_in_pieces(seed):
    generator, numbers, place = torch.Generator().manual_seed(seed), Uniforms(seed), 0
    for count in COUNTS:
        assert numbers.read(place, count) == torch.rand(count, generator=generator, dtype=torch.float64).tolist()
        place += count


def test_a_place_is_found_again():
    numbers = Uniforms(3)
    far = numbers.read(5000, 3)
    assert numbers.read(0, 5003)[5000:] == far == Uniforms(3).read(0, 6000)[5000:5003]


def test_a_recorded_run_was_drawn_with_them():
    run = recorded_run("sampled")
    recorded = [draw.uniform for iteration in run.iterations for draw in iteration.draws]
    draws = GeneratorDraws(run.sampling.seed)
    for _ in recorded:
        draws.accept(0.5)
    assert len(recorded) > 100
    assert [draw.uniform for draw in draws.record] == recorded


def test_a_copy_goes_on_further_on():
    draws = GeneratorDraws(7)
    draws.accept(0.5)
    copy = draws.fork(2)
    draws.choose_each(torch.ones(2, 1))
    draws.accept(0.5)
    copy.accept(0.5)
    assert [draw.uniform for draw in copy.record] == [draws.last_uniform], "its record begins empty"
