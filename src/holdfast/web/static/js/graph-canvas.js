// Drawing a graph on a canvas: edges in few strokes, nodes by colour, names only where there is room for them.

/** @typedef {import("./graph-model.js").GraphModel} Network */

const MAX_NAMES = 40; // names at once
const ALWAYS_NAMED = 15; // of the nodes that most documents speak of, which are named whatever their size
const MIN_NAMED_PIXELS = 11; // pixels across, from which on others are, too
const MIN_NODE_SCALE = 0.8; // of its size that a node keeps, however far away the camera is
const MAX_NAME_CHARS = 32; // characters of a name
const KINDS = 7;

/** What is lit: all of it is drawn on top of the rest, which is dimmed. @typedef {{node: number, edge: number}} Highlight */

/** A canvas with a camera. */
export class GraphCanvas {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.scale = 1;
    this.x = 0; // what stands in the middle
    this.y = 0;
    this.width = 1;
    this.height = 1;
    this.dpr = 1;
    /** @type {string[]} */
    this.fills = [];
    this.ink = this.line = this.accent = this.paper = this.font = "";
    /** @type {Map<string, number>} */
    this.kinds = new Map();
  }

  /** Take the size of the canvas on the screen; return whether it changed. */
  measure() {
    const { clientWidth, clientHeight } = this.canvas;
    const dpr = Math.min(3, devicePixelRatio || 1);
    if (clientWidth === this.width && clientHeight === this.height && dpr === this.dpr) return false;
    Object.assign(this, { width: clientWidth || 1, height: clientHeight || 1, dpr });
    this.canvas.width = Math.round(this.width * dpr);
    this.canvas.height = Math.round(this.height * dpr);
    return true;
  }

  /** Read the colours anew: they follow the theme. */
  readColours() {
    const probe = this.canvas.parentElement ?? this.canvas;
    const style = getComputedStyle(probe);
    this.font = style.fontFamily;
    const before = probe.style.color;
    /** @param {string} name */
    const read = (name) => {
      probe.style.color = `var(${name})`;
      return style.color;
    };
    this.fills = Array.from({ length: KINDS }, (_, kind) => read(`--kind-${kind}`));
    [this.ink, this.line, this.accent, this.paper] = ["--ink", "--strong-line", "--accent", "--paper"].map(read);
    probe.style.color = before;
  }

  /** How much larger nodes are drawn than they are, so that they are seen from far. */
  get nodeScale() {
    return Math.max(1, MIN_NODE_SCALE / this.scale);
  }

  /** @param {number} x @param {number} y */
  toGraph(x, y) {
    return { x: (x - this.width / 2) / this.scale + this.x, y: (y - this.height / 2) / this.scale + this.y };
  }

  /** @param {Network} network @param {Highlight} hover @param {Highlight} chosen */
  draw(network, hover, chosen) {
    const { pen, dpr } = this;
    pen.setTransform(dpr, 0, 0, dpr, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.setTransform(dpr * this.scale, 0, 0, dpr * this.scale, dpr * (this.width / 2 - this.x * this.scale), dpr * (this.height / 2 - this.y * this.scale));
    const light = hover.node >= 0 || hover.edge >= 0 ? hover : chosen;
    const lit = highlightedNodes(network, light);
    this.drawEdges(network, light, lit);
    this.drawNodes(network, lit, chosen.node);
    this.drawNames(network, lit, light.node, chosen.node);
  }

  /** @param {Network} network @param {Highlight} light @param {Set<number> | null} lit */
  drawEdges(network, light, lit) {
    const { pen } = this;
    const { sources, targets, x, y } = network.layout;
    const faint = new Path2D();
    const strong = new Path2D();
    const bright = new Path2D();
    for (let edge = 0; edge < sources.length; edge++) {
      const from = sources[edge];
      const to = targets[edge];
      const shining = edge === light.edge || (light.node >= 0 && (from === light.node || to === light.node));
      const path = shining ? bright : network.edges[edge].weight > 2 || network.edges[edge].kind ? strong : faint;
      path.moveTo(x[from], y[from]);
      path.lineTo(x[to], y[to]);
    }
    pen.strokeStyle = this.line;
    // One pixel of the device is drawn as a hair, which costs a tenth of anything wider; so strength is shown by tone.
    pen.lineWidth = 0.99 / (this.scale * this.dpr);
    const crowd = Math.min(1, 1200 / (sources.length + 1));
    pen.globalAlpha = lit ? 0.12 : 0.18 + 0.27 * crowd;
    pen.stroke(faint);
    pen.globalAlpha = lit ? 0.2 : 0.35 + 0.45 * crowd;
    pen.stroke(strong);
    pen.globalAlpha = 0.9;
    pen.strokeStyle = this.accent;
    pen.lineWidth = 1.6 / this.scale;
    pen.stroke(bright);
    pen.globalAlpha = 1;
  }

  /** @param {Network} network @param {Set<number> | null} lit @param {number} chosen */
  drawNodes(network, lit, chosen) {
    const { pen } = this;
    const { x, y } = network.layout;
    const { nodeScale } = this;
    const paths = Array.from({ length: 2 * KINDS }, () => new Path2D());
    network.nodes.forEach((node, place) => {
      const kind = this.kinds.get(node.kind) ?? 0;
      const path = paths[kind + (lit && !lit.has(place) ? KINDS : 0)];
      const radius = network.radius[place] * nodeScale;
      path.moveTo(x[place] + radius, y[place]);
      path.arc(x[place], y[place], radius, 0, 2 * Math.PI);
    });
    paths.forEach((path, number) => {
      pen.globalAlpha = number < KINDS ? 1 : 0.25;
      pen.fillStyle = this.fills[number % KINDS];
      pen.fill(path);
    });
    pen.globalAlpha = 1;
    if (chosen < 0) return;
    pen.strokeStyle = this.accent;
    pen.lineWidth = 2.5 / this.scale;
    pen.beginPath();
    pen.arc(x[chosen], y[chosen], network.radius[chosen] * nodeScale + 3 / this.scale, 0, 2 * Math.PI);
    pen.stroke();
  }

  /** Write names, those that are lit first, then the largest; one that would cover another is left out. @param {Network} network @param {Set<number> | null} lit @param {number} first @param {number} chosen */
  drawNames(network, lit, first, chosen) {
    const { pen, scale } = this;
    const { x, y } = network.layout;
    const size = scale * this.nodeScale;
    const largest = network.nodes.map((_, node) => node).filter((node) => (lit ? lit.has(node) : node < ALWAYS_NAMED || 2 * network.radius[node] * size >= MIN_NAMED_PIXELS));
    const order = [...new Set([first, chosen].filter((node) => node >= 0)), ...largest.filter((node) => node !== first && node !== chosen)];
    pen.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.lineJoin = "round";
    /** @type {number[][]} */
    const taken = [];
    for (const node of order) {
      if (taken.length >= MAX_NAMES) break;
      const bold = node === first || node === chosen;
      pen.font = `${bold ? 600 : 400} ${bold ? 13 : 12}px ${this.font}`;
      const name = network.nodes[node].name;
      const text = name.length > MAX_NAME_CHARS ? `${name.slice(0, MAX_NAME_CHARS)}…` : name;
      const wide = pen.measureText(text).width + 6;
      const left = (x[node] - this.x) * scale + this.width / 2 - wide / 2;
      const top = (y[node] - this.y) * scale + this.height / 2 + network.radius[node] * size + 2;
      const box = [left, top, left + wide, top + 15];
      if (box[2] < 0 || box[0] > this.width || box[3] < 0 || box[1] > this.height) continue;
      if (!bold && taken.some((one) => one[0] < box[2] && one[2] > box[0] && one[1] < box[3] && one[3] > box[1])) continue;
      taken.push(box);
      pen.strokeStyle = this.paper;
      pen.lineWidth = 3;
      pen.strokeText(text, left + wide / 2, top);
      pen.fillStyle = this.ink;
      pen.fillText(text, left + wide / 2, top);
    }
  }
}

/** Return what is lit by a node with all beside it, or by an edge; null if nothing is. @param {Network} network @param {Highlight} light */
function highlightedNodes(network, light) {
  if (light.node >= 0) return new Set([light.node, ...(network.neighbours[light.node] ?? [])]);
  if (light.edge >= 0) return new Set([network.layout.sources[light.edge], network.layout.targets[light.edge]]);
  return null;
}
