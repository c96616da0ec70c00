"use strict";
// What is said of a point: under a pointer, or with the arrow keys on a plot that has the focus.

const REACH = 40;

function distance(spot, x, y) {
  const dx = Math.max(spot.x - x, 0, x - spot.x - spot.w), dy = Math.max(spot.y - y, 0, y - spot.y - spot.h);
  return Math.hypot(dx, dy);
}

/** Lets a pointer and the keyboard find the spots of a drawing. */
function makeHover(svg, canvas, said, spots) {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  canvas.append(tip);
  let at = -1;
  let ring = null;

  function hide() {
    tip.hidden = true;
    if (ring) ring.remove();
    ring = null;
  }

  function show(number, aloud) {
    hide();
    at = number;
    const spot = spots[number], scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    ring = spot.w ? add(svg, "rect", { x: spot.x, y: spot.y, width: spot.w, height: spot.h, rx: 2, class: "ring" })
      : add(svg, "circle", { cx: spot.x, cy: spot.y, r: 8, class: "ring" });
    const head = document.createElement("b");
    head.textContent = spot.head;
    tip.replaceChildren(head, ...spot.lines.map((line) => {
      const row = document.createElement("div");
      row.textContent = line;
      return row;
    }));
    tip.hidden = false;
    const left = (spot.x + spot.w / 2) * scale + 12, top = (spot.y + spot.h / 2) * scale + 12;
    const room = canvas.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(left, room))}px`;
    tip.style.top = `${left > room ? top + 8 : top}px`;
    if (aloud) said.textContent = [spot.head, ...spot.lines].join(". ");
  }

  function point(event) {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    const x = (event.clientX - frame.left) * scale, y = (event.clientY - frame.top) * scale;
    let best = -1;
    spots.forEach((spot, n) => { if (best < 0 || distance(spot, x, y) < distance(spots[best], x, y)) best = n; });
    if (best >= 0 && distance(spots[best], x, y) < REACH) show(best, false);
    else hide();
  }

  function move(event) {
    const order = spots.map((spot, n) => ({ n, series: spot.series }));
    if (!order.length) return;
    const own = order.filter((one) => at < 0 || one.series === spots[at].series).map((one) => one.n);
    const present = [...new Set(order.map((one) => one.series))], place = own.indexOf(at);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { hide(); return; }
    if (step) show(at < 0 ? own[0] : own[Math.max(0, Math.min(own.length - 1, place + step))], true);
    else if (turn && at >= 0) {
      const next = (present.indexOf(spots[at].series) + turn + present.length) % present.length;
      const others = order.filter((one) => one.series === present[next]).map((one) => one.n);
      show(others[Math.min(Math.max(0, place), others.length - 1)], true);
    } else if (turn) show(0, true);
    else return;
    event.preventDefault();
  }

  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", move);
}
