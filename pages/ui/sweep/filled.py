"""The form of a sweep filled from a measurement: its best method, prompts and sampling, one click before the start."""

import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import DraftscopeError, require
from decoding.common.files import disk_errors, user_folder, write_whole
from pages.ui import PAGES
from pages.ui.common.errors import show_error
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice, Run
from pages.ui.jobs import FORM
from pages.ui.sweep.form import FOLDER, OWN, SWEEP, proposed_values
from pages.ui.sweep.view import PAGE
from pages.ui.widgets.contestants import add_slot
from pages.ui.widgets.controls import set_method, setting_key
from pages.ui.widgets.prompts import prompt_of

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling

VARIED = 2  # settings, each with three values: more would take long
REPEATS = 3
ADVICE = "set XDG_CACHE_HOME to another folder"


def fill(method: "Method", prompts: Sequence[PromptChoice], sampling: "Sampling", new_tokens: int) -> None:
    """Put a measured method and all it ran with into the widgets of the form, and select the form.

    Its first whole numbers vary around their values. Call it before they are drawn.

    Raises:
        DraftscopeError: the prompts cannot be written, or a sweep would decode others.
    """
    from decoding.methods.method import fitted

    require(
        not manager().settings.chat or all(each.chat for each in prompts),
        "A sweep puts every prompt through the chat template of this pair, but not every prompt here went through it: "
        "start again with the chat template on, then open the sweep.",
    )
    require(
        all(each.text == each.text.strip() for each in prompts),
        "A sweep reads prompts without white space around them, and one here begins or ends with some: remove it, "
        "start again, then open the sweep.",
    )
    method, state = fitted(method, sampling), st.session_state
    state[f"{SWEEP.name}_slots"] = []
    key = add_slot(SWEEP, method.name)
    set_method(key, method)
    state[setting_key(key, method.name, "verifier")] = method.verifier.name
    numbers = {name: value for name, value in method.settings().items() if type(value) is int}
    varied = dict(islice(numbers.items(), VARIED))
    state[f"{key}_{method.name}_varied"] = list(varied)
    for name, value in varied.items():
        state[f"{key}_{method.name}_{name}_values"] = proposed_values(method.infos[name], value)
    plan = {
        "kind": OWN, "plan_source": FOLDER, "plan_folder": str(_written(prompts)), "plan_count": len(prompts),
        "plan_new_tokens": str(new_tokens), "plan_max_tokens": "0", "plan_repeats": REPEATS, "plan_name": "",
        "plan_reference": "autoregressive", "plan_ignore_end": False, "plan_skip": True,
        "plan_temperature": f"{sampling.temperature:g}", "plan_top_p": f"{sampling.top_p:g}",
        "plan_draft_temperature": f"{sampling.draft_temperature:g}", "plan_seeds": str(sampling.seed),
    }  # fmt: skip
    state.update({f"{SWEEP.name}_{name}": value for name, value in plan.items()})
    PAGE.look_at(FORM)


def open_filled(method: "Method", prompts: Sequence[PromptChoice], sampling: "Sampling", new_tokens: int) -> None:
    """Open the filled form, or say why its prompts cannot be written."""
    try:
        fill(method, prompts, sampling, new_tokens)
    except DraftscopeError as error:
        show_error(error)
    else:
        st.switch_page(PAGES["Sweep"], query_params={})


def open_for_run(run: Run) -> None:
    """Open the form filled with what a run was decoded with."""
    from decoding.replay.stored_state import method_of, sampling_of

    trace = run.trace
    prompt = prompt_of(trace) if run.asked is None else run.asked.prompt
    open_filled(method_of(trace), [prompt], sampling_of(trace), trace.max_new_tokens)


def _written(prompts: Sequence[PromptChoice]) -> Path:
    """The folder with these prompts as files, which is how the process of a sweep reads them."""
    whole = "\0".join(part for each in prompts for part in (each.name, each.text)).encode()
    home = user_folder("prompts")
    with disk_errors(home, ADVICE):
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)  # readable by the user alone, as kept runs are
    folder = home / sha256(whole).hexdigest()[:12]
    for number, each in enumerate(prompts, start=1):
        # A text of one's own is named by how it begins, and may come with an address: its name must lead nowhere.
        kind, name = (re.sub(r"\W+", "_", part)[:60] for part in each.name.rpartition("/")[::2])
        file = folder / (kind or name) / f"{name}_{number}.txt"
        write_whole(file, each.text.encode(), ADVICE)
    return folder
