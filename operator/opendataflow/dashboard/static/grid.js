// The grid of a job: one cell for each chunk on a canvas. Only the rows in view are drawn.
"use strict";

const NAMES = {
  D: "DONE", S: "DONE, stale", I: "DONE, incomplete", R: "RUNNING", Q: "QUEUED",
  T: "RETRYING", F: "FAILED", W: "WAITING", H: "HELD", K: "SKIPPED",
};
const COLOURS = {
  D: "done", S: "stale", I: "stale", R: "running", Q: "queued",
  T: "retrying", F: "failed", W: "waiting", H: "held", K: "skipped",
};
const CHOSEN = { DONE: "D", STALE: "S", RUNNING: "R", QUEUED: "Q", RETRYING: "T", FAILED: "F", WAITING: "W", HELD: "H", SKIPPED: "K" };
const SIZES = [3, 4, 6, 8, 11, 15, 20, 28];
const BLOCK = 500;

class Grid {
  constructor(box) {
    this.box = box;
    this.view = box.querySelector(".cells");
    this.room = box.querySelector(".room");
    this.canvas = box.querySelector("canvas");
    this.line = box.querySelector("output");
    this.cells = new Uint8Array();
    this.blocks = new Map();
    this.at = -1;
    this.begun = -1;  // where a drag began
    this.zoom = -1;
    this.view.addEventListener("scroll", () => this.draw());
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointerdown", (event) => (this.begun = event.button === 0 ? this.under(event) : -1));
    this.canvas.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.canvas.addEventListener("pointerup", (event) => this.choose(this.begun, this.under(event)));
    this.canvas.addEventListener("pointerleave", () => (this.begun = -1));
    for (const button of box.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.resize(this.zoom + Number(button.dataset.zoom)));
    }
    new ResizeObserver(() => this.draw()).observe(this.view);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Read the cells. Positions stay valid while the number of cells does.
  async load() {
    const answer = await fetch(this.box.dataset.cells, { headers: { Accept: "application/octet-stream" } });
    if (!answer.ok) return;
    const wait = answer.headers.get("Retry-After");
    clearTimeout(this.timer);
    if (wait && !document.hidden) this.timer = setTimeout(() => this.load(), 1000 * Number(wait));
    const cells = new Uint8Array(await answer.arrayBuffer());
    if (cells.length !== this.cells.length) this.blocks.clear();
    this.cells = cells;
    if (this.zoom < 0) {
      const room = this.view.clientWidth * 380;
      this.zoom = SIZES.findLastIndex((size) => size === SIZES[0] || (size * size * cells.length <= room && size <= 20));
    }
    this.draw();
    this.box.dataset.drawn = cells.length;
  }

  get size() { return SIZES[this.zoom]; }
  get columns() { return Math.max(1, Math.floor((this.view.clientWidth - 12) / this.size)); }

  resize(zoom) {
    this.zoom = Math.min(Math.max(zoom, 0), SIZES.length - 1);
    this.draw();
    this.show(this.at);
  }

  draw() {
    if (this.zoom < 0) return;
    const { size, columns } = this, rows = Math.ceil(this.cells.length / columns);
    const width = columns * size, height = Math.min(rows * size, 388), scale = devicePixelRatio || 1;
    this.room.style.height = `${rows * size}px`;
    if (this.canvas.width !== width * scale || this.canvas.height !== height * scale) {
      Object.assign(this.canvas, { width: width * scale, height: height * scale });
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const top = Math.min(this.view.scrollTop, Math.max(rows * size - height, 0));
    this.first = Math.floor(top / size);
    this.shift = top - this.first * size;
    this.paint(scale, height);
  }

  paint(scale, height) {
    const { size, columns, first, shift } = this, to = this.canvas.getContext("2d");
    const style = getComputedStyle(this.box), gap = size > 5 ? 1 : size > 3 ? 0.5 : 0;
    const chosen = CHOSEN[this.box.dataset.state];
    const colours = Object.fromEntries(Object.entries(COLOURS).map(([letter, name]) => [letter.charCodeAt(0), style.getPropertyValue(`--${name}`)]));
    to.setTransform(scale, 0, 0, scale, 0, -shift * scale);
    to.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const end = Math.min((first + Math.ceil(height / size) + 1) * columns, this.cells.length);
    for (let n = first * columns; n < end; n++) {
      const x = (n % columns) * size, y = (Math.floor(n / columns) - first) * size;
      const letter = this.cells[n];
      const beside = this.begun >= 0 && (n < Math.min(this.begun, this.at) || n > Math.max(this.begun, this.at));
      to.globalAlpha = beside || (chosen && chosen.charCodeAt(0) !== letter) ? 0.18 : 1;
      to.fillStyle = colours[letter];
      to.fillRect(x, y, size - gap, size - gap);
      if (size >= 11 && letter === 70) this.cross(to, x, y, size - gap);
    }
    to.globalAlpha = 1;
    if (this.at >= 0) {
      const x = (this.at % columns) * size, y = (Math.floor(this.at / columns) - first) * size;
      to.strokeStyle = style.color;
      to.lineWidth = 2;
      to.strokeRect(x - 0.5, y - 0.5, size, size);
    }
  }

  // Mark a failed cell by its form, too.
  cross(to, x, y, size) {
    const inset = size * 0.3;
    to.strokeStyle = "#fff";
    to.lineWidth = 1.5;
    to.beginPath();
    to.moveTo(x + inset, y + inset);
    to.lineTo(x + size - inset, y + size - inset);
    to.moveTo(x + size - inset, y + inset);
    to.lineTo(x + inset, y + size - inset);
    to.stroke();
  }

  under(event) {
    const column = Math.floor(event.offsetX / this.size);
    const n = (this.first + Math.floor((event.offsetY + this.shift) / this.size)) * this.columns + column;
    return column < this.columns && n < this.cells.length ? n : -1;
  }

  async id(n) {
    const block = Math.floor(n / BLOCK);
    if (!this.blocks.has(block)) {
      this.blocks.set(block, fetch(this.box.dataset.ids + block * BLOCK).then((answer) => (answer.ok ? answer.json() : [])));
    }
    return (await this.blocks.get(block))[n % BLOCK];
  }

  async point(n) {
    if (n < 0 || n === this.at) return;
    this.at = n;
    this.draw();
    const id = await this.id(n);
    if (this.at === n) this.line.textContent = `${id ?? n}: ${NAMES[String.fromCharCode(this.cells[n])]}`;
  }

  // Open a chunk, or choose the range of a drag.
  async choose(from, to) {
    this.begun = -1;
    if (from < 0 || to < 0) return;
    if (from === to) return this.open(to);
    const ends = [await this.id(Math.min(from, to)), await this.id(Math.max(from, to))];
    if (this.box.dataset.order === "descending") ends.reverse();
    const form = this.box.parentElement.querySelector("form.filter");
    [form.elements.first.value, form.elements.last.value] = ends;
    form.requestSubmit();
  }

  async open(n) {
    const id = n < 0 ? undefined : await this.id(n);
    if (id !== undefined) location.assign(this.box.dataset.chunk + encodeURIComponent(id));
  }

  show(n) {
    if (n < 0) return;
    const y = Math.floor(n / this.columns) * this.size;
    if (y < this.view.scrollTop) this.view.scrollTop = y;
    if (y + this.size > this.view.scrollTop + 388) this.view.scrollTop = y + this.size - 388;
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const last = this.cells.length - 1, page = this.columns * Math.max(1, Math.floor(388 / this.size));
    const at = Math.max(this.at, 0), down = this.columns;
    const goals = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - down, ArrowDown: at + down, PageUp: at - page, PageDown: at + page, Home: 0, End: last };
    if (event.key in goals && last >= 0) {
      const n = this.at < 0 && event.key.startsWith("Arrow") ? 0 : Math.min(Math.max(goals[event.key], 0), last);
      this.show(n);
      this.point(n);
    } else if (event.key === "f") {
      const n = this.cells.indexOf(70, this.at + 1);
      this.show(n);
      this.point(n);
    } else if (event.key === "Enter") this.open(this.at);
    else if (event.key === "+" || event.key === "-") this.resize(this.zoom + (event.key === "+" ? 1 : -1));
    else return;
    event.preventDefault();
  }
}

const grids = [...document.querySelectorAll(".gridbox")].map((box) => new Grid(box));
for (const grid of grids) grid.load();
document.addEventListener("changed", () => grids.forEach((grid) => grid.load()));
