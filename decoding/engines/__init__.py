"""Ways to run a model: the library's forward, our lean one, or static shapes that a GPU can replay as graphs."""

from decoding.engines.base import Engine, Forward, Visibility
from decoding.engines.choose import Made, make_engine

__all__ = ["Engine", "Forward", "Made", "Visibility", "make_engine"]
