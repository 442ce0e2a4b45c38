// Gestures of mouse, pen or fingers on a canvas: hover, click, drag, pinch, wheel.

const CLICK_TOLERANCE = 4; // pixels

/**
 * @typedef {object} GestureHandlers
 * @property {(x: number, y: number) => boolean} take start a drag; returns false if there is nothing to drag
 * @property {(x: number, y: number) => void} drag
 * @property {() => void} drop
 * @property {(dx: number, dy: number) => void} pan
 * @property {(factor: number, x: number, y: number) => void} zoom
 * @property {(x: number, y: number) => void} click
 * @property {(x: number, y: number) => void} point
 * @property {() => void} leave
 */

/**
 * Call a handler for each gesture, with pixels of the canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {GestureHandlers} handlers
 */
export function watchGestures(canvas, handlers) {
  /** @type {Map<number, {x: number, y: number}>} */
  const down = new Map();
  let start = { x: 0, y: 0 };
  let moved = false;
  let dragging = false;
  let apart = 0; // between two fingers

  /** @param {MouseEvent} event */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const spread = () => {
    const [one, other] = [...down.values()];
    return { apart: Math.hypot(one.x - other.x, one.y - other.y), x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    const at = place(event);
    down.set(event.pointerId, at);
    if (down.size === 1) {
      start = at;
      moved = false;
      dragging = handlers.take(at.x, at.y);
    } else if (down.size === 2) {
      if (dragging) handlers.drop();
      dragging = false;
      moved = true;
      apart = spread().apart;
    }
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const before = down.get(event.pointerId);
    if (!before) return handlers.point(at.x, at.y);
    if (down.size === 2) {
      const was = spread();
      down.set(event.pointerId, at);
      const now = spread();
      handlers.pan(now.x - was.x, now.y - was.y);
      if (apart) handlers.zoom(now.apart / apart, now.x, now.y);
      apart = now.apart;
      return;
    }
    moved ||= Math.hypot(at.x - start.x, at.y - start.y) > CLICK_TOLERANCE;
    down.set(event.pointerId, at);
    if (!moved) return;
    if (dragging) handlers.drag(at.x, at.y);
    else handlers.pan(at.x - before.x, at.y - before.y);
  });

  /** @param {PointerEvent} event */
  const up = (event) => {
    if (!down.delete(event.pointerId)) return;
    if (down.size) return;
    if (dragging) handlers.drop();
    dragging = false;
    const at = place(event);
    if (!moved && event.type === "pointerup") handlers.click(at.x, at.y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => !down.size && handlers.leave());
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const at = place(event);
      const pixels = event.deltaMode ? event.deltaY * 16 : event.deltaY;
      handlers.zoom(Math.exp(-pixels * 0.0015), at.x, at.y);
    },
    { passive: false },
  );
}
