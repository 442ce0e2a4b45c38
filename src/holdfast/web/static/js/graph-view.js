// A graph on its stage: it moves until it has cooled down, is drawn at most once a frame, and then not at all.

import { watchGestures } from "./gestures.js";
import { GraphCanvas } from "./graph-canvas.js";
import { GraphModel } from "./graph-model.js";

const MAX_SCALE = 6;
const MIN_SCALE = 0.05;
const SELECTED_SCALE = 1.1; // how near the camera comes to what is chosen
const TICKS = 2; // in a frame, at most
const FRAME_BUDGET_MS = 7; // milliseconds of a frame for ticks
const LAYOUT_SLICE_MS = 30; // milliseconds in which a layout is computed at once, where nothing may move
const GLIDE = 0.22; // of the way to where the camera goes, in a frame
const NOTHING = { node: -1, edge: -1 };
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** @typedef {import("./graph-model.js").GraphNode} GraphNode */
/** @typedef {import("./graph-model.js").GraphEdge} GraphEdge */

/** Shows a graph on a canvas. */
export class GraphView {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{chosen: (key: string | null) => void, joined: (edge: GraphEdge) => void}} told
   */
  constructor(canvas, told) {
    this.canvas = canvas;
    this.told = told;
    this.network = new GraphModel();
    this.picture = new GraphCanvas(canvas);
    this.hover = NOTHING;
    this.chosen = NOTHING;
    this.draggedNode = -1; // the node that is dragged
    this.fitting = true; // the camera shows everything until somebody moves it
    this.targetScale = 0; // how near the camera comes to what was chosen, which it follows; 0: it stands
    this.frame = 0;
    this.frames = 0;
    this.picture.readColours();
    const again = () => {
      this.picture.readColours();
      this.requestFrame();
    };
    new ResizeObserver(() => this.requestFrame()).observe(canvas);
    new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    watchGestures(canvas, this.gestureHandlers());
  }

  /** Show a graph, or the same one otherwise. @param {GraphNode[]} nodes @param {GraphEdge[]} edges @param {Map<string, number>} kinds */
  show(nodes, edges, kinds) {
    const chosen = this.network.nodes[this.chosen.node]?.key ?? null;
    this.picture.kinds = kinds;
    this.network.show(nodes, edges);
    this.hover = NOTHING;
    this.chosen = { node: chosen === null ? -1 : this.network.indexOf(chosen), edge: -1 };
    if (reducedMotion.matches) this.computeLayout();
    this.requestFrame();
  }

  /** Compute the layout without showing how, a portion at a time. */
  computeLayout() {
    const { layout } = this.network;
    const until = performance.now() + LAYOUT_SLICE_MS;
    while (!layout.settled && performance.now() < until) layout.tick();
    if (!layout.settled) setTimeout(() => layout === this.network.layout && this.computeLayout());
    else this.requestFrame();
  }

  /** Choose a node, and bring it into the middle. @param {string | null} key */
  selectNode(key) {
    this.chosen = { node: key === null ? -1 : this.network.indexOf(key), edge: -1 };
    this.targetScale = this.chosen.node < 0 ? 0 : Math.max(this.picture.scale, SELECTED_SCALE);
    if (this.targetScale) this.fitting = false;
    this.requestFrame();
  }

  /** Choose the edge between two nodes. @param {string} source @param {string} target */
  selectEdge(source, target) {
    const edge = this.network.edges.findIndex((one) => (one.source === source && one.target === target) || (one.source === target && one.target === source));
    this.chosen = { node: this.chosen.node, edge };
    this.requestFrame();
  }

  /** Light a node with what stands beside it, for as long as somebody points at it. @param {string | null} key */
  highlight(key) {
    this.hover = { node: key === null ? -1 : this.network.indexOf(key), edge: -1 };
    this.requestFrame();
  }

  /** @param {number} factor */
  zoom(factor, x = this.picture.width / 2, y = this.picture.height / 2) {
    const { picture } = this;
    this.fitting = false;
    this.targetScale = 0;
    const under = picture.toGraph(x, y);
    picture.scale = Math.max(MIN_SCALE, Math.min(MAX_SCALE, picture.scale * factor));
    const now = picture.toGraph(x, y);
    picture.x += under.x - now.x;
    picture.y += under.y - now.y;
    this.requestFrame();
  }

  /** Show everything. */
  fit() {
    this.fitting = true;
    this.targetScale = 0;
    this.requestFrame();
  }

  // -------------------------------------------------------------- frames

  /** Draw in the next frame. */
  requestFrame() {
    this.canvas.dataset.state = "moving";
    this.frame ||= requestAnimationFrame(() => this.drawFrame());
  }

  drawFrame() {
    this.frame = 0;
    const { layout } = this.network;
    if (!reducedMotion.matches) {
      const until = performance.now() + FRAME_BUDGET_MS;
      for (let tick = 0; tick < TICKS && !layout.settled && performance.now() < until; tick++) layout.tick();
    }
    this.picture.measure();
    this.moveCamera();
    if (this.fitting) this.fitCamera();
    if (layout.settled || !reducedMotion.matches || this.draggedNode >= 0) this.picture.draw(this.network, this.hover, this.chosen);
    this.frames++;
    if (!reducedMotion.matches && (this.targetScale || !layout.settled)) this.requestFrame();
    else if (layout.settled) this.canvas.dataset.state = "resting";
  }

  /** Bring the camera nearer to what was chosen, which may still move itself. */
  moveCamera() {
    const { picture, targetScale } = this;
    const { x, y, settled } = this.network.layout;
    const node = this.chosen.node;
    if (!targetScale || node < 0) return;
    const share = reducedMotion.matches ? 1 : GLIDE;
    picture.x += (x[node] - picture.x) * share;
    picture.y += (y[node] - picture.y) * share;
    picture.scale += (targetScale - picture.scale) * share;
    const there = Math.hypot(x[node] - picture.x, y[node] - picture.y) * picture.scale < 0.5 && Math.abs(targetScale - picture.scale) < 0.01;
    if (there && settled) this.targetScale = 0;
  }

  fitCamera() {
    const { left, right, top, bottom } = this.network.bounds();
    const { picture } = this;
    picture.x = (left + right) / 2;
    picture.y = (top + bottom) / 2;
    picture.scale = Math.max(MIN_SCALE, Math.min(2, (picture.width - 60) / (right - left), (picture.height - 70) / (bottom - top)));
  }

  // -------------------------------------------------------------- hands

  /** @returns {import("./gestures.js").GestureHandlers} */
  gestureHandlers() {
    const { picture } = this;
    const node = (/** @type {number} */ x, /** @type {number} */ y) => {
      const at = picture.toGraph(x, y);
      return this.network.nodeAt(at.x, at.y, 4 / picture.scale, picture.nodeScale);
    };
    const edge = (/** @type {number} */ x, /** @type {number} */ y) => {
      const at = picture.toGraph(x, y);
      return this.network.edgeAt(at.x, at.y, 5 / picture.scale);
    };
    return {
      take: (x, y) => (this.draggedNode = node(x, y)) >= 0,
      drag: (x, y) => {
        const at = picture.toGraph(x, y);
        this.fitting = false;
        this.network.layout.hold(this.draggedNode, at.x, at.y);
        this.network.layout.reheat();
        this.requestFrame();
      },
      drop: () => {
        if (this.draggedNode >= 0) this.network.layout.release(this.draggedNode);
        this.draggedNode = -1;
        if (reducedMotion.matches) this.computeLayout();
      },
      pan: (dx, dy) => {
        this.fitting = false;
        this.targetScale = 0;
        picture.x -= dx / picture.scale;
        picture.y -= dy / picture.scale;
        this.requestFrame();
      },
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      click: (x, y) => {
        const hit = node(x, y);
        const line = hit < 0 ? edge(x, y) : -1;
        if (line >= 0) this.told.joined(this.network.edges[line]);
        else this.told.chosen(this.network.nodes[hit]?.key ?? null);
      },
      point: (x, y) => {
        const hit = node(x, y);
        const line = hit < 0 ? edge(x, y) : -1;
        if (hit === this.hover.node && line === this.hover.edge) return;
        this.hover = { node: hit, edge: line };
        this.canvas.classList.toggle("pointing", hit >= 0 || line >= 0);
        this.requestFrame();
      },
      leave: () => this.highlight(null),
    };
  }
}
