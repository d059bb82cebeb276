"use strict";
/* The paths of a sentence's tokens through the layers, and the vocabulary tokens nearest to one
   of them: drawn from data. The chosen token of the page is marked; pointing at a path dims the
   others. */
(() => {
  const { all, load, make, offer, rove } = window.headbook;
  const WIDTH = 1100, HEIGHT = 380, LEFT = 64, RIGHT = 250, TOP = 12, BOTTOM = 34;
  const APART = 12.6; /* between two names at the ends of paths */
  const RANK_TICKS = [0, 1, 10, 100, 1000, 10000, 100000, 1000000];
  const CLASS = { "content words": "content", "function words": "function" };
  const CSV = ["token_position", "token", "layer", "value"];

  const { svg: draw } = window.headbook.drawing;
  const known = (values) => values.filter((value) => value !== null && !Number.isNaN(value));
  const written = (value) =>
    (Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(2)).replace(
      "-",
      "−",
    );

  /* Round numbers between two ends. */
  const ticksOf = (low, high, ranks) => {
    if (ranks) return RANK_TICKS.filter((tick) => tick <= high);
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) =>
      Number(((first + i) * step).toPrecision(6)),
    );
  };

  class Paths {
    constructor(figure, data, names) {
      Object.assign(this, { figure, data, names, chosen: null });
      this.box = figure.querySelector(".scroll");
      const line = make("p", { class: "setting" });
      this.metric = this.select(
        line,
        "Measure",
        data.metrics.map(({ title }) => title),
      );
      this.view = this.select(line, "", []);
      figure.prepend(line);
      this.metric.addEventListener("change", () => {
        this.views();
        this.draw();
      });
      this.view.addEventListener("change", () => this.draw());
      const tools = figure.querySelector(".tools");
      for (const [text, act] of [
        ["SVG", () => this.saveSvg()],
        ["CSV", () => this.saveCsv()],
      ]) {
        const button = make("button", { type: "button" }, text);
        button.addEventListener("click", act);
        tools.append(button, " ");
      }
      this.views();
      this.draw();
    }

    select(line, title, options) {
      const select = make("select"),
        label = make("label", {}, `${title} `);
      if (!title) select.setAttribute("aria-label", "State and comparison");
      select.append(...options.map((text) => make("option", {}, text)));
      label.append(select);
      line.append(label);
      return select;
    }

    get now() {
      return this.data.metrics[this.metric.selectedIndex];
    }
    get shown() {
      return this.now.views[Math.max(0, this.view.selectedIndex)];
    }

    views() {
      this.view.replaceChildren(...this.now.views.map(({ name }) => make("option", {}, name)));
      this.view.parentElement.hidden = this.now.views.length < 2;
    }

    /* Values of a path with where it begins. */
    whole(values) {
      return this.now.start === null ? values : [this.now.start, ...values];
    }

    draw() {
      const { now, shown } = this,
        { ranks } = now;
      const lines = shown.values.map((values) => this.whole(values));
      const beside = Object.entries(shown.beside).map(([name, values]) => [
        name,
        now.start === null ? values : [null, ...values],
      ]);
      const means = Object.entries(shown.classes).map(([name, values]) => [
        `mean of ${name}`,
        this.whole(values),
        CLASS[name],
      ]);
      const every = known(
        [
          ...lines,
          ...beside.map(([, values]) => values),
          ...means.map(([, values]) => values),
        ].flat(),
      );
      const low = ranks ? 0 : Math.min(...every),
        high = Math.max(...every),
        wide = high - low || 1;
      const along = (value) =>
        ranks ? Math.log1p(value) / Math.log1p(high || 1) : (value - low) / wide;
      const names = [...(now.start === null ? [] : ["input"]), ...shown.layers.map(String)];
      const right = WIDTH - RIGHT;
      const x = (i) => LEFT + (names.length > 1 ? (i * (right - LEFT)) / (names.length - 1) : 0);
      const y = (value) => HEIGHT - BOTTOM - along(value) * (HEIGHT - BOTTOM - TOP);
      const svg = draw("svg", {
        viewBox: `0 0 ${WIDTH} ${this.height(lines.length)}`,
        role: "group",
        "aria-label": `${now.title}, a path for each token; arrow keys move from path to path`,
      });
      for (const tick of ticksOf(low, high, ranks)) {
        svg.append(
          draw("path", { class: "rule", d: `M${LEFT} ${y(tick)}H${right}` }),
          draw(
            "text",
            { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" },
            ranks || tick >= 100 ? tick.toLocaleString("en") : String(tick).replace("-", "−"),
          ),
        );
      }
      const every_ = Math.ceil(names.length / 24);
      names.forEach((name, i) => {
        if (i % every_ === 0)
          svg.append(
            draw(
              "text",
              { class: "tick", x: x(i), y: HEIGHT - 10, "text-anchor": "middle" },
              i === 0 && name !== "input" ? `after layer ${name}` : name,
            ),
          );
      });
      for (const [name, values, style] of means)
        svg.append(this.line(values, x, y, `mean ${style}`, name));
      for (const [name, values] of beside) svg.append(this.line(values, x, y, "beside", name));
      this.names_(svg, [
        ...means.map(([name, values, style]) => [name, values, style]),
        ...beside.map(([name, values]) => [name, values, "beside"]),
      ]);
      this.paths = this.tokens(svg, lines, x, y, right);
      this.box.replaceChildren(svg);
      rove(svg, this.paths, this.paths.length);
      this.mark();
      const state = shown.name ? `, ${shown.name}` : "";
      this.figure.querySelector("[data-said]").textContent =
        `${now.title} of each token through the layers${state}; y-axis: ${now.axis}` +
        `${ranks ? " (logarithmic)" : ""}. ` +
        (means.length ? "Thick: means of all sentences by word class. " : "") +
        (beside.length ? "Dashed: the comparison named beside it. " : "");
    }

    height(tokens) {
      return Math.max(HEIGHT, 2 * TOP + APART * tokens);
    }

    line(values, x, y, style, title = "") {
      const parts = values
        .map((value, i) => (value === null ? null : `${x(i).toFixed(1)} ${y(value).toFixed(1)}`))
        .filter(Boolean);
      const path = draw("path", { class: style, d: `M${parts.join("L")}` });
      if (title) path.append(draw("title", {}, title));
      return path;
    }

    names_(svg, named) {
      named.forEach(([name, values, style], i) => {
        const last = known(values).at(-1);
        svg.append(
          draw(
            "text",
            { class: `key ${style}`, x: WIDTH - 4, y: TOP + 8 + 18 * i, "text-anchor": "end" },
            `${style === "beside" ? "┅" : "▬"} ${name} ${written(last)}`,
          ),
        );
      });
    }

    tokens(svg, lines, x, y, right) {
      const ends = lines
        .map((values, i) => [known(values).at(-1), i])
        .filter(([value]) => value !== undefined)
        .map(([value, i]) => [y(value), i, value])
        .sort((a, b) => a[0] - b[0]);
      let before = -Infinity;
      const places = ends.map(([at]) => {
        before = Math.max(at, before + APART);
        return before;
      });
      const over = Math.max(0, before - (this.height(lines.length) - TOP));
      let room = places.map((place) => place - over);
      if (room[0] < TOP) room = room.map((place) => place + TOP - room[0]);
      const groups = ends.map(([at, i, value], order) => {
        const name = this.names[i] ?? String(i);
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

    /* The token of the page, by its button. */
    choose(i) {
      const button = document.querySelector(`.words button[data-i="${i}"]`);
      if (this.chooses) this.chooses(i);
      else if (button) button.click();
    }

    mark(near = null) {
      const on = near ?? this.chosen;
      this.box.firstElementChild.classList.toggle("some", on !== null);
      for (const group of this.paths) {
        const is = group.dataset.i === String(on);
        group.classList.toggle("on", is);
      }
    }

    token(place) {
      this.chosen = place;
      this.mark();
    }

    file(suffix) {
      return (
        `${document.querySelector("h1").textContent} ${this.now.id}`
          .toLowerCase()
          .replace(/[^a-z0-9]+/g, "-") + suffix
      );
    }

    /* As it stands, with the colours that style gives it. */
    saveSvg() {
      const svg = this.box.firstElementChild,
        copy = svg.cloneNode(true);
      const [mine, copies] = [svg, copy].map((each) => all("path, text", each));
      mine.forEach((element, i) => {
        const style = getComputedStyle(element);
        for (const name of [
          "stroke",
          "stroke-width",
          "stroke-opacity",
          "stroke-dasharray",
          "fill",
          "opacity",
          "font-size",
          "font-weight",
        ])
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
      const cell = (text) =>
        `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replace(/"/g, '""')}"`;
      const lines = this.shown.values.flatMap((values, i) =>
        values.map((value, layer) => [
          i,
          cell(this.names[i]),
          this.shown.layers[layer],
          value ?? "",
        ]),
      );
      offer(
        this.file(".csv"),
        "text/csv",
        `${[CSV, ...lines].map((line) => line.join(",")).join("\r\n")}\r\n`,
      );
    }
  }

  /* The vocabulary tokens nearest to the chosen token. */
  class Entries {
    constructor(section) {
      this.section = section;
      this.place = null;
      this.select = section.querySelector("select");
      this.select.addEventListener("change", () => this.show());
    }

    token(place, name) {
      this.place = place;
      this.name = name;
      this.show();
    }

    async show() {
      const { src, name, entries: stack } = this.section.dataset;
      const found = (await load(src, name))[stack][this.select.value];
      const cells = found.cells[this.place ?? 0];
      if (!cells) return;
      if (this.name !== undefined) this.section.querySelector("[data-of]").textContent = this.name;
      this.section.querySelector("tbody").replaceChildren(...found.layers.map((layer, i) => {
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
    const followers = all("[data-entries]").map((section) => ({
      stack: section.dataset.entries,
      of: new Entries(section),
    }));
    let last = null;
    const tell = ({ place, stacks, name }) =>
      followers.forEach(({ stack, of }) => {
        if (stacks.includes(stack)) of.token(place, name);
      });
    document.addEventListener("headbook-token", ({ detail }) => {
      last = detail;
      tell(detail);
    });
    for (const figure of all("figure[data-paths]")) {
      const { src, name, paths: stack } = figure.dataset;
      const data = (await load(src, name))[stack];
      const paths = new Paths(figure, data, data.names);
      followers.push({ stack, of: paths });
      if (last && last.stacks.includes(stack)) paths.token(last.place);
    }
  };
})();
