// Small SVG charts: stacked bars and a line. A table next to each has the numbers. One unit is one pixel of the page, so
// that texts have the same size at every width.

import { svg } from "./html.js";

const HEIGHT = 120;
const MARGIN_LEFT = 34; // for the numbers of the scale
const MARGIN_BELOW = 16; // for the times
const MARGIN_ABOVE = 6;
const PLOT_HEIGHT = HEIGHT - MARGIN_BELOW - MARGIN_ABOVE;

/**
 * @typedef {object} Step one interval
 * @property {string} from its start, formatted
 * @property {string} title shown on hover
 * @property {number[]} values a line uses only the first; NaN means no value
 */

/**
 * Draw stacked bars.
 * @param {Step[]} steps
 * @param {string[]} classes one for each part
 * @param {string} title
 * @param {(value: number) => string} write
 * @param {number} across pixels
 */
export function drawBars(steps, classes, title, write, across) {
  const most = roundScale(Math.max(1, ...steps.map((step) => sum(step.values))));
  const width = (across - MARGIN_LEFT) / steps.length;
  const drawn = steps.map((step, place) => {
    let top = HEIGHT - MARGIN_BELOW;
    const parts = step.values.map((value, part) => {
      const height = (value / most) * PLOT_HEIGHT;
      top -= height;
      return svg("rect", { class: classes[part], x: round(MARGIN_LEFT + place * width + 1), y: round(top), width: round(Math.max(1, width - 2)), height: round(height) });
    });
    return svg("g", {}, svg("title", {}, step.title), hoverTarget(place, width), ...parts.filter((_, part) => step.values[part]));
  });
  return drawFrame(title, steps, most, across, write, drawn);
}

/**
 * Draw a line through the steps that have a value. The scale ends at the highest value, rounded up, or at 1.
 * @param {Step[]} steps
 * @param {string} title
 * @param {(value: number) => string} write
 * @param {number} across pixels
 */
export function drawLine(steps, title, write, across) {
  const known = steps.map((step) => step.values[0]).filter((one) => !Number.isNaN(one));
  const most = Math.max(0.1, ...known) > 0.5 ? 1 : Math.max(0.1, Math.ceil(Math.max(0, ...known) * 10) / 10);
  const width = (across - MARGIN_LEFT) / steps.length;
  /** @type {string[]} */
  const path = [];
  /** @type {Element[]} */
  const dots = [];
  let joined = false;
  steps.forEach((step, place) => {
    const value = step.values[0];
    if (Number.isNaN(value)) {
      joined = false;
      return;
    }
    const x = round(MARGIN_LEFT + (place + 0.5) * width);
    const y = round(HEIGHT - MARGIN_BELOW - (value / most) * PLOT_HEIGHT);
    path.push(`${joined ? "L" : "M"}${x} ${y}`);
    dots.push(svg("circle", { class: "failed", cx: x, cy: y, r: 2.5 }));
    joined = true;
  });
  const targets = steps.map((step, place) => svg("g", {}, svg("title", {}, step.title), hoverTarget(place, width)));
  return drawFrame(title, steps, most, across, write, [svg("path", { class: "line", d: path.join(" ") }), ...dots, ...targets]);
}

/**
 * @param {string} title
 * @param {Step[]} steps
 * @param {number} most
 * @param {number} across
 * @param {(value: number) => string} write
 * @param {Element[]} drawn
 */
function drawFrame(title, steps, most, across, write, drawn) {
  const width = (across - MARGIN_LEFT) / steps.length;
  const scale = [0, 0.5, 1].map((share) => {
    const y = HEIGHT - MARGIN_BELOW - share * PLOT_HEIGHT;
    const text = share === 0.5 && most < 2 && most !== 1 ? "" : write(share * most);
    return svg("g", {}, svg("line", { class: "scale", x1: MARGIN_LEFT, x2: across, y1: y, y2: y }), svg("text", { x: MARGIN_LEFT - 4, y: y + 3.5, "text-anchor": "end" }, text));
  });
  const times = [0, Math.floor(steps.length / 2), steps.length - 1].map((place, index) =>
    svg("text", { x: round(MARGIN_LEFT + (place + 0.5) * width), y: HEIGHT - 3, "text-anchor": ["start", "middle", "end"][index] }, steps[place].from));
  return svg("svg", { viewBox: `0 0 ${across} ${HEIGHT}`, role: "img", "aria-label": title }, svg("title", {}, title), ...scale, ...times, ...drawn);
}

/** The hover area has the whole height of a step. @param {number} place @param {number} width */
const hoverTarget = (place, width) => svg("rect", { class: "target", x: round(MARGIN_LEFT + place * width), y: MARGIN_ABOVE, width: round(width), height: PLOT_HEIGHT });

/** @param {number[]} values */
const sum = (values) => values.reduce((total, one) => total + one, 0);

/** @param {number} value */
const round = (value) => Math.round(value * 100) / 100;

/** Return the next round number whose half is round, too. @param {number} value */
function roundScale(value) {
  if (value <= 2) return 2;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((one) => one * unit).find((one) => one >= value && one % 2 === 0) ?? 10 * unit;
}
