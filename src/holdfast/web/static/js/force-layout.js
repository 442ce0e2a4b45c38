// A force-directed layout: nodes repel each other, edges attract their ends, and cooling ends the movement.
//
// Every node repels every other one. The page draws a few hundred nodes: 300 take 0.25 ms per tick, and 0.18 ms
// with a Barnes-Hut tree, which needs 80 more lines (docs/decisions/0017). A tick allocates nothing.

const COOLING = 0.0228; // reaches MIN_HEAT after 300 ticks
const MIN_HEAT = 0.001;
const FRICTION = 0.6;
const REPULSION = 110;
const EDGE_LENGTH = 40;
const GRAVITY = 0.08; // keeps unconnected nodes in view
const GOLDEN_ANGLE = Math.PI * (3 - Math.sqrt(5));

/** Positions of nodes; each `tick` moves them until they are `settled`. */
export class Layout {
  /**
   * @param {number} count
   * @param {Int32Array} sources
   * @param {Int32Array} targets
   */
  constructor(count, sources, targets) {
    this.count = count;
    this.sources = sources;
    this.targets = targets;
    this.x = new Float64Array(count);
    this.y = new Float64Array(count);
    this.heat = 1;
    this.vx = new Float64Array(count);
    this.vy = new Float64Array(count);
    this.held = new Uint8Array(count);
    this.degree = new Int32Array(count);
    for (let edge = 0; edge < sources.length; edge++) {
      this.degree[sources[edge]]++;
      this.degree[targets[edge]]++;
    }
    for (let node = 0; node < count; node++) {
      const away = 14 * Math.sqrt(node + 0.5);
      this.x[node] = away * Math.cos(node * GOLDEN_ANGLE);
      this.y[node] = away * Math.sin(node * GOLDEN_ANGLE);
    }
  }

  get settled() {
    return this.heat < MIN_HEAT || this.count < 2;
  }

  reheat(heat = 0.3) {
    this.heat = Math.max(this.heat, heat);
  }

  /** Move a node and fix it there. @param {number} node @param {number} x @param {number} y */
  hold(node, x, y) {
    this.held[node] = 1;
    this.x[node] = x;
    this.y[node] = y;
  }

  /** @param {number} node */
  release(node) {
    this.held[node] = 0;
  }

  tick() {
    this.heat -= this.heat * COOLING;
    this.pull();
    this.push();
    const { x, y, vx, vy, held, heat } = this;
    for (let node = 0; node < this.count; node++) {
      if (held[node]) {
        vx[node] = vy[node] = 0;
        continue;
      }
      vx[node] = (vx[node] - x[node] * GRAVITY * heat) * FRICTION;
      vy[node] = (vy[node] - y[node] * GRAVITY * heat) * FRICTION;
      x[node] += vx[node];
      y[node] += vy[node];
    }
  }

  /** Pull the ends of each edge towards its length. A node with many edges moves less. */
  pull() {
    const { sources, targets, x, y, vx, vy, degree, heat } = this;
    for (let edge = 0; edge < sources.length; edge++) {
      const source = sources[edge];
      const target = targets[edge];
      let dx = x[target] + vx[target] - x[source] - vx[source] || 0.01;
      let dy = y[target] + vy[target] - y[source] - vy[source] || 0.01;
      const away = Math.sqrt(dx * dx + dy * dy);
      const force = (((away - EDGE_LENGTH) / away) * heat) / Math.min(degree[source], degree[target]);
      const share = degree[source] / (degree[source] + degree[target]);
      dx *= force;
      dy *= force;
      vx[target] -= dx * share;
      vy[target] -= dy * share;
      vx[source] += dx * (1 - share);
      vy[source] += dy * (1 - share);
    }
  }

  push() {
    const { x, y, vx, vy, count } = this;
    const strength = REPULSION * this.heat;
    for (let node = 0; node < count; node++) {
      for (let other = 0; other < node; other++) {
        const dx = x[node] - x[other] || 0.01;
        const dy = y[node] - y[other] || 0.01;
        const force = strength / Math.max(dx * dx + dy * dy, 16);
        vx[node] += dx * force;
        vy[node] += dy * force;
        vx[other] -= dx * force;
        vy[other] -= dy * force;
      }
    }
  }
}
