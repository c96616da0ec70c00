"use strict";
// Puts the plots into the page: draws the chosen ones, lets series be toggled, draws again when the width changes.

const plots = JSON.parse(document.getElementById("plots").textContent);
const hidden = new Map();

function draw(pane) {
  const plot = plots[pane.dataset.plot], canvas = pane.querySelector(".canvas");
  const width = Math.round(canvas.clientWidth);
  if (!width) return;
  const off = hidden.get(pane.dataset.plot) || new Set(), shown = plot.series.map((_, n) => !off.has(n));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", `Plot: ${plot.name}. ${plot.takeaway} Arrow keys read the points.`);
  const { height, spots } = KINDS[plot.kind](svg, plot, shown, width);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  canvas.replaceChildren(svg);
  makeHover(svg, canvas, pane.querySelector(".said"), spots);
  pane.dataset.width = String(width);
}

function addLegend(pane) {
  const plot = plots[pane.dataset.plot], legend = pane.querySelector(".legend"), off = new Set();
  if (plot.series.length < 2) return;
  hidden.set(pane.dataset.plot, off);
  const classes = colours(plot.series);
  plot.series.forEach((one, number) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    const sample = document.createElementNS(SVG, "svg");
    for (const [key, value] of [["width", 22], ["height", 12], ["aria-hidden", "true"], ["class", classes[number]]]) {
      sample.setAttribute(key, value);
    }
    const dashes = one.role === "other" || !one.role ? DASHES[number % 4] : "";
    if (one.style && one.style !== "points") {
      add(sample, "path", { d: "M0,6H22", class: "path", "stroke-dasharray": dashes });
    }
    const unmeasured = plot.kind === "xy" && one.points.every((point) => !isNumber(point[1]));
    if (unmeasured) add(sample, "path", { d: CROSS(11, 6, 4), class: "whisker" });
    else if (plot.kind === "timeline") add(sample, "rect", { x: 1, y: 2, width: 20, height: 8, class: "work" });
    else if (!one.style || one.style === "points" || one.style === "both") {
      add(sample, "path", { d: SHAPES[number % SHAPES.length](11, 6, 4), class: "spot" });
    }
    button.append(sample, one.name);
    button.addEventListener("click", () => {
      if (!off.delete(number)) off.add(number);
      button.setAttribute("aria-pressed", String(!off.has(number)));
      draw(pane);
    });
    legend.append(button);
  });
}

function choose(section, id) {
  for (const pane of section.querySelectorAll(".pane")) {
    pane.classList.toggle("chosen", pane.dataset.plot === id);
    if (pane.dataset.plot !== id) continue;
    if (!pane.dataset.ready) addLegend(pane);
    pane.dataset.ready = "yes";
    draw(pane);
  }
}

document.documentElement.classList.add("js");
for (const section of document.querySelectorAll(".question")) {
  const select = section.querySelector("select");
  if (select) select.addEventListener("change", () => choose(section, select.value));
  choose(section, select ? select.value : section.querySelector(".pane").dataset.plot);
}
let pending = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => {
    for (const pane of document.querySelectorAll(".pane.chosen")) draw(pane);
  });
});
