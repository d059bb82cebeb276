"use strict";
/* Two heads in the same sentence: both texts, both maps and their difference follow one pointer. */
(() => {
  const { all, one, load, make, hash, apart, Instance, switches, drawing } = window.headbook;
  const { mapOf, written } = window.headbook.weights;

  class PairMap {
    /** @param {HTMLElement} article */
    constructor(article) {
      this.element = article;
      const { map: place = "", looks, sentence = "" } = article.dataset;
      const { src = "" } = one("[data-src]").dataset;
      const file = src.slice(src.lastIndexOf("/") + 1, -3);
      this.status = make("p", { class: "status", "aria-live": "polite" });
      one(".triple", article).after(this.status);
      const lines = all(".looked .text", article);
      const queries = all(".looking .text", article)[0];
      this.names = all("figcaption", article).map(({ textContent }) => textContent ?? "");
      /* one after the other: what both share, the line of queries, follows the first */
      this.sides = lines.map((keys, number) => new Instance({
        id: place,
        home: { q: Number(looks), k: null },
        read: async () => ({
          name: this.names[number], map: mapOf((await load(src, file))[place], number),
        }),
        lines: { queries: queries && number === 0 ? queries : keys, keys },
        statusLine: make("p"), about: sentence,
      }));
      /** @type {Drawable | null} */
      this.difference = null;
      /** @type {{ a: Float64Array | null, b: Float64Array | null }} */
      this.of = { a: null, b: null };
      this.canvases = all("[data-side] .within", article).map((box, number) => {
        const canvas = make("canvas", {
          class: "cells",
          role: "img",
          tabindex: "0",
          "aria-label":
            `Map, ${this.names[number]}; arrow keys read single weights, Enter keeps one`,
        });
        this.listen(canvas);
        return { box, canvas };
      });
      this.sides.forEach((side, number) => {
        side.after = () => this.follow(number);
      });
      new ResizeObserver(() => this.draw()).observe(article);
      new MutationObserver(() => this.draw()).observe(document.documentElement, {
        attributeFilter: ["data-theme"],
      });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }

    async show() {
      for (const side of this.sides) await side.show();
      for (const { box, canvas } of this.canvases) { /* pictures stand there until then */
        if (!box.contains(canvas)) box.replaceChildren(canvas);
      }
      this.draw();
    }

    /* What one of the two points at, the other does, too. */
    /** @param {number} number */
    follow(number) {
      const [from, to] = [this.sides[number], this.sides[1 - number]];
      if (!to.views.length || !from.views.length) return;
      if (from.units !== to.units) return; /* the other one is about to follow by itself */
      to.kept = { ...from.kept };
      const { q, k } = from.now;
      if (to.now.q !== q || to.now.k !== k) to.look(q, k, "key");
      this.draw();
    }

    draw() {
      const [a, b] = this.sides.map(({ views }) => views[0]);
      if (!a || !b || !this.canvases.every(({ canvas }) => canvas.isConnected)) return;
      if (a.values.length !== b.values.length) return;
      if (!this.difference || this.of.a !== a.values || this.of.b !== b.values) {
        const values = b.values.map((value, i) => value - a.values[i]);
        this.difference = { rows: a.rows, columns: a.columns, values };
        this.of = { a: a.values, b: b.values };
      }
      const { now } = this.sides[0], { scale } = switches.state;
      const pictures = [a, b, this.difference];
      this.canvases.forEach(({ canvas }, i) => {
        drawing.paintMap(canvas, pictures[i], i === 2 ? "difference" : scale, now);
      });
      this.say(a, b, now);
    }

    /** @param {HeadView} a @param {HeadView} b @param {Pair} now */
    say(a, b, { q, k }) {
      if (q === null) {
        this.status.textContent = "Point at a map, or use the arrow keys.";
        return;
      }
      /** @type {(row: Float64Array) => number} */
      const best = (row) => row.reduce((top, value, i) => (value > (row[top] || 0) ? i : top), 0);
      const keys = k === null ? [best(a.row(q)), best(b.row(q))] : [k, k];
      const parts = [a, b].flatMap((view, i) => [
        i ? "; " : "", `${this.names[i]} `, apart(view.columns[keys[i]]),
        ` ${written(view.row(q)[keys[i]])}`,
      ]);
      const apartBy = k === null ? "" : `; difference ${written(b.row(q)[k] - a.row(q)[k])}`;
      this.status.replaceChildren(`${q} `, apart(a.rows[q]), " → ", ...parts, `${apartBy}.`);
    }

    /** @param {HTMLCanvasElement} canvas */
    listen(canvas) {
      const [first] = this.sides;
      /** @type {(event: MouseEvent) => Cell | null} */
      const at = (event) => drawing.cellAt(event, canvas, first.views[0]);
      canvas.addEventListener("pointermove", (event) => {
        const cell = at(event);
        if (cell) first.look(cell.q, cell.k, "pointer");
      });
      canvas.addEventListener("pointerleave", () => first.leave("pointer"));
      canvas.addEventListener("focusout", () => first.leave("key"));
      canvas.addEventListener("click", (event) => {
        const cell = at(event);
        if (cell) first.keep(cell.q, cell.k);
      });
      /** @type {Lookup<[q: number, k: number]>} */
      const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      canvas.addEventListener("keydown", (event) => {
        const step = STEPS[event.key], { q, k } = first.now, [view] = first.views;
        if (!view || (!step && event.key !== "Enter" && event.key !== "Escape")) return;
        event.preventDefault();
        if (event.key === "Enter") first.keep(q, k);
        else if (event.key === "Escape") first.release();
        else if (step) {
          const [row, column] = [(q ?? 0) + step[0], (k ?? 0) + step[1]];
          if (row >= 0 && column >= 0 && row < view.rows.length && column < view.columns.length)
            first.look(row, column, "key");
        }
      });
    }
  }

  document.addEventListener("DOMContentLoaded", async () => {
    const maps = all(".pairmap").map((article) => new PairMap(article));
    const restore = async () => {
      const wanted = switches.place();
      for (const map of maps) {
        const [first] = map.sides;
        if (first.id === wanted.at) {
          for (const side of map.sides) side.restore(wanted);
          map.element.scrollIntoView({ block: "start" });
        }
        await map.show();
      }
    };
    window.addEventListener("hashchange", () => { if (hash().includes("=")) restore(); });
    await restore();
  });
})();
