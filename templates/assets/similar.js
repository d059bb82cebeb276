"use strict";
/* The matrix of heads: maps and divergences of the pair under the pointer, or chosen by keys. */
(() => {
  const { all, one, load, root, make } = window.headbook;
  const MISSING = 0x7fff, BOUND = 0x8000; /* of the numbers, which are thousandths */
  /** @type {Lookup<[down: number, right: number]>} */
  const DIRECTIONS = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
  };

  /** @type {(value: number) => string} */
  const written = (value) => {
    const size = value & MISSING;
    if (size === MISSING) return "too few rows in common";
    const text = size ? (size / 1000).toFixed(3) : "<\u202f0.001";
    return `${value & BOUND ? "≤ " : ""}${text} nats`;
  };
  /** @type {(element: Element, style: string) => void} */
  const point = (element, style) => {
    const own = [...element.classList].filter((name) => /^(map|cropped|s\d+)$/.test(name));
    element.className = [...own, style].join(" ");
  };

  /** @type {(box: HTMLElement) => void} */
  const start = (box) => {
    const { matrix = "", src = "" } = box.dataset;
    const panel = one(`[data-pair="${matrix}"]`), picture = one("svg", box);
    const cross = one(".cross", box), sides = all(".two > div", panel), numbers = all("dd", panel);
    let at = [0, 0];
    /** @type {(data: SimilarData, row: number, column: number) => void} */
    const show = ({ heads, values }, row, column) => {
      const size = heads.length;
      if (Math.min(row, column) < 0 || Math.max(row, column) >= size) return;
      at = [row, column];
      cross.setAttribute("visibility", "visible");
      cross.setAttribute("x", String(column));
      cross.setAttribute("y", String(row));
      sides.forEach((side, n) => {
        const [name, href, style, kind] = heads[at[n]], link = one("a", side);
        link.textContent = name;
        link.href = root() + href;
        one("small", side).textContent = kind;
        for (const map of all(".map", side)) point(map, style);
      });
      numbers.forEach((cell, n) => {
        const text = written(new Uint16Array(values[n].buffer)[row * size + column]);
        const link = make("a", { class: "n", href: `${root()}data.html#pairs` }, text);
        cell.replaceChildren(row === column ? "the same head" : link);
      });
    };
    const data = () => load(src, `similar-${matrix}`);
    /** @type {(event: MouseEvent) => Promise<void>} */
    const follow = async ({ clientX, clientY }) => {
      const { left, top, width, height } = picture.getBoundingClientRect();
      const found = await data(), size = found.heads.length;
      show(
        found,
        Math.floor(((clientY - top) / height) * size),
        Math.floor(((clientX - left) / width) * size),
      );
    };
    box.tabIndex = 0;
    picture.addEventListener("pointermove", follow);
    picture.addEventListener("click", follow);
    box.addEventListener("keydown", async (event) => {
      const step = DIRECTIONS[event.key];
      if (!step) return;
      event.preventDefault();
      show(await data(), at[0] + step[0], at[1] + step[1]);
    });
  };

  document.addEventListener("DOMContentLoaded", () => all("[data-matrix]").forEach(start));
})();
