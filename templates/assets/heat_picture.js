"use strict";
/* A map of heads as a picture that is made here: SVG, black on white. */
(() => {
  const { svg: draw, make } = window.headbook;
  const CELL = 24, LEFT = 44, TOP = 44, LINE = 16, NARROWEST = 420, LETTER = 6.4;

  /* The colour of a fill on light paper, as the style sheet has it. */
  /** @type {Map<string, string>} */
  const known = new Map();
  /** @type {(fill: string) => string} */
  const colour = (fill) => {
    const found = known.get(fill);
    if (found) return found;
    const probe = make("i", { class: fill });
    probe.style.colorScheme = "light";
    document.body.append(probe);
    const numbers = getComputedStyle(probe).backgroundColor.match(/\d+/g) ?? [];
    probe.remove();
    const text = `rgb(${numbers.slice(0, 3).join(",")})`;
    known.set(fill, text);
    return text;
  };
  /** @type {(text: string, x: number, y: number, more?: Attributes) => SVGElement} */
  const label = (text, x, y, more = {}) =>
    draw("text", { x, y, "dominant-baseline": "central", ...more }, text);
  /** @type {(text: string, letters: number) => string[]} */
  const folded = (text, letters) => {
    const lines = [""];
    for (const word of text.split(" ")) {
      const longer = `${lines.at(-1)} ${word}`.trim();
      if (longer.length <= letters) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  };

  /** @type {Headbook["heatPicture"]} */
  const heatPicture = (rows, { fills, fillOf, ends, caption }) => {
    const layers = [...new Set(rows.map(({ layer }) => layer))].sort((a, b) => a - b);
    const heads = [...new Set(rows.map(({ head }) => head))].sort((a, b) => a - b);
    const width = Math.max(LEFT + CELL * heads.length + 16, NARROWEST);
    const below = TOP + CELL * layers.length + 12;
    const lines = folded(caption, Math.floor((width - 16) / LETTER));
    const height = below + 34 + LINE * lines.length;
    const svg = draw("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif",
      "font-size": 12,
    });
    svg.append(
      draw("title", {}, caption),
      draw("rect", { width: "100%", height: "100%", fill: "white" }),
      label("head", LEFT + (CELL * heads.length) / 2, 12, { "text-anchor": "middle" }),
      ...heads.map((head, i) =>
        label(String(head), LEFT + CELL * (i + 0.5), TOP - 12, { "text-anchor": "middle" })),
      ...layers.map((layer, i) =>
        label(String(layer), LEFT - 8, TOP + CELL * (i + 0.5), { "text-anchor": "end" })),
      label("layer", 4, TOP - 12),
      ...rows.map(({ layer, head, value }) =>
        draw("rect", {
          x: LEFT + CELL * heads.indexOf(head), y: TOP + CELL * layers.indexOf(layer),
          width: CELL, height: CELL, fill: colour(fillOf(value)),
          "shape-rendering": "crispEdges",
        })),
      ...fills.map((fill, i) =>
        draw("rect", {
          x: LEFT + 40 + i * 20, y: below, width: 20, height: 12, fill: colour(fill),
          stroke: "black", "stroke-opacity": 0.2, "shape-rendering": "crispEdges",
        })),
      label(ends[0], LEFT + 34, below + 6, { "text-anchor": "end" }),
      label(ends[1], LEFT + 46 + fills.length * 20, below + 6),
      ...lines.map((line, i) => label(line, 8, below + 34 + LINE * i)),
    );
    return new XMLSerializer().serializeToString(svg);
  };

  window.headbook.heatPicture = heatPicture;
})();
