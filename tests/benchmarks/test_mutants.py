"""Mutants: an expression is found, noted or changed in its own place, whatever stands around it."""

import ast

from benchmarks.mutants import mutants, put

SOURCE = '''"""ä, two bytes."""
def shown(a):
    return f"{a + 1} ä"
def far(a, b):
    more = "ä" if (a
        < b) else "o"
    return more
class Kind:
    def sum(self, a, b): return "ä", (a + b) * 2
'''


def values(text: str) -> tuple:
    space: dict = {}
    exec(text, space)
    return space["shown"](1), space["far"](1, 1), space["far"](1, 2), space["Kind"]().sum(2, 3)


def test_expressions_are_noted_without_changing_what_they_give_and_mutants_change_one(tmp_path):
    folder = tmp_path / "decoding"
    folder.mkdir()
    (folder / "one.py").write_text(SOURCE, encoding="utf-8")
    found = mutants(folder, 50, seed=1)
    assert {each.function for each in found} == {"far", "Kind.sum"}, "what stands in an f-string is left alone"
    sound = values(SOURCE)
    noted = {each.place: f"(seen.append({number}) or ({{}}))" for number, each in enumerate(found)}
    put(tmp_path, "decoding/one.py", noted)
    text = (folder / "one.py").read_text(encoding="utf-8")
    space: dict = {"seen": []}
    exec(text, space)
    assert (space["far"](1, 1), space["far"](1, 2), space["Kind"]().sum(2, 3)) == sound[1:]
    assert sorted(set(space["seen"])) == [0, 1]
    for each in found:
        (folder / "one.py").write_text(SOURCE, encoding="utf-8")
        put(tmp_path, "decoding/one.py", {each.place: f"({each.after})"})
        changed = (folder / "one.py").read_text(encoding="utf-8")
        ast.parse(changed)
        assert values(changed) != sound
