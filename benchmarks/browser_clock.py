"""The clock of the browser: from an input event to the frame in which a scope shows the answer."""

from collections.abc import Callable

from benchmarks.browser_app import SETTLED

# Components stand in shadow roots; the watcher looks into them in every frame until the condition holds, and walks
# through no drawing, which would take much of the frame that it times.
WATCHER = """
() => {
  const roots = () => [...document.querySelectorAll('*')].flatMap(host =>
    host.shadowRoot ? [...host.shadowRoot.querySelectorAll('.ds-root')] : []);
  window.scopeState = () => roots().map(r =>
    [location.pathname, r.dataset.drawnScene, r.dataset.phase, r.dataset.selected, r.dataset.hovered || ''].join(' '));
  window.arm = kinds => {
    const before = window.scopeState().join('|');
    window.timing = null;
    let started = null;
    const begin = event => { if (started === null) started = performance.now(); };
    for (const kind of kinds) window.addEventListener(kind, begin, {capture: true, once: true});
    const look = () => {
      const now = window.scopeState();
      if (started !== null && now.length && now.join('|') !== before && !now.join(' ').includes('undefined')) {
        requestAnimationFrame(() => { window.timing = performance.now() - started; });
      } else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  };
}
"""

# Centres of node marks inside the tree panel, far enough apart that a click cannot hit a neighbour.
NODE_PLACES = """
() => {
  const places = [];
  const walk = node => {
    for (const child of node.querySelectorAll('*')) {
      if (child.shadowRoot) walk(child.shadowRoot);
      const id = Number(child.dataset && child.dataset.node);
      const root = child.closest('.ds-root');
      // Neither folded nodes, which open instead, nor the final token, nor what is selected already.
      if (child.matches('.tree g.n[data-node]') && id >= 0 && String(id) !== root.dataset.selected) {
        const panel = child.closest('svg').getBoundingClientRect();
        const mark = (child.querySelector('circle, path, rect') || child).getBoundingClientRect();
        const [x, y] = [mark.x + mark.width / 2, mark.y + mark.height / 2];
        const inside = x > panel.left + 8 && x < panel.right - 8 && y > panel.top + 30 && y < panel.bottom - 40;
        if (inside && places.every(([a, b]) => Math.hypot(a - x, b - y) > 24)) places.push([x, y]);
      }
    }
  };
  walk(document);
  return places;
}
"""


def timed(page, act: Callable[[], None], kinds: tuple[str, ...] = ("keydown", "pointerdown")) -> float:
    """Milliseconds from the input of one of these kinds that `act` makes to the frame that shows its answer."""
    page.evaluate("kinds => window.arm(kinds)", list(kinds))
    act()
    page.wait_for_function("() => window.timing !== null", timeout=30_000)
    value = page.evaluate("() => window.timing")
    page.wait_for_selector(SETTLED)
    return value


def open_page(browser, url: str, path: str):
    """A fresh page of the app with the watcher in it."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(url + path)
    page.wait_for_selector(SETTLED, timeout=60_000)
    page.evaluate(WATCHER)
    return page
