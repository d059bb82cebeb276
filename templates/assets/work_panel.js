"use strict";
/* The work panel of a sentence: lines, map and ranked weights of one head or two, side by side. It
   stands in the page and, when a head is chosen, at the foot of the window. */
(() => {
  /** @typedef {{ q: number, key: number, value: number, on: boolean, number: number }} Line */
  const { all, one, make, svg: draw, apart, switches, drawing, REACH } = window.headbook;
  const { sorted, most, written, viewOf } = window.headbook.weights;
  const LETTERS = "AB", WIDE = 270, NAMES = 86, ROW = 15;
  const FAINT = 0.05; /* weights below it are no line of a token that is not chosen */
  const MOST_ROWS = 64; /* tokens up to which lines of all are drawn */
  const LISTED = 100, OTHERS = 24; /* lines of the ranked lists */

  /** @type {Lookup<string[]>} */
  const SPOKEN = {
    weight: ["Attention", "weights"], cosine: ["Similarity of outputs", "cosines"],
  };

  /** @type {(text: string) => string} */
  const cut = (text) => {
    const all = [...text];
    return all.length > 13 ? `${all.slice(0, 12).join("")}…` : text;
  };

  class Dock {
    /** @param {HTMLElement} box @param {WorkspaceLike} work */
    constructor(box, work) {
      this.box = box;
      this.work = work;
      this.room = 0;
      /** @type {Pair} */
      this.near = { q: null, k: null };
      this.inMap = false;
      /** @type {Seen[] | null} */
      this.similar = null;
      /** @type {{ view: Drawable, canvas: HTMLCanvasElement, kind: string }[]} */
      this.maps = [];
      /** @type {(name: string) => HTMLElement} */
      this.part = (name) => one(`[data-${name}]`, box);
      this.panes = this.part("panes");
      this.title = this.part("title");
      this.status = this.part("status");
      this.close = make("button", { type: "button" }, "Close");
      this.close.addEventListener("click", () => work.undock());
      this.second = make("select");
      this.choice = make("label", {}, "Compare with ");
      this.choice.append(this.second);
      this.second.addEventListener("change", () => work.compare(this.second.value));
      this.part("choose").append(this.choice, " ", this.close);
      new MutationObserver(() => this.draw()).observe(document.documentElement, {
        attributeFilter: ["data-theme"],
      });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      new ResizeObserver(() => this.fit()).observe(this.panes);
    }

    /** @param {boolean} is */
    set docked(is) {
      this.box.classList.toggle("docked", is);
      this.close.hidden = !is;
    }

    /* Heads have changed. */
    head() {
      const { views, tiles, summaryOf } = this.work;
      const [first] = views;
      this.title.replaceChildren(...views.flatMap((view, i) => {
        const name = make(
          "span",
          { class: `head h${i}` },
          views.length > 1 ? `${LETTERS[i]}: ${view.name}` : view.name,
        );
        return [i ? " " : "", name];
      }));
      this.part("summary").replaceChildren(
        ...(views.length > 1 ? [] : [summaryOf(first), ...this.largest()]),
      );
      this.part("link").setAttribute("href", first.href);
      const options = tiles.list
        .filter(({ head }) => head !== first.head)
        .map(({ head, name }) => make("option", { value: head }, name));
      this.second.replaceChildren(make("option", { value: "" }, "no other head"), ...options);
      this.second.value = views[1] ? views[1].head : "";
      this.choice.hidden = tiles.list.length < 2;
    }

    draw() {
      if (!this.work.views.length) return;
      this.room = this.panes.clientWidth;
      this.near = { q: null, k: null };
      const { views, matrices } = this.work, two = views.length > 1;
      this.similar = matrices?.similar() ?? null;
      this.maps = [];
      const drawn = views.map((view, i) => ({ ...view, ...this.similar?.[i] }));
      const rows = this.work.written ? "Rows: the word about to be written" : "Rows are queries";
      const title = (this.similar && matrices?.title) ?? `${rows}, columns keys`;
      const maps = drawn.map((view, i) =>
        this.map(
          view,
          two ? `${LETTERS[i]}: ${view.name}` : title,
          this.similar ? "cosine" : "weight",
        ),
      );
      if (two) maps.push(this.map(this.difference(drawn), "Difference, A − B", "difference"));
      this.panes.replaceChildren(
        this.lines(),
        ...maps,
        this.ranked(),
        ...(two ? [] : [this.others()]),
      );
      this.panes.classList.toggle("two", two);
      this.paint();
      this.tell();
    }

    /* Panes have another width. */
    fit() {
      if (this.room && Math.abs(this.panes.clientWidth - this.room) > 8) this.draw();
    }

    /** @param {TileView[]} views */
    difference([one, other]) {
      return { ...one, values: one.values.map((value, i) => value - other.values[i]) };
    }

    /** @param {Content | Content[]} title @param {string} kind */
    pane(title, kind) {
      const box = make("div", { class: `pane ${kind}` }), head = make("h3");
      head.append(...[title].flat());
      box.append(head);
      return box;
    }

    /** @param {Drawable & { name: string }} view @param {Content} title @param {string} kind */
    map(view, title, kind) {
      const box = this.pane(title, kind), [what, single] = SPOKEN[kind] ?? [];
      const canvas = make("canvas", {
        class: "cells", role: "img", tabindex: "0",
        "aria-label": what
          ? `${what} of ${view.name}; arrow keys read single ${single}, Enter keeps one`
          : "Map of differences; arrow keys read single ones",
      });
      const scroll = make("div", { class: "field" });
      scroll.append(canvas);
      box.append(scroll, this.legend(kind));
      canvas.addEventListener("pointermove", (event) =>
        this.point(drawing.cellAt(event, canvas, view), true),
      );
      canvas.addEventListener("pointerleave", () => this.point(null));
      canvas.addEventListener("blur", () => this.point(null));
      canvas.addEventListener("click", (event) => {
        const cell = drawing.cellAt(event, canvas, view);
        if (cell) this.keep(cell);
      });
      canvas.addEventListener("keydown", (event) => this.key(event, view));
      this.maps.push({ view, canvas, kind });
      return box;
    }

    /** @param {KeyboardEvent} event @param {Drawable} view */
    key(event, { rows, columns }) {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[
        event.key
      ];
      const { q, k } = this.drawnPair;
      if (event.key === "Enter" && q !== null && k !== null) this.keep({ q, k });
      if (!step) return;
      event.preventDefault();
      /** @type {(place: number, count: number) => number} */
      const inside = (place, count) => Math.min(count - 1, Math.max(0, place));
      this.point({
        q: inside((q ?? 0) + step[0], rows.length),
        k: inside((k ?? 0) + step[1], columns.length),
      }, true);
    }

    /* A cell of a map is chosen; outputs of two queries are no query and key of two texts. */
    /** @param {Cell} cell */
    keep({ q, k }) { this.work.keep(q, this.foreign ? null : k); }

    /* Whether the maps compare queries while attention goes to another text. */
    get foreign() { return this.similar !== null && this.work.crosses; }

    /* The pair that the maps mark: of another text's keys nothing. */
    get drawnPair() { return this.foreign && !this.inMap ? { q: this.now.q, k: null } : this.now; }

    /** @param {string} kind */
    legend(kind) {
      if (kind === "cosine" && this.work.matrices) return this.work.matrices.legend();
      const { scale } = switches.state, line = make("p", { class: "ramp hint" });
      const steps = Array.from({ length: 7 }, (_, i) =>
        make("i", { class: `${kind === "difference" ? "v" : "q"}${i}` }),
      );
      const [low, high, how] =
        kind === "difference"
          ? [this.similar ? "≤ −1 " : "−1 ", this.similar ? " ≥ +1" : " +1", "square root"]
          : [scale === "log" ? "≤ 1/255 " : "0 ", " 1", switches.scales[scale]];
      line.append(low, ...steps, high, ` (${how})`);
      return line;
    }

    get now() {
      const { kept } = this.work;
      return this.near.q === null && this.near.k === null ? kept : this.near;
    }

    /* Paint the maps, with what is pointed at. */
    paint() {
      for (const { view, canvas, kind } of this.maps) {
        drawing.paintMap(
          canvas,
          view,
          kind === "difference" || kind === "cosine" ? kind : switches.state.scale,
          this.drawnPair,
        );
      }
    }

    /* Point at a pair or at nothing, in a map or between the lines. */
    /** @param {Pair | null} pair @param {boolean} inMap */
    point(pair, inMap = false) {
      const near = pair || { q: null, k: null };
      if (near.q === this.near.q && near.k === this.near.k) return;
      this.near = near;
      this.inMap = inMap && pair !== null;
      this.paint();
      this.tell();
      for (const line of all(".lines path", this.panes)) {
        line.classList.toggle(
          "near",
          !(this.foreign && this.inMap) &&
          line.dataset.q === String(near.q) && line.dataset.k === String(near.k),
        );
      }
    }

    /* The pair in words. */
    tell() {
      const { views, kept, matrices } = this.work, [{ rows, columns }] = views;
      if (this.similar && matrices) {
        this.status.replaceChildren(...matrices.message(this.similar, this.drawnPair));
        return;
      }
      const { q, k } = this.now.q === null || this.now.k === null ? this.best(kept) : this.now;
      if (q === null || k === null) {
        this.status.replaceChildren("Choose a token above.");
        return;
      }
      const found = views.map((view) => view.row(q)[k]);
      const values = views.map(({ name }, i) =>
        views.length > 1 ? `${name} ${written(found[i])}` : written(found[i]),
      );
      const difference =
        views.length > 1 && !Number.isNaN(found[0] - found[1])
          ? `; difference ${(found[0] - found[1]).toFixed(2).replace("-", "−")}`
          : "";
      this.status.replaceChildren(
        `${q} `,
        apart(rows[q]),
        ` attends to ${k} `,
        apart(columns[k]),
        `: ${values.join(", ")}${difference}`,
      );
    }

    /* The strongest pair of the chosen token. */
    /** @param {Pair} pair @returns {Pair} */
    best({ q, k }) {
      const [view] = this.work.views;
      if (q !== null && k !== null) return { q, k };
      if (q !== null) return { q, k: sorted(view.row(q))[0]?.key ?? null };
      return { q: k !== null ? (sorted(view.column(k))[0]?.key ?? null) : null, k };
    }

    /* Lines to the keys that hold a share of each row: of the chosen token strong, of others
       faint. */
    lines() {
      const { views, kept: { q: chosen, k: looked } } = this.work, [{ rows, columns }] = views;
      const share = Number(switches.state.mass) / 100, two = views.length > 1;
      const height = ROW * Math.max(rows.length, columns.length) + 4;
      const picture = draw("svg", {
        viewBox: `0 0 ${WIDE} ${height}`,
        width: WIDE,
        height,
        role: "img",
        "aria-label": "Lines from queries, on the left, to keys",
      });
      const [left, right] = [NAMES + 6, WIDE - NAMES - 6], middle = (left + right) / 2;
      /** @type {(i: number) => number} */
      const y = (i) => ROW * (i + 0.5);
      /** @type {Line[]} */
      const links = [];
      views.forEach((view, number) => rows.forEach((_, q) => {
        for (const { key, value } of most(view.row(q), share)) {
          const on = chosen === null ? key === looked : q === chosen;
          if (on || (!two && value >= FAINT && rows.length <= MOST_ROWS))
            links.push({ q, key, value, on, number });
        }
      }));
      links.sort((a, b) => Number(a.on) - Number(b.on) || a.value - b.value);
      for (const { q, key, value, on, number } of links) {
        const line = draw("path", {
          d: `M${left} ${y(q)}C${middle} ${y(q)} ${middle} ${y(key)} ${right} ${y(key)}`,
          class: on ? `on h${number}` : "faint",
          "stroke-width": (on ? 1 + 4 * value : 0.6 + 2.5 * value).toFixed(2),
          "stroke-opacity": (on ? 0.35 + 0.65 * value : 0.12 + 0.3 * value).toFixed(2),
          "stroke-dasharray": drawing.DASHES[number].join(" ") || "none",
        });
        Object.assign(line.dataset, { q, k: key });
        picture.append(line);
      }
      rows.forEach((name, i) =>
        picture.append(
          draw(
            "text",
            { x: NAMES, y: y(i) + 4, "text-anchor": "end", class: i === chosen ? "on" : "" },
            cut(name),
          ),
        ),
      );
      columns.forEach((name, i) =>
        picture.append(
          draw(
            "text",
            { x: WIDE - NAMES, y: y(i) + 4, class: i === looked ? "on" : "" },
            cut(name),
          ),
        ),
      );
      const box = this.pane(`Lines: keys with ${switches.state.mass}\u202f% of each row`, "lines");
      const field = make("div", {
        class: "field",
        tabindex: "0",
        role: "group",
        "aria-label": "Lines, scroll where they are long",
      });
      field.append(picture);
      box.append(field);
      /** @type {(event: MouseEvent) => Cell | null} */
      const at = (event) => this.nearest(event, picture, links, { left, right, y });
      picture.addEventListener("pointermove", (event) => this.point(at(event)));
      picture.addEventListener("pointerleave", () => this.point(null));
      picture.addEventListener("click", (event) => {
        const found = at(event);
        if (found) this.work.keep(found.q, found.k);
      });
      return box;
    }

    /* The line nearest to the pointer, within reach; of equals the stronger. */
    /**
     * @param {MouseEvent} event @param {Element} picture @param {Line[]} links
     * @param {{ left: number, right: number, y: (i: number) => number }} room
     */
    nearest(event, picture, links, { left, right, y }) {
      const box = picture.getBoundingClientRect(),
        part = (event.clientX - box.left - left) / (right - left);
      const height = event.clientY - box.top;
      if (part < 0 || part > 1) return null;
      /* Both controls lie in the middle: find the parameter whose x is the pointer's. */
      let [low, high] = [0, 1];
      /** @type {(t: number) => number} */
      const across = (t) => 1.5 * (1 - t) * t + t * t * t;
      for (let i = 0; i < 14; i += 1) {
        const t = (low + high) / 2;
        if (across(t) < part) low = t; else high = t;
      }
      const along = low * low * (3 - 2 * low);
      /** @type {(link: Line) => number} */
      const away = ({ q, key }) => Math.abs(y(q) + along * (y(key) - y(q)) - height);
      const found = links.filter((link) => away(link) <= REACH)
        .sort((a, b) => Math.round(away(a)) - Math.round(away(b)) || b.value - a.value)[0];
      return found ? { q: found.q, k: found.key } : null;
    }

    /**
     * @param {Content | Content[]} lead @param {string} name @param {number} value
     * @param {string} more
     */
    item(lead, name, value, more = "") {
      const line = make("li"), token = make("span"), bar = make("i");
      token.append(...[lead].flat(), apart(name));
      bar.style.width = `${Math.max(0, 100 * value) || 0}%`;
      const track = make("span", { class: "track" });
      track.append(bar);
      line.append(token, track, make("span", { class: "number" }, `${written(value)}${more}`));
      return line;
    }

    /* All weights of the chosen token, the largest first. */
    ranked() {
      const { views, chosen: place, fromQuery } = this.work, [{ rows, columns }] = views;
      const [name, names] = fromQuery ? [rows[place], columns] : [columns[place], rows];
      const lists = views.map((view) => (fromQuery ? view.row(place) : view.column(place)));
      const chosen = make("bdi", {}, name ?? "");
      const title = fromQuery
        ? this.work.written
          ? ["Where the decoder attends before it writes “", chosen, "”"]
          : ["Where “", chosen, "” attends"]
        : ["What attends to “", chosen, "”"];
      const box = this.pane(name === undefined ? "Ranked weights" : title, "ranked"),
        list = make("ol", { tabindex: "0" });
      if (name !== undefined) {
        const lines = sorted(lists[0]).slice(0, LISTED);
        list.append(
          ...lines.map(({ key, value }) =>
            this.item(
              make("small", {}, `${key} `),
              names[key],
              value,
              lists[1] ? ` · ${written(lists[1][key])}` : "",
            ),
          ),
        );
        if (!lines.length) list.append(make("li", {}, "no attention is left"));
      }
      const { view } = switches.state, drawn = viewOf(views[0].map, view);
      const note = drawn === "raw" ? "" : `Weights: ${switches.titles[drawn]}.`;
      box.append(list, make("p", { class: "hint" }, `${note}${views.length > 1 ? " A · B" : ""}`));
      return box;
    }

    /* The largest weight of a head in the sentence, to open. */
    largest() {
      const [view] = this.work.views, { rows, columns, values } = view;
      const place = values.reduce(
        (best, value, i) => (value > (values[best] ?? -1) ? i : best),
        -1,
      );
      if (place < 0) return [];
      const q = Math.floor(place / columns.length), k = place % columns.length;
      const link = make("button", { type: "button", class: "linklike", "data-largest": "" });
      link.append(apart(rows[q]), " → ", apart(columns[k]), ` ${written(values[place])}`);
      link.addEventListener("click", () => this.work.keep(q, k));
      return [" Largest weight: ", link];
    }

    /* Heads by the largest weight between the chosen token and another one. */
    others() {
      const { views: [{ rows, columns }], chosen: place, fromQuery } = this.work;
      const name = fromQuery ? rows[place] : columns[place], chosen = make("bdi", {}, name ?? "");
      const title = fromQuery
        ? ["Heads in which “", chosen, "” attends most to one other token"]
        : ["Heads in which one other token attends most to “", chosen, "”"];
      const box = this.pane(name === undefined ? "Heads" : title, "others"),
        list = make("ol", { tabindex: "0" });
      const found = name === undefined ? [] : this.work.strongest();
      list.append(...found.slice(0, OTHERS).map(({ tile, at, value }) => {
        const button = make("button", { type: "button", class: "linklike" }, tile.name);
        button.addEventListener("click", () => this.work.choose(tile));
        return this.item(
          [button, fromQuery ? " → " : " ← "],
          (fromQuery ? columns : rows)[at],
          value,
        );
      }));
      box.append(list);
      return box;
    }
  }

  window.headbook.Dock = Dock;
})();
