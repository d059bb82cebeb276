"use strict";
/* How one weight comes about: query, key and their products as bars, dimension by dimension, then
   the sum, the scaling, what the model adds, and the softmax over the row. */
(() => {
  /**
   * @typedef {Omit<ScoreRow, "products"> & { pair: Cell, products: number[], product: number,
   *   byKey: number[], scaling: number, bits: number, error: number, map: StoredMap }} Shown
   */
  const { make, load, apart } = window.headbook;
  const { sorted } = window.headbook.weights;
  const { layerOf, rowOf } = window.headbook.scores;
  const { drawing, switches } = window.headbook;
  const HEIGHT = 62,
    SPACE = 14,
    LEFT = 92,
    LARGEST = 14,
    SMALLEST = 2; /* pixels; of bars their width */
  const PARTS = 3; /* the largest products that are named */
  const STEPS = 255;

  /* A number with four decimals, never minus nothing. */
  /** @type {(value: number) => string} */
  const text = (value) =>
    Number.isNaN(value) ? "–" : (Math.round(value * 1e4) / 1e4 + 0).toFixed(4).replace("-", "−");
  /** @type {(name: Content | Content[], ...cells: string[]) => HTMLElement} */
  const row = (name, ...cells) => {
    const line = make("tr"),
      title = make("th", { scope: "row" });
    title.append(...[name].flat());
    line.append(title, ...cells.map((cell) => make("td", { class: "number" }, cell)));
    return line;
  };
  /** @type {(name: string, value: string, how: string) => HTMLElement} */
  const step = (name, value, how) => {
    const line = row(name, value);
    line.append(make("td", {}, how));
    return line;
  };
  /** @type {(titles: string[]) => HTMLElement} */
  const headings = (titles) => {
    const head = make("thead"),
      line = make("tr");
    line.append(...titles.map((title) => make("th", { scope: "col" }, title)));
    head.append(line);
    return head;
  };
  /** @type {(lines: HTMLElement[]) => HTMLElement} */
  const bodyOf = (lines) => {
    const body = make("tbody");
    body.append(...lines);
    return body;
  };
  /** @type {(name: string, content: HTMLElement) => HTMLElement} */
  const scrolling = (name, content) => {
    const box = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": name });
    box.append(content);
    return box;
  };

  class Neurons {
    /* `files`: address of the layers' files up to the number. */
    /** @param {WorkspaceLike} instance @param {string} files */
    constructor(instance, files) {
      this.instance = instance;
      this.files = files;
      /** @type {Shown | null} */
      this.current = null;
      /** @type {Maybe} */
      this.dimension = null;
      /** @type {number[]} */
      this.order = []; /* of the dimensions, the largest product first */
      this.box = make("details", { class: "neurons" });
      this.sentence = make("p", { class: "how" });
      this.parts = make("p", { class: "hint" });
      this.bars = make("canvas", { class: "bars", role: "img", tabindex: "0" });
      this.status = make("p", { class: "dimension", "aria-live": "polite" });
      this.steps = make("table", { class: "numbers derived" });
      this.check = make("p", { class: "hint" });
      this.stage = make("div");
      const legend = make("p", { class: "hint" });
      this.inks = ["plus", "minus"].map((sign) => make("i", { class: sign }));
      legend.append(
        this.inks[0],
        " above the line: positive, ",
        this.inks[1],
        " below: negative. A bar for each dimension, in the model's order; each line has its own " +
          "scale.",
      );
      this.lists = [
        this.list("Every dimension as a table", (current) => this.dimensions(current)),
        this.list("Every key of this row as a table", (current) => this.keys(current)),
      ];
      this.left = make("div");
      this.left.append(
        scrolling(
          "Bars of query, key and products, scroll sideways where they are wide",
          this.bars,
        ),
        this.status,
        legend,
      );
      const right = make("div"),
        both = make("div", { class: "row" });
      right.append(scrolling("From the products to the weight", this.steps), this.check);
      both.append(this.left, right);
      this.stage.append(both, this.parts, ...this.lists.map(({ box }) => box));
      this.box.append(
        make("summary", {}, "How this weight comes about: query, key, their product, softmax"),
        this.sentence,
        this.stage,
      );
      this.start();
    }

    start() {
      const { instance } = this;
      this.box.addEventListener("toggle", () => {
        if (instance.open !== this.box.open) {
          instance.open = this.box.open;
          instance.point();
        }
        this.draw();
      });
      instance.after = () => this.draw();
      new ResizeObserver(() => this.paint()).observe(this.left);
      new MutationObserver(() => this.paint()).observe(document.documentElement, {
        attributeFilter: ["data-theme"],
      });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
      this.bars.addEventListener("pointermove", (event) => this.look(this.under(event)));
      this.bars.addEventListener("pointerleave", () => this.look(null));
      this.bars.addEventListener("blur", () => this.look(null));
      this.bars.addEventListener("keydown", (event) => {
        const last = this.current ? this.current.query.length - 1 : -1,
          now = this.dimension;
        /** @type {Lookup<number>} */
        const moves = {
          ArrowLeft: Math.max(0, (now ?? 1) - 1), ArrowRight: Math.min(last, (now ?? -1) + 1),
          Home: 0, End: last,
        };
        const next = moves[event.key];
        if (next === undefined) return;
        event.preventDefault();
        this.look(next);
      });
    }

    /** @param {boolean} wanted */
    open(wanted) {
      this.box.open = wanted;
      this.instance.open = wanted;
    }

    /* A table that is written when a reader opens it. */
    /** @param {string} name @param {(shown: Shown) => HTMLElement[]} fill */
    list(name, fill) {
      const box = make("details"),
        table = make("table", { class: "numbers" });
      box.append(make("summary", {}, name), scrolling(name, table));
      const list = {
        box,
        show: () => {
          if (box.open && this.current) table.replaceChildren(...fill(this.current));
        },
      };
      box.addEventListener("toggle", list.show);
      return list;
    }

    /* The pair to show, in pieces; a text where there is none. */
    get pair() {
      const [view] = this.instance.views,
        { q, k } = this.instance.now;
      if (switches.state.units === "words")
        return (
          "A word's weight combines those of its subword tokens: choose subword tokens above to " +
          "trace one of them."
        );
      if (q === null) return "Choose a query and a key.";
      const [best] = sorted(view.row(q));
      return k === null && !best ? "Choose a key." : { q, k: k ?? best.key };
    }

    async draw() {
      if (!this.box.open || !this.instance.views.length) return;
      const [view] = this.instance.views,
        { pair } = this,
        [layer, head] = view.place;
      this.current = null;
      if (typeof pair === "string") {
        this.tell([pair]);
        return;
      }
      const src = `${this.files}${String(layer).padStart(2, "0")}.js`;
      const data = await load(src, `neurons-${src.slice(src.lastIndexOf("/") + 1, -3)}`)
        .catch(() => null);
      if (!data) {
        this.tell(["Queries and keys of this sentence are in the folder of the site alone."]);
        return;
      }
      if (view !== this.instance.views[0] || JSON.stringify(pair) !== JSON.stringify(this.pair))
        return;
      const { k } = pair, q = pair.q - (view.map.written ? 1 : 0); /* the row that predicts it */
      if (q < 0) {
        this.tell(["Nothing predicts the first token."]);
        return;
      }
      const found = rowOf(layerOf(data), head, q);
      const who = [`${view.name}: “`, apart(view.map.queries.pieces[q]), `” (${q}) `],
        what = ["“", apart(view.map.keys.pieces[k]), `” (${k})`];
      if (Number.isNaN(found.scores[k])) {
        this.tell([...who, "cannot attend to ", ...what, ": the model's mask hides it."]);
        return;
      }
      const products = [...found.query].map((value, i) => value * found.key(k)[i]);
      this.current = {
        ...found,
        pair: { q, k },
        products,
        product: found.products[k],
        byKey: found.products,
        scaling: data.scaling,
        bits: data.bits,
        error: data.error,
        map: view.map,
      };
      this.tell([...who, "attends to ", ...what, ` with ${text(found.weights[k])}.`]);
      this.fill(this.current);
    }

    /** @param {Content[]} words */
    tell(words) {
      this.sentence.replaceChildren(...words);
      this.stage.hidden = !this.current;
    }

    /** @param {Shown} current */
    fill(current) {
      const { map, pair: { k, q } } = current;
      const order = [...current.products.keys()].sort(
        (a, b) => Math.abs(current.products[b]) - Math.abs(current.products[a]),
      );
      const [plus, minus] = [1, -1].map((sign) =>
        current.products.reduce((sum, value) => (sign * value > 0 ? sum + value : sum), 0),
      );
      const largest = order
        .slice(0, PARTS)
        .map((i) => `dimension ${i} ${text(current.products[i])}`)
        .join(", ");
      this.parts.textContent =
        `Largest products: ${largest}. Positive ones add up to ${text(plus)}, negative ones to ` +
        `${text(minus)}.`;
      this.order = order;
      this.bars.setAttribute(
        "aria-label",
        `Query, key and products in ${order.length} dimensions; largest products: ${largest}. ` +
          "Arrow keys read single dimensions.",
      );
      const caption = make("caption", {}, "From the products to the weight."),
        factor = Number(current.scaling.toPrecision(6));
      const lines = [
        step("Query · key", text(current.product), `sum of the ${order.length} products`),
        ...(current.added
          ? [
              step("Scaled", text(current.product * current.scaling), `query · key × ${factor}`),
              step(
                "Added",
                text(current.added[k]),
                "by the model before its softmax, such as a position bias",
              ),
              step("Score", text(current.scores[k]), "scaled + added"),
            ]
          : [step("Score", text(current.scores[k]), `query · key × ${factor}; nothing is added`)]),
        step(
          "Row",
          text(current.sum),
          `log of the sum of exp(score) over the ${current.sees} keys visible to it`,
        ),
        step("Weight", text(current.weights[k]), "exp(score − row)"),
      ];
      this.steps.replaceChildren(caption, headings(["Step", "value", "how"]), bodyOf(lines));
      const stored = map.steps[q * map.keys.pieces.length + k];
      this.check.textContent =
        `Stored with 8 bits as ${stored}/${STEPS} = ${(stored / STEPS).toFixed(2)}. Queries and ` +
        "keys are those that the model multiplies, after any rotation for positions, with " +
        `${current.bits} bits: weights made of them here differ by at most ` +
        `${current.error.toPrecision(2)} from those of the model.`;
      this.lists.forEach(({ show }) => show());
      this.look(null);
      this.paint();
    }

    /** @param {Shown} current */
    dimensions(current) {
      const { order } = this, key = current.key(current.pair.k);
      const lines = order.map((i) =>
        row(String(i), text(current.query[i]), text(key[i]), text(current.products[i])),
      );
      return [
        make("caption", {}, "The largest product first."),
        headings(["Dimension", "query", "key", "product"]),
        bodyOf(lines),
      ];
    }

    /** @param {Shown} current */
    keys(current) {
      const names = current.map.keys.pieces;
      const lines = current.scores.map((score, k) =>
        row(
          [make("small", {}, `${k} `), apart(names[k])],
          text(current.byKey[k]),
          ...(current.added
            ? [
                text(current.byKey[k] * current.scaling),
                text(Number.isNaN(score) ? NaN : current.added[k]),
              ]
            : []),
          text(score),
          text(current.weights[k]),
        ),
      );
      return [
        make("caption", {}, "All keys; – where the mask hides one."),
        headings([
          "Key",
          "query · key",
          ...(current.added ? ["scaled", "added"] : []),
          "score",
          "weight",
        ]),
        bodyOf(lines),
      ];
    }

    /** @param {Shown} current @returns {[name: string, values: number[]][]} */
    lines({ query, key, pair, products }) {
      return [["query", [...query]], ["key", [...key(pair.k)]], ["product", products]];
    }

    /** @param {Shown} current */
    thickness({ query }) {
      const fitting = Math.floor((this.left.clientWidth - LEFT) / query.length);
      return Math.max(SMALLEST, Math.min(LARGEST, fitting));
    }

    paint() {
      const { current, dimension } = this;
      if (!current || !this.box.open) return;
      const thickness = this.thickness(current), width = LEFT + thickness * current.query.length;
      const pen = drawing.sized(this.bars, width, 3 * (HEIGHT + SPACE));
      const ink = drawing.inkOf(this.bars),
        inks = this.inks.map(drawing.inkOf);
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      this.lines(current).forEach(([name, values], place) => {
        const middle = place * (HEIGHT + SPACE) + HEIGHT / 2 + SPACE / 2;
        const largest = Math.max(...values.map(Math.abs));
        pen.fillStyle = ink;
        pen.fillText(name, 0, middle - 8, LEFT - 8);
        pen.fillText(`± ${largest.toPrecision(3)}`, 0, middle + 8, LEFT - 8);
        pen.fillRect(LEFT, middle - 0.5, values.length * thickness, 1);
        values.forEach((value, i) => {
          const height = largest ? (Math.abs(value) / largest) * (HEIGHT / 2) : 0;
          pen.fillStyle = inks[value > 0 ? 0 : 1];
          pen.fillRect(
            LEFT + i * thickness,
            value > 0 ? middle - height : middle,
            Math.max(1, thickness - 1),
            height,
          );
        });
      });
      if (dimension === null) return;
      pen.strokeStyle = ink;
      pen.strokeRect(LEFT + dimension * thickness - 1, 1, thickness + 1, 3 * (HEIGHT + SPACE) - 2);
    }

    /** @param {MouseEvent} event */
    under(event) {
      if (!this.current) return null;
      const { left } = this.bars.getBoundingClientRect();
      const place = Math.floor((event.clientX - left - LEFT) / this.thickness(this.current));
      return place >= 0 && place < this.current.query.length ? place : null;
    }

    /* Read one dimension. */
    /** @param {Maybe} dimension */
    look(dimension) {
      this.dimension = dimension;
      if (!this.current) return;
      const [query, key, product] = this.lines(this.current).map(([, values]) =>
        text(values[dimension ?? 0]),
      );
      this.status.textContent =
        dimension === null
          ? "Point at the bars, or use the arrow keys."
          : `dimension ${dimension}: ${query} × ${key} = ${product}`;
      this.paint();
    }
  }

  window.headbook.Neurons = Neurons;
})();
