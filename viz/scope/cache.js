// Key/value rows of both models: what the passes wrote, what was kept of it, and what the text has no row for yet.

const KV_NUMBERED = 20; // with more rows than this the squares are small and have no number
const KV_SMALL = 48; // and with more than this they are smaller still
const KV_KEY = [["kept", "kept"], ["kept moved", "moved"], ["freed", "freed"]];
const KV_TOLD = {
  kept: "Square, filled: the row stays where the pass wrote it",
  "kept moved": "Round, filled: the row stays, moved up to the rows before it",
  freed: "Dashed: the row is freed, its node is not in the text",
};
const KV_HINT = "first: earlier rows · then node numbers";
const REST_TOLD = "chosen after the pass, or a leaf that the draft never read: the next pass writes these rows";
const END_TOLD = "nothing is read after the last token: its row is freed though it was accepted";

function buildCache(view, parent) {
  view.cache = panel(view, parent, "kv", "KV rows", "kv");
  const { side, body, box } = view.cache;
  for (const [state, words] of KV_KEY) html("span", "kv-key " + state, side, words).title = KV_TOLD[state];
  view.cache.strips = html("div", "kv-strips", body);
  view.cache.foot = html("footer", "", box);
  focusable(body, "Key/value rows");
  // What is pointed at is told at once: the browser's own hints are slow.
  body.addEventListener("pointerover", ({ target }) => write(view.cache.foot, target.title || view.cache.hint));
  body.addEventListener("pointerleave", () => write(view.cache.foot, view.cache.hint));
}

function paintCache(view) {
  const { cache } = view;
  const boxes = reuse(cache.strips, view.data.kv.length, () => buildCacheStrip(cache.strips));
  const most = Math.max(...view.data.kv.map((strip) => strip.written.length));
  const size = most > KV_SMALL ? "dense tiny" : most > KV_NUMBERED ? "dense" : "";
  view.data.kv.forEach((strip, place) => {
    const [head, written, after] = boxes[place].children;
    write(head.firstChild, strip.model);
    write(head.lastChild, strip.note);
    paintRows(view, written, strip, true, size);
    paintRows(view, after, strip, false, size);
  });
  const late = view.data.kv.some((strip) => strip.written.some(([, node]) => node < 0));
  cache.hint = late ? KV_HINT + " · c: text read late" : KV_HINT;
  write(cache.foot, cache.hint);
  const told = view.data.kv.map((strip) => `${strip.model}: ${strip.note}${strip.rest && ", " + strip.rest}`);
  cache.box.setAttribute("aria-label", `Key/value rows, ${told.join("; ")}`);
}

function buildCacheStrip(parent) {
  const box = html("div", "kv-strip", parent);
  const head = html("div", "kv-head", box);
  html("b", "", head);
  html("span", "", head);
  for (const name of ["written", "after"]) {
    const line = html("div", "kv-line " + name, box);
    html("span", "kv-name", line);
    html("div", "kv-lane", line);
  }
}

// A line of rows: how many stood before, one square per row, and behind them how many freed ones there was no room for,
// or which tokens of the text have no row yet.
function paintRows(view, line, strip, asWritten, size) {
  const [name, lane] = line.children;
  const rows = asWritten ? strip.written : strip.after;
  const rest = asWritten ? strip.not_drawn && `+${strip.not_drawn} freed` : strip.rest;
  write(name, asWritten ? "written" : strip.rebuilt ? "rebuilt" : "after");
  set(lane, "class", "kv-lane " + size);
  const parts = reuse(lane, 1 + rows.length + (rest ? 1 : 0), () => html("span", "", lane));
  const before = strip.rows_before.toLocaleString("en");
  paintPart(parts[0], "kv-before", before, before + " earlier rows, untouched", null);
  let at = parts[0];
  for (const [row, node, kept, moved] of rows) {
    at = at.nextSibling;
    const state = kept ? (moved ? "kept moved" : "kept") : "freed";
    const told = `row ${row}: ${rowWords(view, node, kept)}${moved ? movedWords(strip, node, asWritten) : ""}`;
    paintPart(at, "kv-cell " + state, node < 0 ? "c" : String(node), told, node < 0 ? null : node);
  }
  if (rest) paintPart(at.nextSibling, "kv-more", rest, asWritten ? rest : rest.startsWith("next") ? REST_TOLD : END_TOLD, null);
}

function rowWords(view, node, kept) {
  if (node < 0) return `c: text this model had not read yet, ${kept ? "kept" : "freed"}`;
  const card = view.data.cards[node];
  const what = `node ${node}${card ? " " + card.token : ""}`;
  if (kept) return what + ", kept";
  return what + (card && card.state === "accepted" ? ", freed though accepted: the text ends with it" : ", freed");
}

function movedWords(strip, node, asWritten) {
  const [other] = (asWritten ? strip.after : strip.written).filter((row) => row[1] === node);
  return !other || node < 0 ? ", moved" : `, moved ${asWritten ? "to" : "from"} row ${other[0]}`;
}

function paintPart(element, className, text, title, node) {
  if (element.className !== className) element.className = className;
  write(element, text);
  set(element, "title", title);
  link(element, node);
}
