"use strict";
// Values to positions and back to words. Nothing here touches the page.

/** Three significant digits, thousands apart, never in powers of ten. */
function numberText(value) {
  if (!Number.isFinite(value)) return "-";
  if (value === 0 || Math.abs(value) >= 100) return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");
  const digits = 2 - Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(6, digits)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

/** About `count` round values between the ends of a linear axis. */
function roundTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) ticks.push(n * step);
  return ticks;
}

/** Values that a logarithmic axis names: those that were measured where they are few, else 1, 2, 5 of each decade. */
function logTicks(values, low, high) {
  const own = [...new Set(values)].sort((a, b) => a - b);
  if (own.length <= 8) return own;
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of [1, 2, 5]) ticks.push(factor * 10 ** power);
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

/** A scale of one axis: `at` gives the position of a value between `from` and `to`. */
function makeScale(axis, values, from, to, count) {
  if (axis.categories) {
    const width = (to - from) / axis.categories.length;
    return { at: (v) => from + (v + 0.5) * width, ticks: axis.categories.map((_, n) => n),
      text: (n) => axis.categories[n], width: Math.abs(width) };
  }
  let low = Math.min(...values), high = Math.max(...values);
  if (axis.scale === "log") {
    low /= 1.15; high *= 1.15;
    const span = Math.log(high / low) || 1;
    return { at: (v) => from + (Math.log(v / low) / span) * (to - from), ticks: logTicks(values, low, high),
      text: numberText };
  }
  if (axis.zero !== false && low > 0) low = 0;
  if (low === high) { low -= 0.5; high += 0.5; }
  const room = (high - low) * 0.06;
  low = low === 0 ? 0 : low - room;
  high += room;
  return { at: (v) => from + ((v - low) / (high - low)) * (to - from), ticks: roundTicks(low, high, count),
    text: numberText };
}
