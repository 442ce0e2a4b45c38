// A graph on its stage: it moves until it has cooled down, is drawn at most once a frame, and then not at all.

import { gestures } from "./gestures.js";
import { Network } from "./network.js";
import { Picture } from "./picture.js";

const NEAREST = 6;
const FARTHEST = 0.05;
const CLOSE = 1.1; // how near the camera comes to what is chosen
const TICKS = 2; // in a frame, at most
const PATIENCE = 7; // milliseconds of a frame for ticks
const PORTION = 30; // milliseconds in which a layout is computed at once, where nothing may move
const GLIDE = 0.22; // of the way to where the camera goes, in a frame
const NOTHING = { node: -1, edge: -1 };
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** @typedef {import("./network.js").GraphNode} GraphNode */
/** @typedef {import("./network.js").GraphEdge} GraphEdge */

/** Shows a graph on a canvas. */
export class Stage {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{chosen: (key: string | null) => void, joined: (edge: GraphEdge) => void}} told
   */
  constructor(canvas, told) {
    this.canvas = canvas;
    this.told = told;
    this.network = new Network();
    this.picture = new Picture(canvas);
    this.hover = NOTHING;
    this.chosen = NOTHING;
    this.taken = -1; // the node that is dragged
    this.fitting = true; // the camera shows everything until somebody moves it
    this.going = 0; // how near the camera comes to what was chosen, which it follows; 0: it stands
    this.frame = 0;
    this.frames = 0;
    this.picture.readColours();
    const again = () => {
      this.picture.readColours();
      this.wake();
    };
    new ResizeObserver(() => this.wake()).observe(canvas);
    new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    gestures(canvas, this.hands());
  }

  /** Show a graph, or the same one otherwise. @param {GraphNode[]} nodes @param {GraphEdge[]} edges @param {Map<string, number>} kinds */
  show(nodes, edges, kinds) {
    const chosen = this.network.nodes[this.chosen.node]?.key ?? null;
    this.picture.kinds = kinds;
    this.network.show(nodes, edges);
    this.hover = NOTHING;
    this.chosen = { node: chosen === null ? -1 : this.network.number(chosen), edge: -1 };
    if (calm.matches) this.settle();
    this.wake();
  }

  /** Compute the layout without showing how, a portion at a time. */
  settle() {
    const { layout } = this.network;
    const until = performance.now() + PORTION;
    while (!layout.resting && performance.now() < until) layout.tick();
    if (!layout.resting) setTimeout(() => layout === this.network.layout && this.settle());
    else this.wake();
  }

  /** Choose a node, and bring it into the middle. @param {string | null} key */
  choose(key) {
    this.chosen = { node: key === null ? -1 : this.network.number(key), edge: -1 };
    this.going = this.chosen.node < 0 ? 0 : Math.max(this.picture.scale, CLOSE);
    if (this.going) this.fitting = false;
    this.wake();
  }

  /** Choose the edge between two nodes. @param {string} source @param {string} target */
  join(source, target) {
    const edge = this.network.edges.findIndex((one) => (one.source === source && one.target === target) || (one.source === target && one.target === source));
    this.chosen = { node: this.chosen.node, edge };
    this.wake();
  }

  /** Light a node with what stands beside it, for as long as somebody points at it. @param {string | null} key */
  light(key) {
    this.hover = { node: key === null ? -1 : this.network.number(key), edge: -1 };
    this.wake();
  }

  /** @param {number} factor */
  zoom(factor, x = this.picture.width / 2, y = this.picture.height / 2) {
    const { picture } = this;
    this.fitting = false;
    this.going = 0;
    const under = picture.toGraph(x, y);
    picture.scale = Math.max(FARTHEST, Math.min(NEAREST, picture.scale * factor));
    const now = picture.toGraph(x, y);
    picture.x += under.x - now.x;
    picture.y += under.y - now.y;
    this.wake();
  }

  /** Show everything. */
  fit() {
    this.fitting = true;
    this.going = 0;
    this.wake();
  }

  // -------------------------------------------------------------- frames

  /** Draw in the next frame. */
  wake() {
    this.canvas.dataset.state = "moving";
    this.frame ||= requestAnimationFrame(() => this.step());
  }

  step() {
    this.frame = 0;
    const { layout } = this.network;
    if (!calm.matches) {
      const until = performance.now() + PATIENCE;
      for (let tick = 0; tick < TICKS && !layout.resting && performance.now() < until; tick++) layout.tick();
    }
    this.picture.measure();
    this.glide();
    if (this.fitting) this.fitNow();
    if (layout.resting || !calm.matches || this.taken >= 0) this.picture.draw(this.network, this.hover, this.chosen);
    this.frames++;
    if (!calm.matches && (this.going || !layout.resting)) this.wake();
    else if (layout.resting) this.canvas.dataset.state = "resting";
  }

  /** Bring the camera nearer to what was chosen, which may still move itself. */
  glide() {
    const { picture, going } = this;
    const { x, y, resting } = this.network.layout;
    const node = this.chosen.node;
    if (!going || node < 0) return;
    const share = calm.matches ? 1 : GLIDE;
    picture.x += (x[node] - picture.x) * share;
    picture.y += (y[node] - picture.y) * share;
    picture.scale += (going - picture.scale) * share;
    const there = Math.hypot(x[node] - picture.x, y[node] - picture.y) * picture.scale < 0.5 && Math.abs(going - picture.scale) < 0.01;
    if (there && resting) this.going = 0;
  }

  fitNow() {
    const { left, right, top, bottom } = this.network.bounds();
    const { picture } = this;
    picture.x = (left + right) / 2;
    picture.y = (top + bottom) / 2;
    picture.scale = Math.max(FARTHEST, Math.min(2, (picture.width - 60) / (right - left), (picture.height - 70) / (bottom - top)));
  }

  // -------------------------------------------------------------- hands

  /** @returns {import("./gestures.js").Hands} */
  hands() {
    const { picture } = this;
    const node = (/** @type {number} */ x, /** @type {number} */ y) => {
      const at = picture.toGraph(x, y);
      return this.network.nodeAt(at.x, at.y, 4 / picture.scale, picture.growth);
    };
    const edge = (/** @type {number} */ x, /** @type {number} */ y) => {
      const at = picture.toGraph(x, y);
      return this.network.edgeAt(at.x, at.y, 5 / picture.scale);
    };
    return {
      take: (x, y) => (this.taken = node(x, y)) >= 0,
      drag: (x, y) => {
        const at = picture.toGraph(x, y);
        this.fitting = false;
        this.network.layout.hold(this.taken, at.x, at.y);
        this.network.layout.warm();
        this.wake();
      },
      drop: () => {
        if (this.taken >= 0) this.network.layout.letGo(this.taken);
        this.taken = -1;
        if (calm.matches) this.settle();
      },
      pan: (dx, dy) => {
        this.fitting = false;
        this.going = 0;
        picture.x -= dx / picture.scale;
        picture.y -= dy / picture.scale;
        this.wake();
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
        this.wake();
      },
      leave: () => this.light(null),
    };
  }
}
