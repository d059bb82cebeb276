"use strict";
/* The paths of a sentence's tokens through the layers, and the vocabulary tokens nearest to one
   of them: drawn from data. The chosen token of the page is marked; pointing at a path dims the
   others. */
(() => {
  const { all, one, load, make, svg: draw, offer, rove } = window.headbook;
  /**
   * @typedef {(value: number) => number} Along
   * @typedef {{ name: string, values: PathValues, style: string }} Beside
   */
  const WIDTH = 1100, HEIGHT = 380, LEFT = 64, RIGHT = 190, TOP = 12, BOTTOM = 34;
  const APART = 12.6; /* between two names at the ends of paths */
  const RANK_TICKS = [0, 1, 10, 100, 1000, 10000, 100000, 1000000];
  /** @type {Lookup<string>} */
  const CLASS = { "content words": "c-content", "function words": "c-function" };
  const STYLES = [
    "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "fill", "opacity", "font-size",
    "font-weight",
  ];
  const CSV = ["token_position", "token", "layer", "metric", "value"];
  /* What one chart shows of one token, with the colour of each. */
  /** @type {Lookup<string>} */
  const JOINT = {
    cosine_to_input: "c-content", neighbour_overlap: "c-function", vocabulary_rank: "c-punctuation",
  };
  const SHARES = [0, 0.25, 0.5, 0.75, 1];

  /** @type {(values: PathValues) => number[]} */
  const known = (values) => 
    values.flatMap((value) => (value === null || Number.isNaN(value) ? [] : value));
  /** @type {(value: number) => string} */
  const written = (value) =>
    (Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(2)).replace(
      "-",
      "−",
    );

  /* Round numbers between two ends. */
  /** @type {(low: number, high: number, ranks: boolean) => number[]} */
  const ticksOf = (low, high, ranks) => {
    if (ranks) return RANK_TICKS.filter((tick) => tick <= high);
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) =>
      Number(((first + i) * step).toPrecision(6)),
    );
  };

  class Paths {
    /** @param {HTMLElement} figure @param {PathsData} data @param {string} stack */
    constructor(figure, data, stack) {
      this.figure = figure;
      this.data = data;
      this.stack = stack;
      /** @type {Maybe} */
      this.chosen = null;
      /** @type {SVGGElement[]} */
      this.paths = [];
      this.box = one(".scroll", figure);
      this.picture = draw("svg");
      const line = make("p", { class: "setting" });
      this.metric = this.select(
        line,
        "Measure",
        data.metrics.map(({ title }) => title),
      );
      /* Cosine, rank and neighbours of one token, if there are any two of them. */
      this.joint = data.metrics.filter(({ id }) => id in JOINT);
      if (this.joint.length > 1)
        this.metric.append(make("option", {}, "One token: cosine, neighbours and rank"));
      this.view = this.select(line, "", []);
      figure.prepend(line);
      this.metric.addEventListener("change", () => {
        this.views();
        this.draw();
      });
      this.view.addEventListener("change", () => this.draw());
      const tools = one(".tools", figure);
      const files = { SVG: () => this.saveSvg(), CSV: () => this.saveCsv() };
      for (const [text, act] of Object.entries(files)) {
        const button = make("button", { type: "button" }, text);
        button.addEventListener("click", act);
        tools.append(button, " ");
      }
      this.views();
      this.draw();
    }

    /** @param {HTMLElement} line @param {string} title @param {string[]} options */
    select(line, title, options) {
      const select = make("select"), label = make("label", {}, `${title} `);
      if (!title) select.setAttribute("aria-label", "State and comparison");
      select.append(...options.map((text) => make("option", {}, text)));
      label.append(select);
      line.append(label);
      return select;
    }

    get isJoint() {
      return this.metric.selectedIndex === this.data.metrics.length;
    }
    get now() {
      return this.isJoint ? this.joint[0] : this.data.metrics[this.metric.selectedIndex];
    }
    get graph() {
      return this.now.views[Math.max(0, this.view.selectedIndex)];
    }

    views() {
      this.view.replaceChildren(...this.now.views.map(({ name }) => make("option", {}, name)));
      const label = this.view.closest("label");
      if (label) label.hidden = this.isJoint || this.now.views.length < 2;
    }

    /* Values of a path with where it begins. */
    /** @param {PathValues} values */
    whole(values) {
      return this.now.start === null ? values : [this.now.start, ...values];
    }

    draw() {
      if (this.isJoint) this.drawJoint();
      else this.drawAll();
    }

    /* The measures of one token: cosine and share on the left axis, rank on the right one. */
    drawJoint() {
      const ordinary = this.data.kinds.findIndex((kind) => kind !== "other");
      const place = this.chosen ?? Math.max(0, ordinary);
      const { layers } = this.graph, names = ["input", ...layers.map(String)];
      const named = this.joint.map(({ id, title, start, views, ranks }) => ({
        name: ranks ? `${title}, log scale at the right` : title, ranks, style: JOINT[id] ?? "",
        values: [start, ...(views[0].values[place] ?? [])],
      }));
      const cosines = known(named.filter(({ ranks }) => !ranks).flatMap(({ values }) => values));
      const low = Math.min(0, ...cosines);
      const counts = known(named.filter(({ ranks }) => ranks).flatMap(({ values }) => values));
      const most = Math.max(10, ...counts);
      const right = WIDTH - RIGHT, depth = HEIGHT - BOTTOM - TOP;
      /** @type {Along} */
      const x = (i) => LEFT + (i * (right - LEFT)) / (names.length - 1);
      /** @type {Along} */
      const y = (value) => HEIGHT - BOTTOM - ((value - low) / (1 - low)) * depth;
      /** @type {Along} */
      const ranked = (value) => HEIGHT - BOTTOM - (Math.log1p(value) / Math.log1p(most)) * depth;
      const token = this.data.names[place] ?? "";
      const svg = draw("svg", {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
        "aria-label": `${token}: ${named.map(({ name, values }) =>
          `${name} ${known(values).map(written).join(", ")}`).join("; ")}`,
      });
      for (const tick of SHARES) this.tick(svg, LEFT - 6, y(tick), String(tick), right);
      for (const tick of ticksOf(0, most, true))
        svg.append(draw(
          "text", { class: "tick", x: right + 6, y: ranked(tick) + 4 }, tick.toLocaleString("en"),
        ));
      this.points(svg, names, x);
      for (const { name, values, style, ranks } of named)
        svg.append(this.line(values, x, ranks ? ranked : y, `mean ${style}`, name));
      this.legend(svg, named);
      this.paths = [];
      this.picture = svg;
      this.box.replaceChildren(svg);
      one("[data-summary]", this.figure).textContent =
        `“${token}” through the layers: ${named.map(({ name }) => name).join("; ")}. A rank counts `
        + "the vocabulary tokens nearer than its own: 0 at the bottom. Choose another token in the "
        + "text; its nearest tokens stand below.";
    }

    /**
     * @param {SVGElement} svg @param {number} x @param {number} y @param {string} text
     * @param {number} right
     */
    tick(svg, x, y, text, right) {
      svg.append(
        draw("path", { class: "rule", d: `M${LEFT} ${y}H${right}` }),
        draw("text", { class: "tick", x, y: y + 4, "text-anchor": "end" }, text),
      );
    }

    /* Names of the points below a chart, as many as it has room for. */
    /** @param {SVGElement} svg @param {string[]} names @param {Along} x */
    points(svg, names, x) {
      const spacing = Math.ceil(names.length / 24); /* layers from one name to the next */
      const first = String(this.graph.layers[0]);
      names.forEach((name, i) => {
        if (i % spacing === 0)
          svg.append(
            draw(
              "text",
              { class: "tick", x: x(i), y: HEIGHT - 10, "text-anchor": "middle" },
              name === first ? `${i ? "" : "after "}layer ${name}` : name,
            ),
          );
      });
    }

    drawAll() {
      const { now, graph } = this, { ranks } = now;
      const lines = graph.values.map((values) => this.whole(values));
      const means = Object.entries(graph.classes).map(([name, values]) => ({
        name: `${ranks ? "geometric mean" : "mean"} of ${name}`,
        values: this.whole(values),
        style: CLASS[name] ?? "",
      }));
      const beside = Object.entries(graph.beside).map(([name, values]) => ({
        name, values: now.start === null ? values : [null, ...values], style: "beside",
      }));
      const every = known([...lines, ...[...means, ...beside].map(({ values }) => values)].flat());
      const [least, high] = graph.ends ?? [Math.min(...every), Math.max(...every)];
      const low = ranks ? 0 : least;
      const wide = high - low || 1;
      /** @type {(value: number) => number} */
      const along = (value) =>
        ranks ? Math.log1p(value) / Math.log1p(high || 1) : (value - low) / wide;
      const names = [...(now.start === null ? [] : ["input"]), ...graph.layers.map(String)];
      const right = WIDTH - RIGHT;
      /** @type {Along} */
      const x = (i) => LEFT + (names.length > 1 ? (i * (right - LEFT)) / (names.length - 1) : 0);
      /** @type {Along} */
      const y = (value) => HEIGHT - BOTTOM - along(value) * (HEIGHT - BOTTOM - TOP);
      const svg = draw("svg", {
        viewBox: `0 0 ${WIDTH} ${this.height(lines.length)}`,
        role: "group",
        "aria-label": `${now.title}, a path for each token; arrow keys move from path to path`,
      });
      for (const tick of ticksOf(low, high, ranks)) {
        const plain = !ranks && tick < 100;
        const text = plain ? String(tick).replace("-", "−") : tick.toLocaleString("en");
        this.tick(svg, LEFT - 6, y(tick), text, right);
      }
      this.points(svg, names, x);
      for (const { name, values, style } of means)
        svg.append(this.line(values, x, y, `mean ${style}`, name));
      for (const { name, values } of beside) svg.append(this.line(values, x, y, "beside", name));
      this.legend(svg, [...means, ...beside]);
      this.paths = this.tokens(svg, lines, x, y, right);
      this.picture = svg;
      this.box.replaceChildren(svg);
      rove(svg, this.paths, this.paths.length);
      this.mark();
      const name = graph.name ? `, ${graph.name}` : "";
      const drawn = `${now.title} of each token through the layers${name}`;
      const plain = !ranks && now.axis === now.title.toLowerCase(); /* the title says it */
      const scale = ranks ? " (log scale of 1 + rank)" : "";
      one("[data-summary]", this.figure).textContent = [
        plain ? `${drawn}.` : `${drawn}; y-axis: ${now.axis}${scale}.`,
        means.length ? "Thick: means of all sentences by word class." : "",
        beside.length ? "Dashed: the comparison named beside it." : "",
      ].filter(Boolean).join(" ");
    }

    /** @param {number} tokens */
    height(tokens) {
      return Math.max(HEIGHT, 2 * TOP + APART * tokens);
    }

    /**
     * @param {PathValues} values @param {Along} x @param {Along} y @param {string} style
     * @param {string} title
     */
    line(values, x, y, style, title = "") {
      const parts = values
        .map((value, i) => (value === null ? "" : `${x(i).toFixed(1)} ${y(value).toFixed(1)}`))
        .filter(Boolean);
      const path = draw("path", { class: style, d: `M${parts.join("L")}` });
      if (title) path.append(draw("title", {}, title));
      return path;
    }

    /* What is drawn beside the tokens, with its last value. */
    /** @param {SVGElement} svg @param {Beside[]} named */
    legend(svg, named) {
      named.forEach(({ name, values, style }, i) => {
        const last = known(values).at(-1);
        if (last === undefined) return;
        svg.append(
          draw(
            "text",
            { class: `key ${style}`, x: WIDTH - 4, y: TOP + 8 + 18 * i, "text-anchor": "end" },
            `${style === "beside" ? "┅" : "▬"} ${name} ${written(last)}`,
          ),
        );
      });
    }

    /**
     * @param {SVGElement} svg @param {PathValues[]} lines @param {Along} x @param {Along} y
     * @param {number} right
     */
    tokens(svg, lines, x, y, right) {
      const ends = lines.flatMap((values, i) => {
        const value = known(values).at(-1);
        return value === undefined ? [] : [{ i, value, at: y(value) }];
      });
      ends.sort((a, b) => a.at - b.at);
      let before = -Infinity;
      const places = ends.map(({ at }) => {
        before = Math.max(at, before + APART);
        return before;
      });
      const over = Math.max(0, before - (this.height(lines.length) - TOP));
      let room = places.map((place) => place - over);
      if (room[0] < TOP) room = room.map((place) => place + TOP - room[0]);
      const groups = ends.map(({ at, i, value }, order) => {
        const name = this.data.names[i] ?? String(i);
        const group = draw("g", {
          "data-i": i,
          class: this.data.kinds[i].replace(" ", "-"),
          role: "img",
          "aria-label": `${name}: ${known(lines[i]).map(written).join(", ")}`,
        });
        group.append(
          this.line(lines[i], x, y, "path"),
          this.line(lines[i], x, y, "hit"),
          draw("path", {
            class: "rule",
            d: `M${right + 3} ${at.toFixed(1)}L${right + 26} ${room[order].toFixed(1)}`,
          }),
          draw(
            "text",
            { x: right + 30, y: (room[order] + 4).toFixed(1) },
            `${name} ${written(value)}`,
          ),
        );
        for (const kind of ["pointerenter", "focus"])
          group.addEventListener(kind, () => this.mark(i));
        for (const kind of ["pointerleave", "blur"])
          group.addEventListener(kind, () => this.mark());
        group.addEventListener("click", () => this.choose(i));
        group.addEventListener("keydown", ({ key }) => {
          if (key === "Enter") this.choose(i);
        });
        return group;
      });
      svg.append(...groups);
      return groups;
    }

    /** @param {number} place */
    choose(place) {
      const detail = { place, stack: this.stack };
      document.dispatchEvent(new CustomEvent("headbook-path", { detail }));
    }

    /** @param {Maybe} near */
    mark(near = null) {
      const on = near ?? this.chosen;
      this.picture.classList.toggle("some", on !== null);
      for (const group of this.paths) {
        const is = group.dataset.i === String(on);
        group.classList.toggle("on", is);
      }
    }

    /** @param {number} place */
    token(place) {
      this.chosen = place;
      if (this.isJoint) this.draw();
      else this.mark();
    }

    /** @param {string} suffix */
    file(suffix) {
      return (
        `${one("h1").textContent} ${this.isJoint ? "one token" : this.now.id}`
          .toLowerCase()
          .replace(/[^a-z0-9]+/g, "-") + suffix
      );
    }

    /* As it stands, with the colours that style gives it. */
    saveSvg() {
      const svg = this.picture, copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
      const [mine, copies] = [svg, copy].map((each) => all("path, text", each));
      mine.forEach((element, i) => {
        const style = getComputedStyle(element);
        for (const name of STYLES)
          copies[i].setAttribute(name, style.getPropertyValue(name));
        if (element.matches(".hit")) copies[i].setAttribute("stroke", "none");
      });
      const { width, height } = svg.viewBox.baseVal;
      copy.setAttribute("font-family", "system-ui, sans-serif");
      copy.prepend(
        draw("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }),
      );
      offer(this.file(".svg"), "image/svg+xml", new XMLSerializer().serializeToString(copy));
    }

    saveCsv() {
      /** @type {(text: string) => string} */
      const cell = (text) =>
        `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replace(/"/g, '""')}"`;
      const metrics = this.isJoint ? this.joint : [this.now];
      const lines = metrics.flatMap(({ id, views }) => {
        const { layers, values } = this.isJoint ? views[0] : this.graph;
        return values.flatMap((path, i) =>
          path.map((value, layer) => [
            i, cell(this.data.names[i]), layers[layer], id, value ?? "",
          ]));
      });
      offer(
        this.file(".csv"),
        "text/csv",
        `${[CSV, ...lines].map((line) => line.join(",")).join("\r\n")}\r\n`,
      );
    }
  }

  /* The vocabulary tokens nearest to the chosen token. */
  class Nearest {
    /** @param {HTMLElement} section */
    constructor(section) {
      this.section = section;
      this.place = 0;
      this.name = "";
      this.select = one("select", section);
      this.select.addEventListener("change", () => this.show());
    }

    /** @param {number} place @param {string} name */
    token(place, name) {
      this.place = place;
      this.name = name;
      this.show();
    }

    async show() {
      const { src = "", name = "", entries: stack = "" } = this.section.dataset;
      /** @type {Record<string, Entries>} */
      const data = await load(src, name);
      const found = data[stack][this.select.value];
      const cells = found.cells[this.place];
      if (!cells) return;
      if (this.name) one("[data-of]", this.section).textContent = this.name;
      one("tbody", this.section).replaceChildren(...found.layers.map((layer, i) => {
        const line = make("tr");
        line.append(
          make("th", { scope: "row" }, String(layer)),
          ...cells[i].map(([entry, value]) => {
            const cell = make("td");
            cell.append(make("bdi", {}, entry), " ", make("small", {}, value));
            return cell;
          }),
        );
        return line;
      }));
    }
  }

  window.headbook.paths = async () => {
    /** @type {{ stack: string, of: { token: (place: number, name: string) => void } }[]} */
    const followers = all("[data-entries]").map((section) => ({
      stack: section.dataset.entries ?? "", of: new Nearest(section),
    }));
    /** @type {TokenDetail | null} */
    let last = null;
    document.addEventListener("headbook-token", ({ detail }) => {
      last = detail;
      for (const { stack, of } of followers) {
        if (detail.stacks.includes(stack)) of.token(detail.place, detail.name);
      }
    });
    /** @type {(paths: Paths) => void} */
    const begin = (paths) => {
      followers.push({ stack: paths.stack, of: paths });
      if (last?.stacks.includes(paths.stack)) paths.token(last.place);
    };
    for (const figure of all("figure[data-paths]")) {
      const { src = "", name = "", paths: stack = "" } = figure.dataset;
      /** @type {Record<string, PathsData>} */
      const data = await load(src, name);
      begin(new Paths(figure, data[stack], stack));
    }
  };
})();
