"use strict";
// The four kinds of plots. Each draws the series that are shown and returns its spots: where a pointer or an arrow key
// finds a point, and what is said of it. A point is [x, y, low, high, note, value].

const isNumber = (value) => value !== null && value !== undefined;

function withUnit(value, axis) {
  return axis.categories ? axis.categories[value] : `${numberText(value)}${axis.unit ? ` ${axis.unit}` : ""}`;
}

/** Points, lines and steps over two axes; what has no value stands at the foot as a cross. */
function drawXy(svg, plot, shown, width) {
  const height = Math.min(380, Math.max(260, width * 0.5));
  const box = { left: 52, right: width - 12, top: 24, bottom: height - 44 };
  const all = plot.series.filter((_, n) => shown[n]).flatMap((one) => one.points);
  const marks = plot.marks || [];
  const xs = all.map((p) => p[0]).concat(marks.filter((m) => m.axis === "x").map((m) => m.at));
  const ys = all.flatMap((p) => [p[1], p[2], p[3]]).filter(isNumber)
    .concat(marks.filter((m) => m.axis === "y").map((m) => m.at));
  const x = makeScale(plot.x, xs.length ? xs : [0, 1], box.left + 8, box.right - 8, width / 90);
  const y = makeScale(plot.y, ys.length ? ys : [0, 1], box.bottom, box.top, 5);
  addAxes(svg, plot, x, y, box);
  addMarks(svg, plot, x, y, box);
  const classes = colours(plot.series), spots = [];
  plot.series.forEach((one, number) => {
    if (!shown[number]) return;
    const group = add(svg, "g", { class: classes[number] });
    drawJoined(group, one, number, x, y);
    const radius = one.role === "recommended" ? 5 : all.length > 300 ? 3 : 4;
    for (const point of one.points) {
      const cx = x.at(point[0]), cy = isNumber(point[1]) ? y.at(point[1]) : box.bottom - 8;
      if (isNumber(point[2]) && isNumber(point[3])) drawWhisker(group, cx, y.at(point[2]), cy, y.at(point[3]));
      if (!isNumber(point[1])) add(group, "path", { d: CROSS(cx, cy, 4), class: "whisker" });
      else if (!one.style || one.style === "both" || one.style === "points") {
        add(group, "path", { d: SHAPES[number % SHAPES.length](cx, cy, radius), class: "spot" });
      }
      spots.push({ series: number, x: cx, y: cy, w: 0, h: 0, head: one.name, lines: xyWords(plot, point) });
    }
  });
  return { height, spots };
}

function drawJoined(group, one, number, x, y) {
  if (!["line", "both", "steps"].includes(one.style)) return;
  const d = one.points.map((p, n) => {
    const px = x.at(p[0]), py = y.at(p[1]);
    if (n === 0) return `M${px},${py}`;
    return one.style === "steps" ? `H${px}V${py}` : `L${px},${py}`;
  }).join("");
  add(group, "path", { d, class: "path", "stroke-dasharray": one.role === "other" || !one.role ? DASHES[number % 4] : "" });
}

function drawWhisker(group, x, low, middle, high) {
  add(group, "path", { d: `M${x},${low}V${high}M${x - 4},${low}h8M${x - 4},${high}h8`, class: "whisker" });
}

function xyWords(plot, point) {
  const lines = [`${plot.y.label}: ${isNumber(point[1]) ? withUnit(point[1], plot.y) : "not measured"}`,
    `${plot.x.label}: ${withUnit(point[0], plot.x)}`];
  if (isNumber(point[2])) lines.push(`interval ${numberText(point[2])} to ${numberText(point[3])}`);
  if (point[4]) lines.push(point[4]);
  return lines;
}

/** Horizontal bars with intervals, each below its name, so that long names fit on a phone. */
function drawBars(svg, plot, shown, width) {
  const names = plot.y.categories || [], step = 46, height = names.length * step + 50;
  const box = { left: 8, right: width - 12, top: 4, bottom: height - 44 };
  const all = plot.series.flatMap((one) => one.points);
  const values = all.flatMap((p) => [p[1], p[2], p[3]]).filter(isNumber).concat((plot.marks || []).map((m) => m.at));
  const x = makeScale(plot.x, values, box.left, box.right - 8, width / 90);
  for (const tick of x.ticks) {
    add(svg, "line", { x1: x.at(tick), x2: x.at(tick), y1: box.top, y2: box.bottom, class: "grid" });
    addText(svg, { x: x.at(tick), y: box.bottom + 17, "text-anchor": "middle", class: "tick" }, x.text(tick));
  }
  addText(svg, { x: box.right, y: box.bottom + 36, "text-anchor": "end", class: "label" }, plot.x.label, width - 20);
  const classes = colours(plot.series), spots = [];
  plot.series.forEach((one, number) => {
    if (!shown[number]) return;
    const group = add(svg, "g", { class: classes[number] });
    for (const point of one.points) {
      const top = box.top + point[0] * step + 18, end = x.at(point[1]), middle = top + 9;
      add(group, "rect", { x: box.left, y: top, width: Math.max(1, end - box.left), height: 18, class: "bar" });
      if (isNumber(point[2])) {
        const [low, high] = [x.at(point[2]), x.at(point[3])];
        add(group, "path", { d: `M${low},${middle}H${high}M${low},${top + 3}v12M${high},${top + 3}v12`, class: "whisker" });
      }
      add(group, "path", { d: SHAPES[0](end, middle, 5), class: "spot" });
      addText(svg, { x: box.left, y: top - 4 }, names[point[0]], width - 20);
      const interval = isNumber(point[2]) ? [`interval ${numberText(point[2])} to ${numberText(point[3])}`] : [];
      spots.push({ series: number, x: box.left, y: top - 16, w: box.right - box.left, h: 38, head: names[point[0]],
        lines: [`${plot.x.label}: ${withUnit(point[1], plot.x)}`, ...interval, point[4]].filter(Boolean) });
    }
  });
  addMarks(svg, plot, x, null, box);
  return { height, spots };
}

/** A map of cells: figure, interval, and a tint that is stronger the farther the figure is from 1. */
function drawHeat(svg, plot, shown, width) {
  const columns = plot.x.categories, rows = plot.y.categories, height = rows.length * 92 + 44;
  const box = { left: 8, right: width - 8, top: 8, bottom: height - 36 };
  const cell = { w: (box.right - box.left) / columns.length, h: (box.bottom - box.top) / rows.length };
  const spots = [];
  plot.series.forEach((one, number) => {
    if (!shown[number]) return;
    for (const [column, row, low, high, note, value] of one.points) {
      const left = box.left + column * cell.w, top = box.top + row * cell.h, middle = left + cell.w / 2;
      const strength = Math.min(0.5, Math.abs(Math.log2(Math.max(value, 0.01))) * 0.3 + 0.04);
      add(svg, "rect", { x: left + 2, y: top + 2, width: cell.w - 4, height: cell.h - 4, rx: 4,
        class: value >= 1 ? "better" : "worse", "fill-opacity": strength });
      addText(svg, { x: middle, y: top + 36, "text-anchor": "middle", class: "cell" }, `${value.toFixed(2)}x`);
      const interval = isNumber(low) ? `${low.toFixed(2)} to ${high.toFixed(2)}` : "";
      addText(svg, { x: middle, y: top + 54, "text-anchor": "middle" }, interval, cell.w - 12);
      addText(svg, { x: middle, y: top + 74, "text-anchor": "middle" }, rows[row], cell.w - 12);
      spots.push({ series: number, x: left, y: top, w: cell.w, h: cell.h, head: `${columns[column]}, ${rows[row]}`,
        lines: [`gain over neither: ${value.toFixed(2)}x`, interval && `interval ${interval}`, note].filter(Boolean) });
    }
  });
  columns.forEach((name, n) => addText(svg, { x: box.left + (n + 0.5) * cell.w, y: box.bottom + 20,
    "text-anchor": "middle" }, name, cell.w - 8));
  return { height, spots };
}

/** Requests as bars over time: pale from sending to the first token, full until the end. */
function drawTimeline(svg, plot, shown, width) {
  const lanes = plot.y.categories.length, lane = Math.max(5, Math.min(16, 420 / lanes)), gap = 22;
  const used = plot.series.map((one) => Math.max(-1, ...one.points.map((p) => p[0])));
  const height = lanes * lane + plot.series.length * gap + 52;
  const box = { left: 8, right: width - 12, top: 4, bottom: height - 44 };
  const x = makeScale(plot.x, plot.series.flatMap((one) => one.points.map((p) => p[1])).concat([0]), box.left, box.right, width / 90);
  for (const tick of x.ticks) {
    add(svg, "line", { x1: x.at(tick), x2: x.at(tick), y1: box.top, y2: box.bottom, class: "grid" });
    addText(svg, { x: x.at(tick), y: box.bottom + 17, "text-anchor": "middle", class: "tick" }, x.text(tick));
  }
  addText(svg, { x: box.right, y: box.bottom + 36, "text-anchor": "end", class: "label" }, plot.x.label, width - 20);
  const classes = colours(plot.series), spots = [];
  plot.series.forEach((one, number) => {
    const first = number ? used[number - 1] + 1 : 0, offset = box.top + first * lane + (number + 1) * gap;
    addText(svg, { x: box.left, y: offset - 6 }, one.name, width - 20);
    if (!shown[number]) return;
    const group = add(svg, "g", { class: classes[number] });
    for (const [row, end, sent, token, note] of one.points) {
      const top = offset + (row - first) * lane, from = x.at(sent), middle = x.at(isNumber(token) ? token : end);
      add(group, "rect", { x: from, y: top + 1, width: Math.max(1, middle - from), height: lane - 2, class: "wait" });
      if (isNumber(token)) {
        add(group, "rect", { x: middle, y: top + 1, width: Math.max(1, x.at(end) - middle), height: lane - 2, class: "work" });
      }
      spots.push({ series: number, x: from, y: top, w: x.at(end) - from, h: lane, head: one.name,
        lines: [`sent at ${numberText(sent)} s, took ${numberText(end - sent)} s`,
          isNumber(token) ? `first token after ${numberText((token - sent) * 1000)} ms` : "no token", note] });
    }
  });
  return { height, spots };
}

const KINDS = { xy: drawXy, bars: drawBars, heat: drawHeat, timeline: drawTimeline };
