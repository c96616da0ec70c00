"use strict";
// Elements of a drawing: axes, lines across it, and the shapes of points.

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes, appended to its parent. Texts are set as text, never as markup. */
function add(parent, name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

/** A text cut to a width, whole on hover. Twelve pixel letters are about 6.6 pixels wide. */
function addText(parent, attributes, text, width = Infinity) {
  const most = Math.max(2, Math.floor(width / 6.6)), cut = text.length > most;
  const element = add(parent, "text", attributes, cut ? `${text.slice(0, most - 1)}\u2026` : text);
  if (cut) add(element, "title", {}, text);
  return element;
}

/** Colour class of each series: baseline and recommendation have their own, the others take turns. */
function colours(series) {
  let others = 0;
  return series.map((one) => {
    if (one.role === "baseline") return "base";
    if (one.role === "recommended") return "rec";
    others += 1;
    return `o${(others - 1) % 6}`;
  });
}

const SHAPES = [
  (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${x},${y - 1.3 * r}l${1.3 * r},${2.2 * r}h${-2.6 * r}z`,
  (x, y, r) => `M${x},${y - 1.4 * r}l${1.4 * r},${1.4 * r}l${-1.4 * r},${1.4 * r}l${-1.4 * r},${-1.4 * r}z`,
];
const CROSS = (x, y, r) => `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}`;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/** Grid, ticks and names of both axes of a plot with numbers. */
function addAxes(svg, plot, x, y, box) {
  for (const tick of y.ticks) {
    const at = y.at(tick);
    add(svg, "line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" });
    addText(svg, { x: box.left - 6, y: at + 4, "text-anchor": "end", class: "tick" }, y.text(tick), box.left - 8);
  }
  let free = -Infinity;
  for (const tick of x.ticks) {
    const at = x.at(tick), width = x.width ? x.width - 4 : 60;
    const half = Math.min(width, x.text(tick).length * 6.6) / 2;
    if (at - half < free) continue;
    addText(svg, { x: at, y: box.bottom + 17, "text-anchor": "middle", class: "tick" }, x.text(tick), width);
    add(svg, "line", { x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4, class: "axis" });
    free = at + half + 6;
  }
  add(svg, "line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" });
  addText(svg, { x: box.left, y: 14, class: "label" }, plot.y.label, box.right - box.left);
  addText(svg, { x: box.right, y: box.bottom + 36, "text-anchor": "end", class: "label" }, plot.x.label, box.right);
}

/** Lines across the plot with their names. */
function addMarks(svg, plot, x, y, box) {
  for (const mark of plot.marks || []) {
    if (mark.axis === "x") {
      const at = x.at(mark.at), end = at > box.right - 80;
      add(svg, "line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: "mark" });
      addText(svg, { x: at + (end ? -5 : 5), y: box.top + 12, "text-anchor": end ? "end" : "start", class: "marklabel" },
        mark.label);
    } else {
      const at = y.at(mark.at);
      add(svg, "line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "mark" });
      addText(svg, { x: box.right, y: at - 5, "text-anchor": "end", class: "marklabel" }, mark.label);
    }
  }
}
