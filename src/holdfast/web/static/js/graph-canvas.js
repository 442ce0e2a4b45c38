// Draws a graph on a canvas: edges in few strokes, nodes by colour, names only where they fit.

/** @typedef {import("./graph-model.js").GraphModel} GraphModel */

const MAX_NAMES = 40;
const ALWAYS_NAMED = 15; // nodes with the most documents, named at any size
const MIN_NAMED_PIXELS = 11; // diameter from which other nodes are named
const MIN_NODE_SCALE = 0.8; // zooming out never draws nodes smaller than this
const MAX_NAME_CHARS = 32;
const KINDS = 7;

/** The highlighted node or edge; the rest is dimmed. @typedef {{node: number, edge: number}} Highlight */

/** A canvas with a camera: its centre and its scale. */
export class GraphCanvas {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.scale = 1;
    this.x = 0; // centre of the camera
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

  /** Adopt the size of the canvas on the screen. Returns whether it changed. */
  measure() {
    const { clientWidth, clientHeight } = this.canvas;
    const dpr = Math.min(3, devicePixelRatio || 1);
    if (clientWidth === this.width && clientHeight === this.height && dpr === this.dpr) return false;
    Object.assign(this, { width: clientWidth || 1, height: clientHeight || 1, dpr });
    this.canvas.width = Math.round(this.width * dpr);
    this.canvas.height = Math.round(this.height * dpr);
    return true;
  }

  /** Read the colours of the current theme. */
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

  /** The factor that keeps nodes visible when zoomed out. */
  get nodeScale() {
    return Math.max(1, MIN_NODE_SCALE / this.scale);
  }

  /** @param {number} x @param {number} y */
  toGraph(x, y) {
    return { x: (x - this.width / 2) / this.scale + this.x, y: (y - this.height / 2) / this.scale + this.y };
  }

  /** @param {GraphModel} model @param {Highlight} hover @param {Highlight} selected */
  draw(model, hover, selected) {
    const { pen, dpr } = this;
    pen.setTransform(dpr, 0, 0, dpr, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.setTransform(dpr * this.scale, 0, 0, dpr * this.scale, dpr * (this.width / 2 - this.x * this.scale), dpr * (this.height / 2 - this.y * this.scale));
    const highlight = hover.node >= 0 || hover.edge >= 0 ? hover : selected;
    const highlighted = highlightedNodes(model, highlight);
    this.drawEdges(model, highlight, highlighted);
    this.drawNodes(model, highlighted, selected.node);
    this.drawNames(model, highlighted, highlight.node, selected.node);
  }

  /** @param {GraphModel} model @param {Highlight} highlight @param {Set<number> | null} highlighted */
  drawEdges(model, highlight, highlighted) {
    const { pen } = this;
    const { sources, targets, x, y } = model.layout;
    const faint = new Path2D();
    const strong = new Path2D();
    const bright = new Path2D();
    for (let edge = 0; edge < sources.length; edge++) {
      const from = sources[edge];
      const to = targets[edge];
      const shining = edge === highlight.edge || (highlight.node >= 0 && (from === highlight.node || to === highlight.node));
      const path = shining ? bright : model.edges[edge].weight > 2 || model.edges[edge].kind ? strong : faint;
      path.moveTo(x[from], y[from]);
      path.lineTo(x[to], y[to]);
    }
    pen.strokeStyle = this.line;
    // Lines of one device pixel cost a tenth of wider ones, so opacity shows the weight.
    pen.lineWidth = 0.99 / (this.scale * this.dpr);
    const crowd = Math.min(1, 1200 / (sources.length + 1));
    pen.globalAlpha = highlighted ? 0.12 : 0.18 + 0.27 * crowd;
    pen.stroke(faint);
    pen.globalAlpha = highlighted ? 0.2 : 0.35 + 0.45 * crowd;
    pen.stroke(strong);
    pen.globalAlpha = 0.9;
    pen.strokeStyle = this.accent;
    pen.lineWidth = 1.6 / this.scale;
    pen.stroke(bright);
    pen.globalAlpha = 1;
  }

  /** @param {GraphModel} model @param {Set<number> | null} highlighted @param {number} selected */
  drawNodes(model, highlighted, selected) {
    const { pen } = this;
    const { x, y } = model.layout;
    const { nodeScale } = this;
    const paths = Array.from({ length: 2 * KINDS }, () => new Path2D());
    model.nodes.forEach((node, place) => {
      const kind = this.kinds.get(node.kind) ?? 0;
      const path = paths[kind + (highlighted && !highlighted.has(place) ? KINDS : 0)];
      const radius = model.radius[place] * nodeScale;
      path.moveTo(x[place] + radius, y[place]);
      path.arc(x[place], y[place], radius, 0, 2 * Math.PI);
    });
    paths.forEach((path, number) => {
      pen.globalAlpha = number < KINDS ? 1 : 0.25;
      pen.fillStyle = this.fills[number % KINDS];
      pen.fill(path);
    });
    pen.globalAlpha = 1;
    if (selected < 0) return;
    pen.strokeStyle = this.accent;
    pen.lineWidth = 2.5 / this.scale;
    pen.beginPath();
    pen.arc(x[selected], y[selected], model.radius[selected] * nodeScale + 3 / this.scale, 0, 2 * Math.PI);
    pen.stroke();
  }

  /** Draw names: highlighted nodes first, then the largest. A name that would cover another is skipped. @param {GraphModel} model @param {Set<number> | null} highlighted @param {number} first @param {number} selected */
  drawNames(model, highlighted, first, selected) {
    const { pen, scale } = this;
    const { x, y } = model.layout;
    const size = scale * this.nodeScale;
    const largest = model.nodes.map((_, node) => node).filter((node) => (highlighted ? highlighted.has(node) : node < ALWAYS_NAMED || 2 * model.radius[node] * size >= MIN_NAMED_PIXELS));
    const order = [...new Set([first, selected].filter((node) => node >= 0)), ...largest.filter((node) => node !== first && node !== selected)];
    pen.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.lineJoin = "round";
    /** @type {number[][]} */
    const taken = [];
    for (const node of order) {
      if (taken.length >= MAX_NAMES) break;
      const bold = node === first || node === selected;
      pen.font = `${bold ? 600 : 400} ${bold ? 13 : 12}px ${this.font}`;
      const name = model.nodes[node].name;
      const text = name.length > MAX_NAME_CHARS ? `${name.slice(0, MAX_NAME_CHARS)}…` : name;
      const wide = pen.measureText(text).width + 6;
      const left = (x[node] - this.x) * scale + this.width / 2 - wide / 2;
      const top = (y[node] - this.y) * scale + this.height / 2 + model.radius[node] * size + 2;
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

/** Return a highlighted node with its neighbours, or the ends of a highlighted edge, else null. @param {GraphModel} model @param {Highlight} highlight */
function highlightedNodes(model, highlight) {
  if (highlight.node >= 0) return new Set([highlight.node, ...(model.neighbours[highlight.node] ?? [])]);
  if (highlight.edge >= 0) return new Set([model.layout.sources[highlight.edge], model.layout.targets[highlight.edge]]);
  return null;
}
