"use strict";
/* The tokens of a sentence twice with lines between them, every weight of a token, and the map:
   what an instance shows beside its text. */
(() => {
  const { all, one, make, apart, targetOf } = window.headbook;
  const { seen, sorted, most, viewOf, written, total } = window.headbook.weights;
  const { switches, drawing } = window.headbook;
  const WHY = {
    later: "the causal mask hides later keys", sink: "this key is a sink, which is masked",
    none: "no key of its row is left",
  };
  const NORMS = "‖vW_O‖"; /* lengths, which are no weights stored with 8 bits */
  let count = 0;

  class Panel {
    /** @param {InstanceLike & Savable} instance @param {HTMLElement} stage */
    constructor(instance, stage) {
      this.instance = instance;
      this.number = count += 1;
      this.title = make("p", { class: "maptitle" });
      this.pair = make("p", { class: "pair", "aria-live": "polite" });
      this.from = this.list("queries", "Queries; up and down arrow choose one, Enter keeps it");
      this.to = this.list("keys", "Keys; up and down arrow choose one, Enter keeps it");
      this.lines = make("canvas", {
        role: "img",
        "aria-label": "Lines from the query to the keys that it attends to most",
      });
      this.table = make("table", { class: "numbers" });
      this.map = make("canvas", {
        class: "cells",
        role: "img",
        tabindex: "0",
        "aria-label": "Map of all weights; arrow keys read single weights, Enter keeps one",
      });
      this.status = make(
        "p",
        { class: "status", "aria-live": "polite" },
        "Point at the map, or use the arrow keys.",
      );
      this.legend = make("p", { class: "hint" });
      const twice = make("div", { class: "twice" });
      this.between = make("div", { class: "between" });
      this.between.append(this.lines);
      twice.append(this.from, this.between, this.to);
      const scroll = make("div", {
        class: "scroll weights",
        tabindex: "0",
        role: "group",
        "aria-label": "All weights of the query",
      });
      scroll.append(this.table);
      const row = make("div", { class: "row instance" });
      this.side = make("div", { class: "side" });
      this.side.append(this.pair, scroll);
      row.append(twice, this.side);
      stage.replaceChildren(this.title, row, this.map, this.legend, this.status);
      this.startMap();
      new ResizeObserver(() => this.draw()).observe(this.between);
      new MutationObserver(() => this.draw()).observe(document.documentElement, {
        attributeFilter: ["data-theme"],
      });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      instance.panel = this;
    }

    /** @param {"queries" | "keys"} side @param {string} name */
    list(side, name) {
      const looks = side === "queries";
      const list = make("div", {
        class: `tokens ${side}`,
        role: "listbox",
        tabindex: "0",
        "aria-label": name,
      });
      const { instance } = this;
      /** @type {(event: Event) => number} */
      const at = (event) => {
        const option = targetOf(event).closest("[role=option]");
        return all("[role=option]", list).findIndex((each) => each === option);
      };
      /** @type {(place: number) => [q: Maybe, k: Maybe]} */
      const given = (place) => (looks ? [place, null] : [instance.now.q, place]);
      list.addEventListener("pointermove", (event) => {
        const place = at(event);
        if (place < 0) return;
        if (looks) instance.look(place, null, "pointer");
        else instance.look(null, place, "pointer");
      });
      list.addEventListener("pointerleave", () => instance.leave("pointer"));
      list.addEventListener("focusout", () => instance.leave("key"));
      list.addEventListener("click", (event) => {
        if (at(event) >= 0) instance.keep(...given(at(event)));
      });
      list.addEventListener("keydown", (event) => {
        const { q, k } = instance.now, last = list.childElementCount - 1;
        const place = (looks ? q : k) ?? -1;
        /** @type {Lookup<number>} */
        const moves = {
          ArrowUp: Math.max(0, place - 1), ArrowDown: Math.min(last, place + 1), Home: 0, End: last,
        };
        const next = moves[event.key];
        if (next === undefined && !["Enter", "Escape"].includes(event.key)) return;
        event.preventDefault();
        if (event.key === "Enter") instance.keep(q, k);
        else if (event.key === "Escape") instance.release();
        else instance.look(...given(next ?? 0), "key");
      });
      return list;
    }

    /* Tokens, titles and the legend: what hovering does not change. */
    build() {
      const [view] = this.instance.views;
      /** @type {(list: HTMLElement, names: string[]) => void} */
      const fill = (list, names) => list.replaceChildren(...names.map((name, place) => {
        const option = make("div", {
          role: "option",
          id: `i${this.number}-${list.classList[1]}-${place}`,
          "aria-selected": "false",
          title: `${place} ${name}`,
        });
        option.append(apart(name), make("small"));
        return option;
      }));
      fill(this.from, view.rows);
      fill(this.to, view.columns);
      this.title.replaceChildren(make("span", { class: "head h0" }, view.name));
      /* Always the same height for a text, so that pointing moves nothing. */
      this.side.style.height = `${Math.min(32, 11 + 1.7 * view.columns.length)}rem`;
      this.buildLegend();
    }

    buildLegend() {
      const { scale, view, units } = switches.state;
      const steps = Array.from({ length: 7 }, (_, i) => make("i", { class: `q${i}` }));
      const box = make("span", { class: "scale" }, scale === "log" ? "≤ 1/255 " : "0 ");
      box.append(...steps, " 1");
      const drawn = viewOf(this.instance.views[0].map, view);
      const what =
        drawn === view
          ? switches.titles[view]
          : "all keys, since norms of values are not stored here";
      const more = drawn === "norm" ? ": ‖αvW_O‖, as a share of its row" : "";
      this.legend.replaceChildren(
        `Weights of ${switches.names[units]}: ${what}${more}; ${switches.scales[scale]} colours.`,
        box,
      );
    }

    draw() {
      const { views: [view], now } = this.instance;
      if (!view) return;
      this.mark(this.from, now.q);
      this.mark(this.to, now.k);
      this.drawShares(now.q);
      this.drawLines();
      this.drawTable(now.q);
      drawing.paintMap(this.map, view, switches.state.scale, now);
      this.pair.replaceChildren(...this.summary(view, now));
      const { q, k } = now;
      if (q !== null && k !== null) this.status.replaceChildren(...this.read(view, { q, k }));
    }

    /** @param {HTMLElement} list @param {Maybe} place */
    mark(list, place) {
      all("[role=option]", list).forEach((option, i) =>
        option.setAttribute("aria-selected", String(i === place)),
      );
      if (place === null) list.removeAttribute("aria-activedescendant");
      else {
        const option = list.children[place];
        list.setAttribute("aria-activedescendant", option.id);
        if (list.matches(":focus-visible")) option.scrollIntoView({ block: "nearest" });
      }
    }

    get share() { return Number(switches.state.mass) / 100; }

    /* Beside a key, its weight. */
    /** @param {Maybe} q */
    drawShares(q) {
      const [view] = this.instance.views;
      const given = new Map(
        q === null
          ? []
          : most(view.row(q), this.share).map(({ key, value }) => [key, written(value)]),
      );
      all("[role=option]", this.to).forEach((option, k) => {
        one("small", option).textContent = given.get(k) ?? "";
      });
    }

    drawLines() {
      const { views, now } = this.instance;
      const [first] = this.from.children;
      if (!views.length || !first) return;
      const inks = all(".head", this.title).map(drawing.inkOf);
      const { height } = first.getBoundingClientRect();
      const width = this.between.clientWidth;
      drawing.paintLines(this.lines, views, now.q, this.share, { height, width, inks });
    }

    /** @param {Maybe} q */
    drawTable(q) {
      const [first] = this.instance.views;
      const caption = make("caption");
      caption.append(
        ...(q === null
          ? ["Point at a token, or choose one with the arrow keys: all its weights stand here."]
          : this.caption(q)),
      );
      if (q === null) { this.table.replaceChildren(caption); return; }
      const { view, units } = switches.state;
      const others = this.behind(first, q, view, units);
      const titles = [
        "Key",
        switches.titles[view],
        ...others.map(([title]) => title),
        "cumulative share",
      ];
      const head = make("thead"), line = make("tr"), body = make("tbody");
      line.append(...titles.map((title) => make("th", { scope: "col" }, title)));
      head.append(line);
      body.append(...sorted(first.row(q)).map(({ key, value, sofar }) => {
        const row = make("tr"), name = make("th", { scope: "row" });
        name.append(make("small", {}, `${key} `), apart(first.columns[key]));
        const cells = [
          written(value),
          ...others.map(([title, values]) =>
            title === NORMS ? values[key].toFixed(3) : written(values[key]),
          ),
          Number.isNaN(sofar) ? "–" : `${(100 * sofar).toFixed(0)} %`,
        ];
        row.append(name, ...cells.map((text) => make("td", { class: "number" }, text)));
        return row;
      }));
      this.table.replaceChildren(caption, head, body);
    }

    /* What stands behind the values of a view: raw weights, norms of values. */
    /**
     * @param {NamedMap} head @param {number} q @param {ViewName} view @param {Units} units
     * @returns {[string, ArrayLike<number>][]}
     */
    behind({ map }, q, view, units) {
      if (view === "raw") return [];
      /** @type {[string, ArrayLike<number>]} */
      const raw = ["all keys", seen(map, "raw", units).row(q)];
      const norms = view === "norm" && units === "pieces" && map.norms.length > 0;
      return norms ? [raw, [NORMS, map.norms]] : [raw];
    }

    /** @param {number} q */
    caption(q) {
      const { view, units } = switches.state, [{ map, rows, row }] = this.instance.views;
      const summary = ["Where “", apart(rows[q]), `” (${q}) attends, largest weight first.`];
      if (view === "raw")
        summary.push(` Stored weights of the row add up to ${total(row(q)).toFixed(2)}.`);
      if (view !== "nosink" && view !== "renorm") return summary;
      const raw = total(seen(map, "raw", units).row(q));
      const kept = total(seen(map, "nosink", units).row(q));
      return [
        ...summary,
        ` Attention to the sink, which is masked: ${((100 * (raw - kept)) / raw).toFixed(0)} %.`,
      ];
    }

    /* A weight in words. */
    /** @param {HeadView} view @param {Pair} pair @returns {Content[]} */
    summary(view, { q, k }) {
      if (q === null) return [`${view.name}: lines from all queries.`];
      const row = view.row(q), [best] = sorted(row);
      const who = [`${view.name}: “`, apart(view.rows[q])];
      if (k === null && !best) return [...who, `” (${q}): ${WHY.none}.`];
      const key = k ?? best.key, what = ["“", apart(view.columns[key]), `” (${key})`];
      if (k === null)
        return [...who, `” (${q}) attends most to `, ...what, `, with ${written(row[key])}.`];
      const why = Number.isNaN(row[k]) ? `: ${this.missing(view, q, k)}` : "";
      return [...who, `” (${q}) attends to `, ...what, ` with ${written(row[k])}${why}.`];
    }

    /** @param {HeadView} view @param {number} q @param {number} k */
    missing({ map, row }, q, k) {
      const raw = seen(map, "raw", switches.state.units);
      if (Number.isNaN(raw.row(q)[k])) return WHY.later;
      return row(q).every(Number.isNaN) ? WHY.none : WHY.sink;
    }

    /** @param {HeadView} view @param {Cell} cell @returns {Content[]} */
    read({ rows, columns, row }, { q, k }) {
      return [`${q} `, apart(rows[q]), ` → ${k} `, apart(columns[k]), `: ${written(row(q)[k])}`];
    }

    startMap() {
      const { instance, map } = this;
      map.addEventListener("pointermove", (event) => {
        const cell = drawing.cellAt(event, map, instance.views[0]);
        if (cell) instance.look(cell.q, cell.k, "pointer");
      });
      map.addEventListener("pointerleave", () => instance.leave("pointer"));
      map.addEventListener("focusout", () => instance.leave("key"));
      map.addEventListener("click", (event) => {
        const cell = drawing.cellAt(event, map, instance.views[0]);
        if (cell) instance.keep(cell.q, cell.k);
      });
      /** @type {Lookup<[q: number, k: number]>} */
      const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      map.addEventListener("keydown", (event) => {
        const step = STEPS[event.key], { q, k } = instance.now;
        if (!instance.views.length || (!step && event.key !== "Enter" && event.key !== "Escape"))
          return;
        event.preventDefault();
        if (event.key === "Enter") instance.keep(q, k);
        else if (event.key === "Escape") instance.release();
        else if (step) this.step((q ?? 0) + step[0], (k ?? 0) + step[1]);
      });
    }

    /** @param {number} q @param {number} k */
    step(q, k) {
      const [{ rows, columns }] = this.instance.views;
      if (q >= 0 && k >= 0 && q < rows.length && k < columns.length)
        this.instance.look(q, k, "key");
    }
  }

  window.headbook.Panel = Panel;
})();
