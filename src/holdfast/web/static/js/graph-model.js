// The data of a drawn graph: nodes and edges by index, neighbours, and positions.

import { Layout } from "./force-layout.js";

/** @typedef {{key: string, name: string, kind: string, documents: number, mentions: number}} GraphNode */
/** @typedef {{source: string, target: string, weight: number, kind: string}} GraphEdge */

/** A graph with its layout. An update keeps the positions of nodes that stay. */
export class GraphModel {
  constructor() {
    /** @type {GraphNode[]} */
    this.nodes = [];
    /** @type {GraphEdge[]} */
    this.edges = [];
    /** @type {Map<string, number>} */
    this.index = new Map();
    /** @type {Set<number>[]} */
    this.neighbours = [];
    this.radius = new Float64Array(0);
    this.layout = new Layout(0, new Int32Array(0), new Int32Array(0));
  }

  /**
   * Replace nodes and edges. Existing nodes keep their positions; new ones start next to a neighbour.
   * @param {GraphNode[]} nodes
   * @param {GraphEdge[]} edges
   */
  show(nodes, edges) {
    const before = this.index;
    const old = this.layout;
    this.nodes = nodes;
    this.index = new Map(nodes.map((node, place) => [node.key, place]));
    this.edges = edges.filter((edge) => edge.source !== edge.target && this.index.has(edge.source) && this.index.has(edge.target));
    const sources = Int32Array.from(this.edges, (edge) => this.indexOf(edge.source));
    const targets = Int32Array.from(this.edges, (edge) => this.indexOf(edge.target));
    this.layout = new Layout(nodes.length, sources, targets);
    this.neighbours = nodes.map(() => new Set());
    sources.forEach((source, edge) => {
      this.neighbours[source].add(targets[edge]);
      this.neighbours[targets[edge]].add(source);
    });
    this.radius = Float64Array.from(nodes, (node) => Math.min(18, 3.5 + 2 * Math.sqrt(node.documents)));
    this.keepPositions(before, old);
  }

  /** @param {Map<string, number>} before @param {Layout} old */
  keepPositions(before, old) {
    const { x, y } = this.layout;
    let kept = 0;
    /** @type {number[]} */
    const fresh = [];
    this.nodes.forEach((node, place) => {
      const was = before.get(node.key);
      if (was === undefined) return fresh.push(place);
      x[place] = old.x[was];
      y[place] = old.y[was];
      kept++;
    });
    if (!kept) return;
    for (const place of fresh) {
      const friend = [...this.neighbours[place]].find((one) => before.has(this.nodes[one].key));
      if (friend === undefined) continue;
      x[place] = x[friend] + 30 * Math.cos(place);
      y[place] = y[friend] + 30 * Math.sin(place);
    }
    this.layout.heat = fresh.length ? 0.5 : 0;
  }

  /** @param {string} key */
  indexOf(key) {
    return this.index.get(key) ?? -1;
  }

  /**
   * Return the topmost node at a position, or -1.
   * @param {number} x
   * @param {number} y
   * @param {number} slack tolerated distance
   * @param {number} growth see `GraphCanvas.nodeScale`
   */
  nodeAt(x, y, slack, growth) {
    for (let node = this.nodes.length - 1; node >= 0; node--) {
      if (Math.hypot(this.layout.x[node] - x, this.layout.y[node] - y) <= this.radius[node] * growth + slack) return node;
    }
    return -1;
  }

  /**
   * Return the nearest edge to a position, or -1.
   * @param {number} x
   * @param {number} y
   * @param {number} slack
   */
  edgeAt(x, y, slack) {
    const { sources, targets, x: xs, y: ys } = this.layout;
    let best = -1;
    let nearest = slack;
    for (let edge = 0; edge < sources.length; edge++) {
      const fromX = xs[sources[edge]];
      const fromY = ys[sources[edge]];
      const dx = xs[targets[edge]] - fromX;
      const dy = ys[targets[edge]] - fromY;
      const share = Math.max(0, Math.min(1, ((x - fromX) * dx + (y - fromY) * dy) / (dx * dx + dy * dy || 1)));
      const away = Math.hypot(fromX + share * dx - x, fromY + share * dy - y);
      if (away < nearest) {
        nearest = away;
        best = edge;
      }
    }
    return best;
  }

  bounds() {
    const { x, y, count } = this.layout;
    const found = { left: -50, right: 50, top: -50, bottom: 50 };
    for (let node = 0; node < count; node++) {
      found.left = Math.min(found.left, x[node] - this.radius[node]);
      found.right = Math.max(found.right, x[node] + this.radius[node]);
      found.top = Math.min(found.top, y[node] - this.radius[node]);
      found.bottom = Math.max(found.bottom, y[node] + this.radius[node]);
    }
    return found;
  }
}
