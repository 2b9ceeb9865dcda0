// The linked panels: run strip, attention mask, key/value rows, text, phase times.

function buildStrip(view, parent) {
  const box = html("section", "panel strip", parent);
  const left = html("div", "words", box);
  const title = html("strong", "", left);
  const position = html("span", "", left);
  const columns = html("div", "columns", box);
  const right = html("div", "words end", box);
  view.strip = { title, position, columns, efficiency: html("strong", "", right), totals: html("span", "", right) };
}

function paintStrip(view) {
  const { strip } = view;
  const data = view.data.strip;
  strip.title.textContent = strip.title.title = view.data.scene.title;
  strip.position.textContent = data.position;
  strip.efficiency.textContent = data.efficiency;
  strip.totals.textContent = data.totals;
  strip.columns.replaceChildren();
  const tallest = Math.max(2, ...data.columns.map((column) => column[0] + 1));
  const block = clamp(Math.floor(44 / tallest) - 1, 1, 8);
  strip.columns.classList.toggle("narrow", data.columns.length * 9 > strip.columns.clientWidth);
  data.columns.forEach(([accepted, kind, inLoop], place) => {
    const index = data.first + place;
    const final = kind === "none" ? "no final token" : kind;
    const words = `Iteration ${index + 1}: ${accepted} accepted, ${final}${inLoop ? ", inside a loop" : ""}`;
    const column = button("column", strip.columns, "", words, () => requestIteration(view, index));
    column.tabIndex = -1;
    if (index === data.current) column.classList.add("current");
    if (inLoop) column.classList.add("loop");
    if (kind !== "none") html("i", "block s-" + kind, column).style.height = block + "px";
    for (let i = 0; i < accepted; i++) html("i", "block s-accepted", column).style.height = block + "px";
  });
}

function buildMask(view, parent) {
  const made = panel(parent, "mask", "Attention mask");
  made.svg = svg("svg", { class: "mask-svg", role: "img" }, made.body);
  made.words = html("footer", "", made.box);
  view.mask = made;
  const rowAt = (event) => {
    const { order } = view.data.mask;
    const place = Math.floor((event.clientY - made.svg.getBoundingClientRect().top - 1) / made.cell);
    return place >= 0 && place < order.length ? order[place] : null;
  };
  made.svg.addEventListener("pointermove", (event) => hover(view, rowAt(event)));
  made.svg.addEventListener("pointerleave", () => hover(view, null));
  made.svg.addEventListener("click", (event) => {
    const node = rowAt(event);
    if (node !== null) select(view, node);
  });
  new ResizeObserver(() => view.data && view.data.mask && paintMask(view)).observe(made.body);
}

function paintMask(view) {
  const { mask } = view;
  const { order, prefix, png, stats } = view.data.mask;
  mask.svg.replaceChildren();
  mask.light = null;
  if (!png) {
    mask.words.textContent = stats;
    mask.side.textContent = "";
    return;
  }
  const rows = order.length;
  const width = mask.body.clientWidth;
  const size = Math.min(mask.body.clientHeight, width * 0.72) - 2;
  if (size <= 0) return;
  mask.cell = Math.min(size / rows, 20);
  mask.size = mask.cell * rows;
  mask.side.textContent = `${rows} × ${(prefix + rows).toLocaleString("en")}`;
  mask.side.title = stats;
  mask.left = Math.max(Math.min(width - mask.size - 8, 92), 30);
  mask.svg.setAttribute("width", mask.left + mask.size + 4);
  mask.svg.setAttribute("height", mask.size + 2);
  mask.svg.setAttribute("aria-label", stats);
  const block = mask.left - 6;
  svg("rect", { class: "prefix", x: 0, y: 1, width: block, height: mask.size, rx: 3 }, mask.svg);
  const words = prefix.toLocaleString("en") + (block > 62 ? " columns" : "");
  svg("rect", { class: "paper", x: mask.left, y: 1, width: mask.size, height: mask.size }, mask.svg);
  const box = { x: mask.left, y: 1, width: mask.size, height: mask.size };
  svg("image", { ...box, href: png, class: "pixels", preserveAspectRatio: "none" }, mask.svg);
  if (mask.cell >= 6) {
    for (let i = 1; i < rows; i++) {
      const at = i * mask.cell;
      svg("path", { class: "rule", d: `M${mask.left},${1 + at}h${mask.size}M${mask.left + at},1v${mask.size}` }, mask.svg);
    }
  }
  mask.light = svg("g", {}, mask.svg);
  const tall = mask.size > 34;
  const at = { class: "prefix-text", x: block / 2 };
  svg("text", { ...at, y: mask.size / 2 + (tall ? 12 : 5) }, mask.svg).textContent = words;
  if (tall) svg("text", { ...at, y: mask.size / 2 - 3 }, mask.svg).textContent = "prefix";
  lightMask(view);
}

// Lights the row of the node in question: the prefix, its ancestors and itself.
function lightMask(view) {
  const { mask } = view;
  if (!mask || !mask.light) return;
  const { order, parents, prefix } = view.data.mask;
  const place = new Map(order.map((node, row) => [node, row]));
  mask.light.replaceChildren();
  const node = place.has(view.hovered) ? view.hovered : view.selected;
  if (!place.has(node)) {
    mask.words.textContent = view.data.mask.short;
    mask.words.title = view.data.mask.stats;
    return;
  }
  const row = place.get(node);
  const y = 1 + row * mask.cell;
  svg("rect", { class: "lit-row", x: 0, y, width: mask.left + mask.size, height: mask.cell }, mask.light);
  const seen = [];
  for (let at = node; place.has(at) && seen.length <= order.length; at = parents[place.get(at)]) {
    seen.unshift(at);
    const x = mask.left + place.get(at) * mask.cell;
    svg("rect", { class: "lit-cell", x: x + 0.5, y: y + 0.5, width: Math.max(mask.cell - 1, 1), height: Math.max(mask.cell - 1, 1) }, mask.light);
  }
  mask.words.textContent = mask.words.title = `node ${node} sees ${prefix.toLocaleString("en")} prefix rows and ${seen.join(" ")}`;
}

function buildCache(view, parent) {
  view.cache = panel(parent, "kv", "KV rows");
}

function paintCache(view) {
  const { cache } = view;
  cache.body.replaceChildren();
  const [target] = view.data.kv;
  cache.side.textContent = `target kept ${target.after.length} of ${target.written.length + target.not_drawn}`;
  for (const strip of view.data.kv) {
    const box = html("div", "kv-strip", cache.body);
    box.title = strip.note;
    kvLine(view, box, strip, strip.written, strip.model, "written");
    kvLine(view, box, strip, strip.after, strip.rebuilt ? "rebuilt" : "after", "after");
  }
  html("footer", "", cache.body, target.note);
}

function kvLine(view, parent, strip, cells, words, className) {
  const line = html("div", "kv-line " + className, parent);
  html("span", "kv-name", line, words);
  const crowded = view.data.kv.some((other) => other.written.length > 24);
  const lane = html("div", "kv-lane " + (crowded ? "dense" : ""), line);
  const before = html("span", "kv-before", lane, strip.rows_before.toLocaleString("en"));
  before.title = strip.rows_before.toLocaleString("en") + " earlier rows, untouched";
  for (const cell of cells) {
    const state = cell.kept ? (cell.moved ? "kept moved" : "kept") : "freed";
    const square = html("button", "kv-cell " + state, lane, cell.node_id < 0 ? "c" : cell.node_id);
    square.type = "button";
    square.tabIndex = -1;
    const what = cell.node_id < 0 ? "committed text that was still missing" : "node " + cell.node_id;
    square.title = `row ${cell.row}: ${what}, ${state}`;
    if (cell.node_id >= 0) link(view, square, cell.node_id);
  }
  if (className === "written" && strip.not_drawn) html("span", "kv-more", lane, `+${strip.not_drawn} freed`);
}

function buildText(view, parent) {
  view.text = panel(parent, "text", "Text");
  const words = { drafted: "drafted", bonus: "bonus", recovered: "recovered", fallback: "fallback" };
  const foot = html("footer", "", view.text.box);
  for (const name in words) html("span", "key p-" + name, foot, words[name]);
}

function paintText(view) {
  const { body } = view.text;
  body.replaceChildren();
  const { before, spans, position } = view.data.text;
  view.text.side.textContent = "position " + position.toLocaleString("en");
  if (before) html("span", "t-before", body, `… ${before.toLocaleString("en")} earlier tokens `);
  for (const [shown, provenance, node, iteration, breaks] of spans) {
    const span = html("span", "t p-" + provenance, body, shown);
    span.title = iteration === null ? "prompt" : `${provenance}, iteration ${iteration + 1}`;
    if (node !== null) {
      span.classList.add("now");
      link(view, span, node);
    } else if (iteration !== null) {
      span.dataset.iteration = iteration;
    }
    body.appendChild(breaks ? document.createElement("br") : document.createElement("wbr"));
  }
  body.scrollTop = body.scrollHeight;
}

function buildTimes(view, parent) {
  view.times = panel(parent, "times", "Time of this iteration");
}

// A waterfall: each phase begins where the one before it ended; the draft shows its forwards one by one.
function paintTimes(view) {
  const { times } = view;
  const rows = view.data.times;
  const total = rows.reduce((sum, row) => sum + row.seconds, 0) || 1;
  times.side.textContent = duration(total);
  times.body.replaceChildren();
  let start = 0;
  for (const row of rows) {
    const line = html("div", "time", times.body);
    line.dataset.phase = row.key;
    line.title = `${row.words}: ${row.shown}, ${((100 * row.seconds) / total).toFixed(0)}% of the iteration`;
    html("span", "time-name", line, row.words);
    const lane = html("span", "time-lane", line);
    const bar = html("span", "time-bar", lane);
    bar.style.left = (100 * start) / total + "%";
    bar.style.width = (100 * row.seconds) / total + "%";
    bar.style.background = row.color;
    let at = 0;
    // Cuts between forwards only where the bar is wide enough to stay a bar.
    const wide = (lane.clientWidth * row.seconds) / total > 5 * row.parts.length;
    for (const part of wide ? row.parts.slice(0, -1) : []) {
      at += part;
      html("i", "cut", bar).style.left = (100 * at) / row.seconds + "%";
    }
    html("span", "time-value", line, row.shown);
    start += row.seconds;
  }
}
