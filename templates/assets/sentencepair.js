"use strict";
/* One sentence in two models: a token that is chosen in a text or a chart is marked everywhere. */
(() => {
  const { all, one, load, use, targetOf } = window.headbook;
  /** @typedef {"a" | "b"} Which */

  class Both {
    /** @param {HTMLElement[]} figures of one kind of attention, both models' */
    constructor(figures) {
      this.figures = figures;
      const { src = "", name = "", stack = "" } = figures[0].dataset;
      this.stack = stack;
      this.file = { src, name };
      /** @type {Maybe[]} */
      this.places = [];
      this.link();
    }

    async start() {
      const data = await load(this.file.src, this.file.name);
      this.places = data[`${this.stack}-places`];
    }

    /* What one chart shows, the other shows, too. */
    link() {
      const selects = this.figures.map((figure) => all("select", figure));
      selects.forEach((mine, side) => mine.forEach((select, i) => {
        select.addEventListener("change", () => {
          const other = selects[1 - side][i];
          if (other.selectedIndex === select.selectedIndex) return;
          other.selectedIndex = select.selectedIndex;
          other.dispatchEvent(new Event("change"));
        });
      }));
    }

    /* The token of the other model, or null. */
    /** @param {Which} which @param {number} place @returns {Maybe} */
    other(which, place) {
      if (which === "a") return this.places[place] ?? null;
      const found = this.places.indexOf(place);
      return found < 0 ? null : found;
    }

    /** @param {Which} which @param {number} place */
    choose(which, place) {
      const there = this.other(which, place);
      const [a, b] = which === "a" ? [place, there] : [there, place];
      /** @type {[Which, Maybe][]} */
      const sides = [["a", a], ["b", b]];
      for (const [side, at] of sides) {
        const detail = { place: at ?? -1, stacks: [`${this.stack}-${side}`], name: "" };
        document.dispatchEvent(new CustomEvent("headbook-token", { detail }));
        for (const token of all(`.words[data-side="${side}"] .t`)) {
          token.classList.toggle("looks", Number(token.dataset.i) === at);
        }
      }
      for (const token of all('.words[data-side="both"] .t')) {
        token.classList.toggle("looks", Number(token.dataset.i) === a);
      }
      all("[data-nearest] tbody tr").forEach((row, i) => row.classList.toggle("on", i === a));
    }
  }

  /* Texts: a click or the arrow keys choose a token. */
  /** @type {(line: HTMLElement, choose: (which: Which, place: number) => void) => void} */
  const startLine = (line, choose) => {
    const text = one(".text", line), { side } = line.dataset;
    const which = side === "b" ? "b" : "a";
    text.tabIndex = 0;
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", "Tokens; left and right arrow choose one");
    text.addEventListener("click", (event) => {
      /** @type {HTMLElement | null} */
      const token = targetOf(event).closest(".t");
      if (token) choose(which, Number(token.dataset.i));
    });
    text.addEventListener("keydown", (event) => {
      const ahead = getComputedStyle(text).direction === "rtl" ? -1 : 1;
      /** @type {Lookup<number>} */
      const steps = { ArrowLeft: -ahead, ArrowRight: ahead };
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const tokens = all(".t", text), now = tokens.findIndex((each) => each.matches(".looks"));
      const next = tokens[now < 0 ? 0 : now + step];
      if (next) choose(which, Number(next.dataset.i));
    });
  };

  document.addEventListener("DOMContentLoaded", async () => {
    const figures = all("figure[data-paths]");
    if (!figures.length) return;
    await use("token_paths");
    await window.headbook.paths();
    const stacks = [...new Set(figures.map(({ dataset }) => dataset.stack))];
    const pairs = stacks.map(
      (stack) => new Both(figures.filter(({ dataset }) => dataset.stack === stack)),
    );
    for (const pair of pairs) await pair.start();
    for (const line of all(".words[data-side]")) {
      startLine(line, (which, place) => pairs.forEach((pair) => pair.choose(which, place)));
    }
    document.addEventListener("headbook-path", ({ detail: { stack, place } }) => {
      for (const pair of pairs) {
        if (stack === `${pair.stack}-a`) pair.choose("a", place);
        if (stack === `${pair.stack}-b`) pair.choose("b", place);
      }
    });
    one(".sentencepair").dataset.ready = "";
  });
})();
