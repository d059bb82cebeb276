"use strict";
/* The overview: pointing at a word of the live sentence shows which families attend to it, a claim
   shows its own word, and a head on the wall is named below it. Without this the page is complete,
   drawn for its first word. */
(() => {
  const { all, one, make, apart, load, root, targetOf } = window.headbook;
  const FULL = 127.5, STEPS = 10; /* the weight of full colour, in steps of 1/255 */

  /* A word as a button; without scripts it is text. */
  /** @type {(word: HTMLElement) => void} */
  const pressable = (word) => {
    const chosen = word.classList.contains("chosen");
    word.replaceWith(make("button", {
      type: "button", class: word.className, dir: "auto", "data-i": word.dataset.i ?? "",
      "aria-pressed": String(chosen), tabindex: chosen ? 0 : -1,
    }, word.textContent));
  };
  /** @type {(button: Element) => number} */
  const placeOf = (button) => Number(/** @type {HTMLElement} */ (button).dataset.i);

  class Live {
    /** @param {HTMLElement} figure */
    constructor(figure) {
      this.figure = figure;
      this.stack = figure.dataset.live ?? "";
      this.word = Number(figure.dataset.word);
      this.way = /** @type {Direction} */ ("to");
      this.rows = all("tbody tr", figure);
      this.say = one("[data-say]", figure);
      this.both = Boolean(figure.querySelector(".picks.both"));
      all("span[data-i]", figure).forEach(pressable);
      this.listen();
    }

    async read() {
      const data = await load(`${root()}data/live.js`, "live");
      return data[this.stack];
    }

    listen() {
      const { figure } = this;
      /** @type {(event: Event) => void} */
      const point = (event) => {
        const target = targetOf(event), button = target.closest("button[data-i]");
        const cell = target.closest("tbody td");
        if (button) this.choose(placeOf(button), this.way);
        else if (cell) this.tell(/** @type {HTMLElement} */ (cell));
      };
      for (const name of ["pointerover", "focusin", "click"]) figure.addEventListener(name, point);
      figure.addEventListener("pointerleave", () => this.draw());
      for (const button of all("[data-way]", figure))
        button.addEventListener("click", () => {
          const way = /** @type {Direction} */ (button.dataset.way);
          this.choose(this.both && way !== this.way ? -1 : this.word, way);
        });
      figure.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        const button = targetOf(event).closest("button[data-i]");
        const list = button?.closest(".picks, thead");
        if (!step || !button || !list) return;
        const place = placeOf(button) + (getComputedStyle(list).direction === "rtl" ? -step : step);
        const next = list.querySelector(`[data-i="${place}"]`);
        if (next instanceof HTMLElement) { event.preventDefault(); next.focus(); }
      });
    }

    /** @type {(word: number, way: Direction) => Promise<void>} */
    async choose(word, way) {
      if (word === this.word && way === this.way) return;
      const turned = way !== this.way;
      this.way = way;
      this.word = word;
      const data = await this.read();
      if (this.word < 0) this.word = this.firstOf(data);
      if (turned && this.both) this.relabel(data);
      await this.draw();
    }

    /* The first word that is no special token. */
    /** @type {(data: LiveData) => number} */
    firstOf(data) {
      const special = data.special[this.way === "to" ? 1 : 0];
      return Math.max(0, special.indexOf(0));
    }

    /** @type {(data: LiveData) => [string[], string[]]} */
    sides(data) {
      return this.way === "to" ? [data.keys, data.queries] : [data.queries, data.keys];
    }

    /* Between two texts, words and columns change places with the direction. */
    /** @type {(data: LiveData) => void} */
    relabel(data) {
      const [words, columns] = this.sides(data), to = this.way === "to";
      const [ofWords, ofColumns] = [data.special[to ? 1 : 0], data.special[to ? 0 : 1]];
      one(".picks", this.figure).replaceChildren(...words.map((text, i) => {
        const kind = ofWords[i] ? "special" : "";
        return make("button", { type: "button", "data-i": i, dir: "auto", class: kind }, text);
      }));
      const head = one("thead tr", this.figure);
      head.replaceChildren(make("td"), ...columns.map((text, i) => {
        const cell = make("th", { scope: "col" });
        cell.append(make("span", { dir: "auto", class: ofColumns[i] ? "special" : "" }, text));
        return cell;
      }));
      for (const row of this.rows)
        row.replaceChildren(one("th", row), ...columns.map(() => {
          const cell = make("td");
          cell.append(make("i"));
          return cell;
        }));
    }

    /* The query and the key of a cell. */
    /** @type {(other: number) => [number, number]} */
    pair(other) { return this.way === "to" ? [other, this.word] : [this.word, other]; }

    async draw() {
      const data = await this.read(), { figure } = this, [words] = this.sides(data);
      const { length } = data.keys;
      for (const button of all("button[data-i]", figure)) {
        const chosen = placeOf(button) === this.word;
        button.setAttribute("aria-pressed", String(chosen));
        button.classList.toggle("chosen", chosen);
        button.tabIndex = chosen ? 0 : -1;
      }
      for (const button of all("[data-way]", figure))
        button.setAttribute("aria-pressed", String(button.dataset.way === this.way));
      for (const row of this.rows) {
        const { mean } = data.families[row.dataset.family ?? ""];
        all("td", row).forEach((cell, other) => {
          const [q, k] = this.pair(other), part = Math.min(1, mean[q * length + k] / FULL);
          one("i", cell).className = `o${Math.round(STEPS * Math.sqrt(part))}`;
          cell.classList.toggle("at", !this.both && other === this.word);
        });
      }
      one("[data-asks]", figure).textContent =
        this.way === "to" ? "Who attends to" : "What is attended to from";
      one("[data-chosen]", figure).textContent = words[this.word];
      this.rest(data);
    }

    /* The strongest head between the word and another word. */
    /** @type {(data: LiveData) => void} */
    rest(data) {
      const [, columns] = this.sides(data), to = this.way === "to";
      const special = data.special[to ? 0 : 1];
      let best = { weight: 0, head: 0, other: 0 };
      for (const { weight, head } of Object.values(data.families))
        columns.forEach((_, other) => {
          if (special[other] || (!this.both && other === this.word)) return;
          const [q, k] = this.pair(other), at = q * data.keys.length + k;
          if (weight[at] <= best.weight) return;
          best = { weight: weight[at], head: head[2 * at] + 256 * head[2 * at + 1], other };
        });
      if (!best.weight) { this.say.replaceChildren(); return; }
      const name = make("b", {}, data.heads[best.head]), other = apart(columns[best.other]);
      this.say.replaceChildren(
        "Strongest head: ", name, to ? ", from “" : ", to “", other,
        `”, weight ${(best.weight / 255).toFixed(2)}.`,
      );
    }

    /* One cell in words. */
    /** @type {(cell: HTMLElement) => Promise<void>} */
    async tell(cell) {
      const data = await this.read(), row = /** @type {HTMLElement} */ (cell.parentElement);
      const other = all("td", row).findIndex((each) => each === cell), [q, k] = this.pair(other);
      const { mean, weight, head } = data.families[row.dataset.family ?? ""];
      const at = q * data.keys.length + k, name = one("a", row).firstChild?.nextSibling;
      const best = data.heads[head[2 * at] + 256 * head[2 * at + 1]];
      this.say.replaceChildren(
        "From “", apart(data.queries[q]), "” to “", apart(data.keys[k]), "”, ",
        `${name?.textContent?.trim() ?? ""}: mean weight `,
        make("b", {}, (mean[at] / 255).toFixed(2)), "; strongest ", make("b", {}, best),
        ` ${(weight[at] / 255).toFixed(2)}.`,
      );
    }
  }

  /* A head under the pointer is named below the wall. */
  const startWall = () => {
    const [say] = all("[data-say-wall]");
    if (!say) return;
    const usual = [...say.childNodes];
    for (const wall of all("[data-wall]")) {
      const links = all("a.map", wall), columns = all("thead th:not(.lay)", wall).length;
      window.headbook.rove(wall, links, columns);
      /** @type {(event: Event) => void} */
      const tell = (event) => {
        const label = targetOf(event).closest("a.map")?.getAttribute("aria-label");
        if (label) say.replaceChildren(label);
      };
      wall.addEventListener("pointermove", tell);
      wall.addEventListener("focusin", tell);
      for (const name of ["pointerleave", "focusout"])
        wall.addEventListener(name, () => say.replaceChildren(...usual));
    }
  };

  /* A cell of a mosaic leads where the map of its head does. */
  const startMosaics = () => {
    const walls = all("[data-wall]");
    all("[data-mosaic]").forEach((mosaic, n) => {
      const links = all("a.map", walls[n]);
      all("td > i", mosaic).forEach((cell, place) => {
        const link = /** @type {HTMLAnchorElement} */ (links[place]);
        cell.dataset.head = cell.title = link.getAttribute("aria-label") ?? "";
        cell.addEventListener("click", () => link.click());
      });
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    const lives = all("[data-live]").map((figure) => new Live(figure));
    for (const claim of all(".claim[data-word]")) {
      const { stack, word } = claim.dataset;
      const live = lives.find((each) => each.stack === stack);
      const show = () => {
        const radio = document.getElementById(`live-${stack}`);
        if (radio instanceof HTMLInputElement) radio.checked = true;
        live?.choose(Number(word), "to");
      };
      for (const name of ["pointerenter", "focusin"]) claim.addEventListener(name, show);
    }
    startWall();
    startMosaics();
  });
})();
