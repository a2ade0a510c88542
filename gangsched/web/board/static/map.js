// The cluster on a canvas: racks, nodes, a cell for each device. Drawn when something changes, and only what is in view.

import { colour, plain } from "/dashboard/text.js";

export const FREE = 0, UNHEALTHY = 1, FOREIGN = 2, COUNTED = 3, CLAIMED = 4, TAINTED = 5, BLOCKED = 6, KEPT = 7, FIRST = 8;
const CELL = 10, STEP = 11, WIDE = 8, GAP = 5, MARGIN = 7, TITLE = 14;
const MOST_ZOOM = 6;

export function groupOf(code) {
  return code < FIRST ? -1 : (code - FIRST) >> 1;
}

export function drawCell(pen, code, x, y, size, look) {
  const number = groupOf(code);
  if (number >= 0) {
    pen.fillStyle = colour(number, look.dark);
    if ((code - FIRST) & 1) {
      const edge = Math.max(size / 5, 0.6);
      pen.fillRect(x, y, size, edge);
      pen.fillRect(x, y + size - edge, size, edge);
      pen.fillRect(x, y, edge, size);
      pen.fillRect(x + size - edge, y, edge, size);
    } else pen.fillRect(x, y, size, size);
    return;
  }
  pen.fillStyle = { [FOREIGN]: look.foreign, [COUNTED]: look.counted }[code] ?? look.free;
  pen.fillRect(x, y, size, size);
  if (code === UNHEALTHY) {
    pen.strokeStyle = look.wrong;
    pen.lineWidth = Math.max(size / 5, 0.8);
    pen.beginPath();
    pen.moveTo(x + 1, y + 1); pen.lineTo(x + size - 1, y + size - 1);
    pen.moveTo(x + size - 1, y + 1); pen.lineTo(x + 1, y + size - 1);
    pen.stroke();
  } else if (code === TAINTED) {
    pen.strokeStyle = look.wrong;
    pen.lineWidth = Math.max(size / 5, 0.8);
    pen.beginPath();
    pen.moveTo(x + 1, y + size - 1); pen.lineTo(x + size - 1, y + 1);
    pen.stroke();
  } else if (code === BLOCKED) {
    pen.fillStyle = look.counted;
    pen.beginPath();
    pen.moveTo(x, y); pen.lineTo(x, y + size); pen.lineTo(x + size, y + size);
    pen.fill();
  } else if (code === CLAIMED || code === KEPT) {
    pen.fillStyle = code === KEPT ? look.foreign : look.claimed;
    pen.fillRect(x + size / 4, y + size / 4, size / 2, size / 2);
  }
}

export function look() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    free: of("--free"), line: of("--free-line"), foreign: of("--foreign"), counted: of("--counted"),
    claimed: of("--claimed"), wrong: of("--wrong"), ink: of("--ink"), soft: of("--soft"), accent: of("--accent"),
    ground: of("--ground"), good: of("--good"),
  };
}

// Places the blocks in rows up to this wide; returns the size of all.
function shelve(blocks, limit) {
  let x = 0, y = 0, shelf = 0, w = 1;
  for (const block of blocks) {
    if (x > 0 && x + block.w > limit) { x = 0; y += shelf + GAP * 2; shelf = 0; }
    block.x = x;
    block.y = y;
    x += block.w + GAP * 2;
    w = Math.max(w, x - GAP * 2);
    shelf = Math.max(shelf, block.h);
  }
  return { w, h: Math.max(1, y + shelf) };
}

export class ClusterMap {
  constructor(canvas, { onSelect, onOpen }) {
    this.canvas = canvas;
    this.nodes = new Map();
    this.places = [];
    this.racks = [];
    this.selected = -1;
    this.marked = -1;
    this.proposed = new Set();
    this.zoom = 0;
    this.x = 0;
    this.y = 0;
    this.fitted = true;
    this.moved = true;
    this.onSelect = onSelect;
    this.onOpen = onOpen;
    new ResizeObserver(() => this.later(true)).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.later());
    this.listen();
  }

  // `arranged`: nodes came, went or changed their size.
  later(arranged = false) {
    this.moved ||= arranged;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  arrange(width, height) {
    const racks = new Map();
    for (const node of this.nodes.values()) {
      if (!racks.has(node.rack)) racks.set(node.rack, []);
      racks.get(node.rack).push(node);
    }
    const order = (a, b) => a.localeCompare(b, "en", { numeric: true });
    const isPools = (rack) => racks.get(rack)[0].row < 0;
    const blocks = [...racks.keys()].sort((a, b) => isPools(a) - isPools(b) || order(a, b)).map((rack) => {
      const nodes = racks.get(rack).sort((a, b) => order(a.name, b.name));
      const sizes = nodes.map((n) => Math.max(1, Object.values(n.cells).reduce((sum, c) => sum + Math.ceil(c.length / WIDE), 0)));
      const high = Math.max(...sizes.slice(0, 10000)) * STEP + GAP;
      const wide = Math.min(WIDE, Math.max(1, ...nodes.map((n) => Math.max(0, ...Object.values(n.cells).map((c) => c.length))))) * STEP + GAP;
      const aspect = racks.size === 1 ? width / height : 1;
      const columns = Math.max(1, Math.min(nodes.length, Math.round(Math.sqrt((nodes.length * high * aspect) / wide))));
      return { rack, nodes, columns, high, wide, w: columns * wide + MARGIN * 2, h: Math.ceil(nodes.length / columns) * high + MARGIN * 2 + TITLE };
    });
    this.racks = blocks;
    const widest = Math.max(1, ...blocks.map((b) => b.w));
    let best = null;
    for (let columns = 1; columns <= Math.min(blocks.length, 64); columns += 1) {
      const size = shelve(blocks, columns * (widest + GAP * 2));
      const zoom = Math.min(width / size.w, height / size.h);
      if (!best || zoom > best.zoom) best = { zoom, columns };
    }
    const size = shelve(blocks, (best?.columns ?? 1) * (widest + GAP * 2));
    this.w = size.w;
    this.h = size.h;
    this.places = blocks.flatMap((block) => block.nodes.map((node, i) => ({
      node,
      x: block.x + MARGIN + (i % block.columns) * block.wide,
      y: block.y + MARGIN + TITLE + Math.floor(i / block.columns) * block.high,
      w: block.wide - GAP,
      h: block.high - GAP,
    })));
  }

  fit(width, height) {
    this.zoom = Math.min((width - 16) / Math.max(this.w, 1), (height - 16) / Math.max(this.h, 1), 3);
    this.x = (width - this.w * this.zoom) / 2;
    this.y = (height - this.h * this.zoom) / 2;
    this.least = this.zoom;
  }

  draw() {
    const { canvas } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, dense = devicePixelRatio || 1;
    if (!width || !height) return;
    if (this.moved) {
      this.arrange(width, height);
      this.moved = false;
      if (this.fitted) this.fit(width, height);
    }
    if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
    }
    const pen = canvas.getContext("2d"), seen = look(), z = this.zoom;
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.textBaseline = "alphabetic";
    for (const block of this.racks) {
      const bx = this.x + block.x * z, by = this.y + block.y * z;
      if (bx > width || by > height || bx + block.w * z < 0 || by + block.h * z < 0) continue;
      pen.strokeStyle = seen.line;
      pen.lineWidth = 1;
      pen.strokeRect(bx, by, block.w * z, block.h * z);
      if (TITLE * z >= 9) {
        pen.fillStyle = seen.soft;
        pen.font = `${Math.min(13, 10 * z)}px system-ui, sans-serif`;
        pen.fillText(plain(block.rack || "no rack"), bx + MARGIN * z, by + TITLE * z, block.w * z - MARGIN * z * 2);
      }
    }
    const size = CELL * z;
    this.places.forEach((place, at) => {
      const px = this.x + place.x * z, py = this.y + place.y * z;
      if (px > width || py > height || px + place.w * z < 0 || py + place.h * z < 0) return;
      if (!place.node.open) pen.globalAlpha = 0.45;
      this.eachCell(place.node, (code, column, line) => {
        drawCell(pen, code, px + column * STEP * z, py + line * STEP * z, size, seen);
        if (this.marked >= 0 && groupOf(code) === this.marked) {
          pen.strokeStyle = seen.ink;
          pen.lineWidth = Math.max(1, z);
          pen.strokeRect(px + column * STEP * z, py + line * STEP * z, size, size);
        }
      });
      pen.globalAlpha = 1;
      if (this.proposed.has(place.node.name)) {
        pen.strokeStyle = seen.good;
        pen.lineWidth = 2;
        pen.strokeRect(px - 2, py - 2, place.w * z + 3, place.h * z + 3);
      }
      if (at === this.selected) {
        pen.strokeStyle = seen.accent;
        pen.lineWidth = 2;
        pen.strokeRect(px - 3, py - 3, place.w * z + 5, place.h * z + 5);
      }
    });
  }

  eachCell(node, visit) {
    let line = 0;
    for (const [resource, codes] of Object.entries(node.cells)) {
      codes.forEach((code, i) => visit(code, i % WIDE, line + Math.floor(i / WIDE), resource, i));
      line += Math.ceil(codes.length / WIDE);
    }
  }

  // What is drawn at this point of the canvas.
  find(px, py) {
    const wx = (px - this.x) / this.zoom, wy = (py - this.y) / this.zoom;
    const at = this.places.findIndex((p) => wx >= p.x - 2 && wx < p.x + p.w + 2 && wy >= p.y - 2 && wy < p.y + p.h + 2);
    if (at < 0) return null;
    const place = this.places[at];
    let code = null;
    this.eachCell(place.node, (c, column, line) => {
      const cx = place.x + column * STEP, cy = place.y + line * STEP;
      if (wx >= cx && wx < cx + STEP && wy >= cy && wy < cy + STEP) code = c;
    });
    return { at, node: place.node, code };
  }

  zoomBy(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const zoom = Math.max(this.least ?? 0.05, Math.min(MOST_ZOOM, this.zoom * factor));
    this.x = px - ((px - this.x) * zoom) / this.zoom;
    this.y = py - ((py - this.y) * zoom) / this.zoom;
    this.zoom = zoom;
    this.fitted = zoom <= (this.least ?? 0);
    this.later(this.fitted);
  }

  all() {
    this.fitted = true;
    this.later(true);
  }

  select(at) {
    if (!this.places.length) return;
    this.selected = Math.max(0, Math.min(this.places.length - 1, at));
    const place = this.places[this.selected], z = this.zoom;
    const px = this.x + place.x * z, py = this.y + place.y * z;
    if (px < 0 || px + place.w * z > this.canvas.clientWidth) this.x = this.canvas.clientWidth / 2 - place.x * z;
    if (py < 0 || py + place.h * z > this.canvas.clientHeight) this.y = this.canvas.clientHeight / 2 - place.y * z;
    this.onSelect(place.node, null);
    this.later();
  }

  // The nearest node in the direction of an arrow.
  step(dx, dy) {
    const from = this.places[this.selected];
    if (!from) return this.select(0);
    let best = -1, least = Infinity;
    this.places.forEach((place, at) => {
      const along = (place.x - from.x) * dx + (place.y - from.y) * dy;
      const aside = Math.abs((place.x - from.x) * dy) + Math.abs((place.y - from.y) * dx);
      if (along > 1 && along + aside * 3 < least) { least = along + aside * 3; best = at; }
    });
    if (best >= 0) this.select(best);
  }

  listen() {
    const { canvas } = this;
    let held = null;
    const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...at(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { held = { from: at(event), x: this.x, y: this.y, moved: false }; });
    canvas.addEventListener("pointermove", (event) => {
      const [px, py] = at(event);
      if (held && event.buttons) {
        held.moved ||= Math.hypot(px - held.from[0], py - held.from[1]) > 4;
        if (held.moved) {
          this.fitted = false;
          this.x = held.x + px - held.from[0];
          this.y = held.y + py - held.from[1];
          this.later();
        }
      } else {
        const found = this.find(px, py);
        if (found) this.onSelect(found.node, found.code);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const found = held && !held.moved ? this.find(...at(event)) : null;
      held = null;
      if (!found) return;
      this.selected = found.at;
      this.later();
      this.onOpen(found.node, found.code);
    });
    canvas.addEventListener("keydown", (event) => {
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (arrows[event.key]) this.step(...arrows[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoomBy(1.4);
      else if (event.key === "-") this.zoomBy(1 / 1.4);
      else if (event.key === "0") this.all();
      else if (event.key === "Enter" && this.places[this.selected]) this.onOpen(this.places[this.selected].node, null);
      else return;
      event.preventDefault();
    });
  }
}
