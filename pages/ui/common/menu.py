"""The pages by their titles in the menu, and the files that draw them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES: dict[str, str] = {
    "Home": "app.py",
    "Learn": "pages/learn.py",
    "Step through": "pages/step_through.py",
    "What if": "pages/what_if.py",
    "Tune live": "pages/tune_live.py",
    "Verifiers": "pages/verifiers.py",
    "Compare": "pages/compare.py",
    "Race": "pages/race.py",
    "Train": "pages/train.py",
    "Sweep": "pages/sweep.py",
    "Papers": "pages/papers.py",
}
LAB = ("Train", "Sweep", "Papers")  # behind one button: the menu stays in one line at 1280 pixels
