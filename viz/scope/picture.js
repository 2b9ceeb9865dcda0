// Saves the tree as a self-contained picture: styles inlined, with title and legend.

import { html, SVG_NS, svg } from "../components/dom.js";

const PICTURE_STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "stroke-linecap",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-style",
  "text-decoration",
  "paint-order",
  "visibility",
  "white-space",
];
const PICTURE_SCALE = 2;

export function savePicture(view, kind) {
  if (view.showBars && view.data.overview) return saveBars(view);
  const { text, width, height } = treePicture(view);
  const name = "draft-tree-" + view.data.scene.scene_id.replace(/[^a-z0-9]+/gi, "-");
  if (kind === "svg") return saveBlob(view, new Blob([text], { type: "image/svg+xml" }), name + ".svg");
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = width * PICTURE_SCALE;
    canvas.height = height * PICTURE_SCALE;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveBlob(view, blob, name + ".png"), "image/png");
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}

// The bars are a picture already; they only need a background.
function saveBars(view) {
  const { canvas, colors } = view.tree.bars;
  const copy = document.createElement("canvas");
  Object.assign(copy, { width: canvas.width, height: canvas.height });
  const context = copy.getContext("2d");
  context.fillStyle = colors.paper;
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  const name = "all-nodes-" + view.data.scene.scene_id.replace(/[^a-z0-9]+/gi, "-");
  copy.toBlob((blob) => saveBlob(view, blob, name + ".png"), "image/png");
}

function saveBlob(view, blob, name) {
  const address = URL.createObjectURL(blob);
  const anchor = html("a", "", view.root);
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// The tree as on screen, at its zoom, with its title above and a legend below.
function treePicture(view) {
  const { tree } = view;
  const [head, foot] = [46, 30];
  const width = tree.width;
  const height = tree.height + head + foot;
  const style = getComputedStyle(view.root);
  const whole = svg("svg", { xmlns: SVG_NS, width, height, viewBox: `0 0 ${width} ${height}` });
  svg("rect", { width, height, fill: style.getPropertyValue("--paper") }, whole);
  const copy = styled(tree.svg);
  copy.setAttribute("x", 0);
  copy.setAttribute("y", head);
  copy.setAttribute("width", tree.width);
  copy.setAttribute("height", tree.height);
  whole.appendChild(copy);
  const { scene } = view.data;
  const text = (x, y, words, size, weight) => {
    const at = { x, y, fill: style.color, "font-family": style.fontFamily, "font-size": size, "font-weight": weight };
    svg("text", at, whole).textContent = words;
  };
  const where = view.mode === "scope" ? ` · iteration ${view.index + 1}` : "";
  text(14, 19, `${scene.title}${where} · ${scene.phases[view.phase].title}`, 14, 600);
  text(14, 37, `${scene.note} · edge width = path probability`, 12, 400);
  let x = 14;
  for (const item of tree.legend.children) {
    const mark = svg("g", { transform: `translate(${x + 8},${height - 15})` }, whole);
    mark.appendChild(styled(item.querySelector("path")));
    text(x + 20, height - 11, item.textContent, 12, 400);
    x += 34 + item.textContent.length * 6.6;
  }
  return { text: new XMLSerializer().serializeToString(whole), width, height };
}

// A copy with the styles that the page gives it; transforms become attributes, which every program reads.
function styled(element) {
  const copy = element.cloneNode(false);
  const style = getComputedStyle(element);
  copy.removeAttribute("class");
  copy.removeAttribute("style");
  for (const name of [...copy.getAttributeNames()]) if (name.startsWith("data-")) copy.removeAttribute(name);
  if (style.display === "none") return document.createElementNS(SVG_NS, "g");
  if (!["g", "svg", "title"].includes(element.tagName) || style.visibility === "hidden") {
    for (const name of PICTURE_STYLES) copy.setAttribute(name, style.getPropertyValue(name));
  }
  if (style.opacity !== "1") copy.setAttribute("opacity", style.opacity);
  if (style.vectorEffect !== "none") copy.setAttribute("vector-effect", style.vectorEffect);
  if (style.transform !== "none" && !element.hasAttribute("transform")) copy.setAttribute("transform", style.transform);
  for (const child of element.childNodes) copy.appendChild(child.nodeType === 1 ? styled(child) : child.cloneNode());
  return copy;
}
