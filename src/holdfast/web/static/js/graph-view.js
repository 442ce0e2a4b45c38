// An interactive graph. It moves until its layout is settled and is drawn at most once per frame, then not at all.

import { watchGestures } from "./gestures.js";
import { GraphCanvas } from "./graph-canvas.js";
import { GraphModel } from "./graph-model.js";

const MAX_SCALE = 6;
const MIN_SCALE = 0.05;
const SELECTED_SCALE = 1.1; // of the camera, at least, for a selected node
const TICKS = 2; // per frame, at most
const FRAME_BUDGET_MS = 7; // for ticks
const LAYOUT_SLICE_MS = 30; // with reduced motion the layout is computed in slices
const GLIDE = 0.22; // share of the camera's way per frame
const NOTHING = { node: -1, edge: -1 };
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** @typedef {import("./graph-model.js").GraphNode} GraphNode */
/** @typedef {import("./graph-model.js").GraphEdge} GraphEdge */

export class GraphView {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{chosen: (key: string | null) => void, joined: (edge: GraphEdge) => void}} handlers
   */
  constructor(canvas, handlers) {
    this.canvas = canvas;
    this.handlers = handlers;
    this.model = new GraphModel();
    this.graphCanvas = new GraphCanvas(canvas);
    this.hover = NOTHING;
    this.selected = NOTHING;
    this.draggedNode = -1;
    this.fitting = true; // the camera shows everything until the user moves it
    this.targetScale = 0; // while the camera follows the selected node; 0: it does not move
    this.frame = 0;
    this.frames = 0;
    this.graphCanvas.readColours();
    const again = () => {
      this.graphCanvas.readColours();
      this.requestFrame();
    };
    new ResizeObserver(() => this.requestFrame()).observe(canvas);
    new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    watchGestures(canvas, this.gestureHandlers());
  }

  /** Show a graph, or update it. @param {GraphNode[]} nodes @param {GraphEdge[]} edges @param {Map<string, number>} kinds */
  show(nodes, edges, kinds) {
    const chosen = this.model.nodes[this.selected.node]?.key ?? null;
    this.graphCanvas.kinds = kinds;
    this.model.show(nodes, edges);
    this.hover = NOTHING;
    this.selected = { node: chosen === null ? -1 : this.model.indexOf(chosen), edge: -1 };
    if (reducedMotion.matches) this.computeLayout();
    this.requestFrame();
  }

  /** Compute the layout without animation, in slices. */
  computeLayout() {
    const { layout } = this.model;
    const until = performance.now() + LAYOUT_SLICE_MS;
    while (!layout.settled && performance.now() < until) layout.tick();
    if (!layout.settled) setTimeout(() => layout === this.model.layout && this.computeLayout());
    else this.requestFrame();
  }

  /** Select a node and move the camera to it. @param {string | null} key */
  selectNode(key) {
    this.selected = { node: key === null ? -1 : this.model.indexOf(key), edge: -1 };
    this.targetScale = this.selected.node < 0 ? 0 : Math.max(this.graphCanvas.scale, SELECTED_SCALE);
    if (this.targetScale) this.fitting = false;
    this.requestFrame();
  }

  /** @param {string} source @param {string} target */
  selectEdge(source, target) {
    const edge = this.model.edges.findIndex((one) => (one.source === source && one.target === target) || (one.source === target && one.target === source));
    this.selected = { node: this.selected.node, edge };
    this.requestFrame();
  }

  /** Highlight a node and its neighbours, until the next call. @param {string | null} key */
  highlight(key) {
    this.hover = { node: key === null ? -1 : this.model.indexOf(key), edge: -1 };
    this.requestFrame();
  }

  /** @param {number} factor */
  zoom(factor, x = this.graphCanvas.width / 2, y = this.graphCanvas.height / 2) {
    const { graphCanvas } = this;
    this.fitting = false;
    this.targetScale = 0;
    const under = graphCanvas.toGraph(x, y);
    graphCanvas.scale = Math.max(MIN_SCALE, Math.min(MAX_SCALE, graphCanvas.scale * factor));
    const now = graphCanvas.toGraph(x, y);
    graphCanvas.x += under.x - now.x;
    graphCanvas.y += under.y - now.y;
    this.requestFrame();
  }

  /** Let the camera show everything. */
  fit() {
    this.fitting = true;
    this.targetScale = 0;
    this.requestFrame();
  }

  requestFrame() {
    this.canvas.dataset.state = "moving";
    this.frame ||= requestAnimationFrame(() => this.drawFrame());
  }

  drawFrame() {
    this.frame = 0;
    const { layout } = this.model;
    if (!reducedMotion.matches) {
      const until = performance.now() + FRAME_BUDGET_MS;
      for (let tick = 0; tick < TICKS && !layout.settled && performance.now() < until; tick++) layout.tick();
    }
    this.graphCanvas.measure();
    this.moveCamera();
    if (this.fitting) this.fitCamera();
    if (layout.settled || !reducedMotion.matches || this.draggedNode >= 0) this.graphCanvas.draw(this.model, this.hover, this.selected);
    this.frames++;
    if (!reducedMotion.matches && (this.targetScale || !layout.settled)) this.requestFrame();
    else if (layout.settled) this.canvas.dataset.state = "resting";
  }

  /** Move the camera towards the selected node, which may still move, too. */
  moveCamera() {
    const { graphCanvas, targetScale } = this;
    const { x, y, settled } = this.model.layout;
    const node = this.selected.node;
    if (!targetScale || node < 0) return;
    const share = reducedMotion.matches ? 1 : GLIDE;
    graphCanvas.x += (x[node] - graphCanvas.x) * share;
    graphCanvas.y += (y[node] - graphCanvas.y) * share;
    graphCanvas.scale += (targetScale - graphCanvas.scale) * share;
    const there = Math.hypot(x[node] - graphCanvas.x, y[node] - graphCanvas.y) * graphCanvas.scale < 0.5 && Math.abs(targetScale - graphCanvas.scale) < 0.01;
    if (there && settled) this.targetScale = 0;
  }

  fitCamera() {
    const { left, right, top, bottom } = this.model.bounds();
    const { graphCanvas } = this;
    graphCanvas.x = (left + right) / 2;
    graphCanvas.y = (top + bottom) / 2;
    graphCanvas.scale = Math.max(MIN_SCALE, Math.min(2, (graphCanvas.width - 60) / (right - left), (graphCanvas.height - 70) / (bottom - top)));
  }

  /** @returns {import("./gestures.js").GestureHandlers} */
  gestureHandlers() {
    const { graphCanvas } = this;
    const node = (/** @type {number} */ x, /** @type {number} */ y) => {
      const at = graphCanvas.toGraph(x, y);
      return this.model.nodeAt(at.x, at.y, 4 / graphCanvas.scale, graphCanvas.nodeScale);
    };
    const edge = (/** @type {number} */ x, /** @type {number} */ y) => {
      const at = graphCanvas.toGraph(x, y);
      return this.model.edgeAt(at.x, at.y, 5 / graphCanvas.scale);
    };
    return {
      take: (x, y) => (this.draggedNode = node(x, y)) >= 0,
      drag: (x, y) => {
        const at = graphCanvas.toGraph(x, y);
        this.fitting = false;
        this.model.layout.hold(this.draggedNode, at.x, at.y);
        this.model.layout.reheat();
        this.requestFrame();
      },
      drop: () => {
        if (this.draggedNode >= 0) this.model.layout.release(this.draggedNode);
        this.draggedNode = -1;
        if (reducedMotion.matches) this.computeLayout();
      },
      pan: (dx, dy) => {
        this.fitting = false;
        this.targetScale = 0;
        graphCanvas.x -= dx / graphCanvas.scale;
        graphCanvas.y -= dy / graphCanvas.scale;
        this.requestFrame();
      },
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      click: (x, y) => {
        const hit = node(x, y);
        const line = hit < 0 ? edge(x, y) : -1;
        if (line >= 0) this.handlers.joined(this.model.edges[line]);
        else this.handlers.chosen(this.model.nodes[hit]?.key ?? null);
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
