"use strict";
/* What an attention view shows, as files: pictures in SVG, black on white, and a table in CSV with
   every digit that is known. */
(() => {
  const { all, one, make, svg: draw, offer } = window.headbook;
  const { most, shade, viewOf, written } = window.headbook.weights;
  const { switches, drawing } = window.headbook;
  const FONT = { "font-family": "system-ui, sans-serif", "font-size": 12 };
  const INKS = ["#0060a0", "#a84300", "#00694b", "#8a2f7b"];
  const CELL = 14, ROW = 20, GAP = 8, NARROWEST = 360;
  const pen = drawing.penOf(make("canvas"));
  pen.font = "12px system-ui, sans-serif";
  /** @type {(texts: string[]) => number} */
  const widest = (texts) => Math.max(...texts.map((text) => pen.measureText(text).width), 0);

  /** @type {(text: string, x: number, y: number, more?: Attributes) => SVGElement} */
  const label = (text, x, y, more = {}) =>
    draw("text", { x, y, "dominant-baseline": "central", ...more }, text);
  /* A picture with its caption below, in lines that fit. */
  /** @type {(width: number, height: number, parts: SVGElement[], caption: string) => string} */
  const picture = (width, height, parts, caption) => {
    const room = Math.max(width, NARROWEST), lines = [""];
    for (const word of caption.split(" ")) {
      const longer = `${lines.at(-1)} ${word}`.trim();
      if (pen.measureText(longer).width <= room - 2 * GAP) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    const whole = height + GAP + 16 * lines.length + GAP;
    const svg = draw("svg", {
      width: room,
      height: whole,
      viewBox: `0 0 ${room} ${whole}`,
      ...FONT,
    });
    svg.append(
      draw("title", {}, caption),
      draw("rect", { width: "100%", height: "100%", fill: "white" }),
      ...parts,
    );
    svg.append(...lines.map((line, i) => label(line, GAP, height + GAP + 16 * (i + 0.5))));
    return new XMLSerializer().serializeToString(svg);
  };

  /* A map: cells of one colour are one shape; the marked pair has a frame. */
  /** @type {(view: Drawable, scale: Scale, pair: Pair, caption: string) => string} */
  const mapPicture = (view, scale, { q, k }, caption) => {
    const { rows, columns, values } = view, n = columns.length;
    const left = Math.ceil(widest(rows) + 2 * GAP),
      top = Math.ceil(0.87 * widest(columns) + 3 * GAP);
    const shapes = new Map();
    values.forEach((value, i) => {
      if (Number.isNaN(value)) return;
      const colour = `rgb(${drawing.colour(shade(value, scale), "light").join(",")})`;
      const place = `M${left + (i % n) * CELL} ${top + Math.floor(i / n) * CELL}`;
      shapes.set(colour, `${shapes.get(colour) || ""}${place}h${CELL}v${CELL}h${-CELL}z`);
    });
    /** @type {SVGElement[]} */
    const parts = [...shapes].map(([fill, d]) =>
      draw("path", { d, fill, "shape-rendering": "crispEdges" }),
    );
    parts.push(
      ...rows.map((name, i) =>
        label(name, left - GAP, top + (i + 0.5) * CELL, { "text-anchor": "end" }),
      ),
    );
    parts.push(...columns.map((name, i) => {
      const [x, y] = [left + (i + 0.5) * CELL, top - GAP];
      return label(name, x, y, { transform: `rotate(-60 ${x} ${y})` });
    }));
    if (q !== null && k !== null) {
      parts.push(
        draw("rect", {
          x: left + k * CELL,
          y: top + q * CELL,
          width: CELL,
          height: CELL,
          fill: "none",
          stroke: "#d55e00",
          "stroke-width": 2,
        }),
      );
    }
    const below = top + rows.length * CELL + GAP;
    parts.push(...legend(left, below, scale));
    return picture(left + n * CELL + 0.5 * top, below + CELL, parts, caption);
  };
  /** @type {(left: number, top: number, scale: Scale) => SVGElement[]} */
  const legend = (left, top, scale) => [
    label(scale === "log" ? "≤ 1/255" : "0", left - GAP, top + CELL / 2, { "text-anchor": "end" }),
    ...Array.from({ length: 11 }, (_, i) =>
      draw("rect", {
        x: left + i * CELL,
        y: top,
        width: CELL,
        height: CELL,
        fill: `rgb(${drawing.colour(i / 10, "light").join(",")})`,
        "shape-rendering": "crispEdges",
      }),
    ),
    label("1", left + 11 * CELL + GAP, top + CELL / 2),
  ];

  /* The tokens twice, with the lines of one query or of all. */
  /** @type {(views: Seen[], q: Maybe, share: number, caption: string) => string} */
  const linesPicture = (views, q, share, caption) => {
    const [{ rows, columns }] = views, left = widest(rows) + 2 * GAP, right = left + 180;
    /** @type {string[][]} */
    const beside = columns.map(() => []);
    /** @type {(place: number) => number} */
    const y = (place) => GAP + (place + 0.5) * ROW;
    /** @type {SVGElement[]} */
    const parts = views.flatMap((view, number) => {
      const queries = q === null ? [...rows.keys()] : [q];
      return queries.flatMap((query) => most(view.row(query), share).map(({ key, value }) => {
        if (q !== null)
          beside[key].push(
            views.length > 1 ? `${"ABCD"[number]} ${written(value)}` : written(value),
          );
        const [from, to, middle] = [y(query), y(key), (left + right) / 2];
        return draw("path", {
          d: `M${left} ${from}C${middle} ${from} ${middle} ${to} ${right} ${to}`,
          fill: "none",
          stroke: INKS[number],
          "stroke-width": (q === null ? 1.2 : 1 + 4 * value).toFixed(2),
          "stroke-opacity": (q === null ? 0.08 + 0.8 * value : 0.35 + 0.65 * value).toFixed(3),
          "stroke-dasharray": drawing.DASHES[number].join(" ") || "none",
        });
      }));
    });
    /** @type {(place: number) => string} */
    const weight = (place) => (place === q ? "bold" : "normal");
    const texts = columns.map((name, i) => [name, ...beside[i]].join("  "));
    parts.push(
      ...rows.map((name, i) =>
        label(name, left - GAP, y(i), { "text-anchor": "end", "font-weight": weight(i) }),
      ),
    );
    parts.push(...texts.map((text, i) => label(text, right + GAP, y(i))));
    return picture(
      right + widest(texts) + 3 * GAP,
      2 * GAP + ROW * Math.max(rows.length, columns.length),
      parts,
      caption,
    );
  };

  /* Spreadsheets take some first letters for formulas, but not those of a number. */
  const FORMULA = /^(?![+-]?\d+(?:\.\d+)?$)[=+\-@\t\r]/;
  /** @type {(text: string) => string} */
  const cell = (text) =>
    `"${(FORMULA.test(text) ? "'" : "") + String(text).replace(/"/g, '""')}"`;
  /** @type {(value: string | number) => string | number} */
  const field = (value) => {
    if (typeof value !== "number") return cell(value);
    return Number.isNaN(value) ? "" : Number(value.toPrecision(6));
  };
  /** @type {(titles: string[], lines: (string | number)[][]) => string} */
  const table = (titles, lines) =>
    `${[titles, ...lines].map((line) => line.map(field).join(",")).join("\r\n")}\r\n`;
  /** @type {(views: HeadView[]) => string} */
  const weightsTable = (views) =>
    table(
      ["head", "query_position", "query", "key_position", "key", "weight"],
      views.flatMap(({ name, rows, columns, row }) =>
        rows.flatMap((query, q) =>
          [...row(q)].map((weight, k) => [name, q, query, k, columns[k], weight]),
        ),
      ),
    );

  /** @type {(...parts: string[]) => string} */
  const named = (...parts) =>
    parts
      .join(" ")
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-|-$/g, "");
  /** @type {(text: string, act: () => void) => HTMLButtonElement} */
  const button = (text, act) => {
    const found = make("button", { type: "button" }, text);
    found.addEventListener("click", act);
    return found;
  };

  /* The command that writes the same heads in the same sentence as files for papers. */
  const ASKED =
    "STUDY is the folder that headbook collect has written, or build with --keep-study: ask " +
    "whoever made this report. ";
  /** @type {(shown: Savable) => string} */
  const command = ({ about, views }) => {
    const { state: { units, view: asked } } = switches, view = viewOf(views[0].map, asked);
    const ending = `${view === "raw" ? "" : `-${view}`}${units === "words" ? "-words" : ""}`;
    const number = (/\d+/.exec(about) ?? [""])[0].padStart(4, "0");
    const names = views.map(({ name }) => {
      const [, stack, layer, head] = /^(?:(\w+) )?L(\d+)·H(\d+)$/.exec(name) ?? [];
      const place = `L${layer.padStart(2, "0")}-H${head.padStart(2, "0")}`;
      return `--only "*-S${number}-${stack ? `${stack}-` : ""}${place}${ending}"`;
    });
    return `headbook figures STUDY ${names.join(" ")} --out figures`;
  };

  /* Put buttons for what an instance shows into a box. */
  /** @type {Headbook["save"]} */
  const save = (instance, box) => {
    const { source } = one("[data-switches]").dataset;
    const where = () => {
      const { view, units, scale } = switches.state, names = instance.views.map(({ name }) => name);
      return {
        names,
        about:
          `${switches.titles[view]}, weights of ${switches.names[units]}, ` +
          `${switches.scales[scale]} colours, stored with 8 bits`,
        scale,
      };
    };
    const from = () => {
      const { now: { q }, views } = instance;
      return q === null ? "" : ` from “${views[0].rows[q]}” (${q})`;
    };
    /** @type {(kind: string, suffix: string) => string} */
    const file = (kind, suffix) => `${named(instance.about, ...where().names, kind)}.${suffix}`;
    /** @type {(what: string) => string} */
    const sentence = (what) =>
      `${what} of ${where()
        .names.map((name, i) => (instance.views.length > 1 ? `${"ABCD"[i]}: ${name}` : name))
        .join(", ")}, ${instance.about}; ${where().about}. ${source}`;
    box.append(
      "Save as a file: ",
      button("Map (SVG)", () =>
        offer(
          file("map", "svg"),
          "image/svg+xml",
          mapPicture(instance.views[0], where().scale, instance.now, sentence("Attention")),
        ),
      ),
      button("Lines (SVG)", () =>
        offer(
          file("lines", "svg"),
          "image/svg+xml",
          linesPicture(
            instance.views,
            instance.now.q,
            Number(switches.state.mass) / 100,
            sentence(`Attention${from()}, lines up to ${switches.state.mass} % of a row,`),
          ),
        ),
      ),
      button("Caption (TXT)", () =>
        offer(file("caption", "txt"), "text/plain", `${sentence("Attention")}\n`),
      ),
      button("Weights (CSV)", () =>
        offer(file("weights", "csv"), "text/csv", weightsTable(instance.views)),
      ),
    );
    const line = make("small"), code = make("code"), [about] = all("a[href$='about.html']");
    const tell = () => { if (instance.views.length) code.textContent = command(instance); };
    line.append(
      "For a paper, as PDF with LaTeX and BibTeX (linear colours, lines up to 90\u202f%): ",
      code,
      `. ${ASKED}`,
    );
    const href = about?.getAttribute("href");
    if (href) line.append(make("a", { href }, "Cite this report"));
    box.append(line);
    tell();
    const title = instance.panel?.title;
    if (title) new MutationObserver(tell).observe(title, { childList: true });
    switches.follow(tell);
  };

  window.headbook.save = save;
})();
