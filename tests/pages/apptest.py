"""What the page tests share: open a page of the app, wait for its job."""

from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from pages.ui.widgets.contestants import ContestantForm

ROOT = Path(__file__).resolve().parents[2]
# Popovers whose contents are drawn only while they are open.
PLANS = (f"{name}_{part}_open" for name in ("compare", "race") for part in ("prompt", "plan", "sampling"))
POPOVERS = ("prompt_open", "method_open", "what_if_editor", *PLANS)

# Every app of a test looks through all installed packages for components: they stay what they are.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


class App(AppTest):
    """The app with the popovers of settings open: these tests do not keep them so from one drawing to the next."""

    def _run(self, *args: Any, **kwargs: Any) -> AppTest:
        for key in POPOVERS:
            self.session_state[key] = True
        return super()._run(*args, **kwargs)


def open_page(page: str | None = None, app: type[AppTest] = App) -> AppTest:
    """The app on a page such as `pages/step_through.py` (None: Home), drawn once."""
    at = app(str(ROOT / "app.py"), default_timeout=30)
    if page is not None:
        at.switch_page(page)
    return at.run()


def open_field(field: ContestantForm, *names: str, max_new_tokens: int, app: type[AppTest] = App, **state) -> AppTest:
    """Compare or Race with a short plan, and these contestants if any are given."""
    at = open_page(f"pages/{field.name}.py", app)
    plan = {"max_new_tokens": max_new_tokens, f"{field.name}_repeats": 1, f"{field.name}_warmup": 0}
    keys = [f"{field.slot}_{90 + number}" for number in range(len(names))]
    chosen = {f"{field.name}_slots": keys, **dict(zip(keys, names, strict=True))} if names else {}
    for key, value in (plan | chosen | state).items():
        at.session_state[key] = value
    return at.run()


def press_start(at: AppTest, slot: str) -> AppTest:
    """Start the job of a page with a slot of that name, and wait for it."""
    at.button(key=f"{slot}_start").click().run()
    return finish(at, slot)


def finish(at: AppTest, slot: str) -> AppTest:
    """Wait until a slot's job has ended and draw the page again; fragments never poll in these tests."""
    assert at.session_state[f"job_{slot}"].wait(90), "the job does not end"
    return at.run()


def sentences(at: AppTest) -> list[str]:
    """The errors on screen, without the escapes that keep Markdown quiet."""
    assert not at.exception, at.exception[0].message
    return [element.value.replace("\\", "") for element in at.error]
