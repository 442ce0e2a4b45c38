// Where the nodes of a graph stand: they push each other away, edges pull them together, and all cool down and rest.
//
// The push of what is far is that of its whole cell (Barnes and Hut), so a tick costs about n log n. All numbers stand in
// typed arrays that are made once; a tick makes nothing that would have to be collected.

const COOLING = 0.0228; // after 300 ticks it is cold
const COLD = 0.001;
const FRICTION = 0.6;
const PUSH = 110;
const LENGTH = 40; // of an edge
const GRAVITY = 0.08; // keeps what is joined by nothing in sight
const FAR = 0.81; // square of the width of a cell over its distance, below which it counts as one
const DEEPEST = 30;
const EMPTY = -1; // a place in a cell; below it are nodes, as -2 - node; from 0 on are cells
const TURN = Math.PI * (3 - Math.sqrt(5));

/** A layout under way. */
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
      this.x[node] = away * Math.cos(node * TURN);
      this.y[node] = away * Math.sin(node * TURN);
    }
    const cells = 4 * count + 64;
    this.kids = new Int32Array(4 * cells);
    this.width = new Float64Array(cells);
    this.mass = new Float64Array(cells);
    this.massX = new Float64Array(cells);
    this.massY = new Float64Array(cells);
    this.stack = new Int32Array(4 * DEEPEST + 8);
    this.cells = 0;
  }

  get resting() {
    return this.heat < COLD || this.count < 2;
  }

  /** Let everything move again, a little. */
  warm(heat = 0.3) {
    this.heat = Math.max(this.heat, heat);
  }

  /** Put a node somewhere and keep it there. @param {number} node @param {number} x @param {number} y */
  hold(node, x, y) {
    this.held[node] = 1;
    this.x[node] = x;
    this.y[node] = y;
  }

  /** @param {number} node */
  letGo(node) {
    this.held[node] = 0;
  }

  /** Move everything by one step of time. */
  tick() {
    this.heat -= this.heat * COOLING;
    this.pull();
    this.plant();
    for (let node = 0; node < this.count; node++) this.push(node);
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

  /** Pull what an edge joins to its length; what has many edges moves less, and each of them pulls less. */
  pull() {
    const { sources, targets, x, y, vx, vy, degree, heat } = this;
    for (let edge = 0; edge < sources.length; edge++) {
      const source = sources[edge];
      const target = targets[edge];
      let dx = x[target] + vx[target] - x[source] - vx[source] || 0.01;
      let dy = y[target] + vy[target] - y[source] - vy[source] || 0.01;
      const away = Math.sqrt(dx * dx + dy * dy);
      const force = (((away - LENGTH) / away) * heat) / Math.min(degree[source], degree[target]);
      const share = degree[source] / (degree[source] + degree[target]);
      dx *= force;
      dy *= force;
      vx[target] -= dx * share;
      vy[target] -= dy * share;
      vx[source] += dx * (1 - share);
      vy[source] += dy * (1 - share);
    }
  }

  /** Plant the tree of cells over all nodes. */
  plant() {
    const { x, y, count } = this;
    let most = 1;
    for (let node = 0; node < count; node++) most = Math.max(most, Math.abs(x[node]), Math.abs(y[node]));
    this.cells = 0;
    this.cell(2 * most);
    for (let node = 0; node < count; node++) this.put(node, most);
    const { kids, mass, massX, massY } = this;
    for (let cell = this.cells - 1; cell >= 0; cell--) {
      let sum = 0;
      let sumX = 0;
      let sumY = 0;
      for (let place = 4 * cell; place < 4 * cell + 4; place++) {
        const kid = kids[place];
        if (kid === EMPTY) continue;
        const weight = kid >= 0 ? mass[kid] : 1;
        sum += weight;
        sumX += weight * (kid >= 0 ? massX[kid] : x[-2 - kid]);
        sumY += weight * (kid >= 0 ? massY[kid] : y[-2 - kid]);
      }
      mass[cell] = sum;
      massX[cell] = sumX / sum;
      massY[cell] = sumY / sum;
    }
  }

  /** @param {number} width */
  cell(width) {
    this.kids.fill(EMPTY, 4 * this.cells, 4 * this.cells + 4);
    this.width[this.cells] = width;
    return this.cells++;
  }

  /** Put a node into the tree: down to an empty place; a place that is taken becomes a cell. @param {number} node @param {number} most */
  put(node, most) {
    const { kids, x, y } = this;
    let cell = 0;
    let middleX = 0;
    let middleY = 0;
    let half = most;
    for (let depth = 0; depth < DEEPEST && this.cells < this.width.length; depth++) {
      const place = 4 * cell + (x[node] >= middleX ? 1 : 0) + (y[node] >= middleY ? 2 : 0);
      const there = kids[place];
      if (there === EMPTY) {
        kids[place] = -2 - node;
        return;
      }
      half /= 2;
      middleX += x[node] >= middleX ? half : -half;
      middleY += y[node] >= middleY ? half : -half;
      if (there >= 0) {
        cell = there;
        continue;
      }
      const other = -2 - there;
      cell = kids[place] = this.cell(2 * half);
      kids[4 * cell + (x[other] >= middleX ? 1 : 0) + (y[other] >= middleY ? 2 : 0)] = there;
    }
    x[node] += 0.1 + (node % 7) * 0.01; // two at one place: this one is left out once, and moved aside
  }

  /** Push a node away from all others. @param {number} node */
  push(node) {
    const { kids, width, mass, massX, massY, stack, x, y, vx, vy } = this;
    const strength = PUSH * this.heat;
    let depth = 0;
    stack[depth++] = 0;
    while (depth) {
      const cell = stack[--depth];
      for (let place = 4 * cell; place < 4 * cell + 4; place++) {
        const kid = kids[place];
        if (kid === EMPTY || kid === -2 - node) continue;
        const inside = kid >= 0;
        const dx = x[node] - (inside ? massX[kid] : x[-2 - kid]);
        const dy = y[node] - (inside ? massY[kid] : y[-2 - kid]);
        const square = dx * dx + dy * dy;
        if (inside && width[kid] * width[kid] > FAR * square) {
          stack[depth++] = kid;
          continue;
        }
        const force = (strength * (inside ? mass[kid] : 1)) / Math.max(square, 16);
        vx[node] += dx * force;
        vy[node] += dy * force;
      }
    }
  }
}
