"use strict";
/* Attention on canvas: a map with its tokens, and lines from tokens to tokens. */
(() => {
  const { make, REACH } = window.headbook;
  const { most, shade } = window.headbook.weights;
  const LARGEST = 560;
  const NAMED = 9; /* pixels of a cell from which on names stand beside it */
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

  /* The stops of a scale on light or dark paper: `q` from paper to ink, `v` both ways from zero. */
  const stops = new Map();
  const schemeNow = () => {
    const { theme } = document.documentElement.dataset;
    if (theme === "light" || theme === "dark") return theme;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };
  const stopsOf = (name, scheme) => {
    const key = `${name} ${scheme}`;
    if (!stops.has(key)) {
      const probe = make("i");
      probe.style.colorScheme = scheme;
      document.body.append(probe);
      stops.set(key, Array.from({ length: 7 }, (_, step) => {
        probe.className = `${name}${step}`;
        return getComputedStyle(probe).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);
      }));
      probe.remove();
    }
    return stops.get(key);
  };
  const between = (found, part) => {
    const place = Math.min(1, Math.max(0, part)) * 6,
      low = Math.min(5, Math.floor(place)),
      rest = place - low;
    return found[low].map((value, i) => Math.round(value + (found[low + 1][i] - value) * rest));
  };
  const colour = (part, scheme = schemeNow()) => between(stopsOf("q", scheme), part);
  /* Of a difference of two weights: the root of its size, so that it compares with those of
     weights. */
  const sided = (value) =>
    between(
      stopsOf("v", schemeNow()),
      (1 + Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value)))) / 2,
    );
  /* An element of a picture in lines. */
  const { namespaceURI } = new DOMParser()
    .parseFromString("<svg></svg>", "text/html")
    .querySelector("svg");
  const svg = (name, attributes, text = "") => {
    const element = document.createElementNS(namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  };
  const inkOf = (element) => getComputedStyle(element).color;

  /* A canvas of some size in CSS pixels, sharp on every screen; its pen. */
  const sized = (canvas, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
  };

  /* Room for the names of rows, and for those of columns, which lean. */
  const margins = new WeakMap(), measuring = make("canvas").getContext("2d");
  const marginsOf = (rows, columns) => {
    if (!margins.has(columns)) {
      measuring.font = "bold 11px system-ui, sans-serif";
      const widest = (names) =>
        Math.min(
          86,
          Math.max(
            ...names.map((name) => measuring.measureText([...name].slice(0, 14).join("")).width),
          ),
        );
      const across = widest(columns);
      margins.set(columns, {
        left: widest(rows) + 10,
        top: Math.ceil(0.87 * across) + 12,
        right: Math.ceil(across / 2) + 4,
      });
    }
    return margins.get(columns);
  };

  /* Cells fit the page as long as names do, too; below that the map scrolls. */
  const sizes = ({ rows, columns }, canvas) => {
    const longest = Math.max(rows.length, columns.length),
      { left, top, right } = marginsOf(rows, columns);
    const room = canvas.parentElement.clientWidth - left - right;
    /* In the work panel cells fit their pane; a long text scrolls there rather than lose its
       names. */
    const docked = canvas.closest(".dock"),
      within = docked && longest <= 64 ? Math.max(NAMED, Math.floor(room / longest)) : 0;
    const largest = within || Math.floor(LARGEST / longest);
    const named = largest >= NAMED;
    const fit = docked ? largest : Math.floor(room / columns.length);
    const size = named ? Math.max(NAMED, Math.min(18, largest, fit)) : Math.max(2, largest);
    return named ? { size, left, top, right, named } : { size, left: 2, top: 2, right: 2, named };
  };
  /* The cells alone, drawn once for a map; pointing changes only what lies above them. */
  const drawn = new WeakMap();
  const cellsOf = (shown, scale, size) => {
    const ratio = window.devicePixelRatio || 1, key = `${scale} ${size} ${ratio} ${schemeNow()}`;
    const before = drawn.get(shown.values);
    if (before && before.key === key) return before.canvas;
    const canvas = make("canvas"), n = shown.columns.length;
    const pen = sized(canvas, n * size, shown.rows.length * size);
    shown.values.forEach((value, i) => {
      if (Number.isNaN(value)) return;
      const found = scale === "difference" ? sided(value) : colour(shade(value, scale));
      pen.fillStyle = `rgb(${found.join(" ")})`;
      pen.fillRect((i % n) * size, Math.floor(i / n) * size, size - (size > 4), size - (size > 4));
    });
    drawn.set(shown.values, { key, canvas });
    return canvas;
  };
  const paintNames = (pen, shown, near, { size, left, top }) => {
    const face = (marked) => `${marked ? "bold " : ""}11px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    shown.rows.forEach((token, q) => {
      pen.textAlign = "right";
      pen.font = face(q === near.q);
      pen.fillText([...token].slice(0, 14).join(""), left - 6, top + (q + 0.5) * size, left - 10);
    });
    shown.columns.forEach((token, k) => {
      pen.save();
      pen.translate(left + (k + 0.5) * size, top - 6);
      pen.rotate(-Math.PI / 3);
      pen.textAlign = "left";
      pen.font = face(k === near.k);
      pen.fillText([...token].slice(0, 14).join(""), 0, 0, top - 8);
      pen.restore();
    });
  };
  /* The map of what is shown, with the row and the column of a token and the cell of both. */
  const paintMap = (canvas, shown, scale, near) => {
    const room = sizes(shown, canvas), { size, left, top, right } = room;
    canvas.dataset.grid = `${left} ${top} ${size}`;
    const [width, height] = [shown.columns.length * size, shown.rows.length * size];
    const pen = sized(canvas, left + width + right, top + height + (room.named ? 0 : 2));
    pen.drawImage(cellsOf(shown, scale, size), left, top, width, height);
    pen.fillStyle = inkOf(canvas);
    if (room.named) paintNames(pen, shown, near, room);
    pen.strokeStyle = getComputedStyle(canvas).outlineColor;
    pen.lineWidth = 1;
    if (near.q !== null) pen.strokeRect(left - 0.5, top + near.q * size - 0.5, width, size);
    if (near.k !== null) pen.strokeRect(left + near.k * size - 0.5, top - 0.5, size, height);
    pen.lineWidth = 2;
    if (near.q !== null && near.k !== null)
      pen.strokeRect(left + near.k * size, top + near.q * size, size, size);
  };
  /* The cell under the pointer or nearest to it within reach, or null; nothing is shown before the
     numbers are there. */
  const cellAt = (event, canvas, shown) => {
    if (!shown) return null;
    if (!canvas.dataset.grid) return null;
    const box = canvas.getBoundingClientRect(),
      [left, top, size] = canvas.dataset.grid.split(" ").map(Number);
    const nearest = (place, count) => {
      if (place < -REACH || place >= count * size + REACH) return null;
      return Math.min(count - 1, Math.max(0, Math.floor(place / size)));
    };
    const q = nearest(event.clientY - box.top - top, shown.rows.length);
    const k = nearest(event.clientX - box.left - left, shown.columns.length);
    return q === null || k === null ? null : { q, k };
  };

  /* Lines to the keys that hold a share of a row: of one query, or of all where none is chosen.
     Each head has a dash of its own; its letter stands beside the key. */
  const paintLines = (canvas, views, query, share, { height, width, inks }) => {
    const longest = Math.max(views[0].rows.length, views[0].columns.length);
    const pen = sized(canvas, width, longest * height);
    views.forEach((view, number) => {
      pen.strokeStyle = inks[number];
      pen.setLineDash(DASHES[number]);
      const queries = query === null ? [...view.rows.keys()] : [query];
      for (const q of queries) {
        for (const { key, value } of most(view.row(q), share)) {
          const shift = 2 * (number - (views.length - 1) / 2);
          const [from, to] = [(q + 0.5) * height + shift, (key + 0.5) * height + shift];
          pen.globalAlpha = query === null ? 0.08 + 0.8 * value : 0.35 + 0.65 * value;
          pen.lineWidth = query === null ? 1.2 : 1 + 4 * value;
          pen.beginPath();
          pen.moveTo(0, from);
          pen.bezierCurveTo(width / 2, from, width / 2, to, width, to);
          pen.stroke();
        }
      }
    });
  };

  /* All heads as one picture, a pixel a weight and one between two maps, as the page's own: in the
     ink of light paper, which dark paper turns round; zero is transparent. */
  const inked = (part) => {
    const found = colour(part, "light"), alpha = 1 - Math.min(...found) / 255;
    return [
      ...found.map((value) => (alpha ? Math.round((value - (1 - alpha) * 255) / alpha) : 0)),
      Math.round(255 * alpha),
    ];
  };
  const paintSheet = (views, heads, scale) => {
    const [rows, columns] = [views[0].rows.length, views[0].columns.length];
    const canvas = make("canvas", {
      width: heads * (columns + 1),
      height: (views.length / heads) * (rows + 1),
    });
    const pen = canvas.getContext("2d"), pixels = new ImageData(columns, rows);
    const table = Array.from({ length: 256 }, (_, step) => inked(step / 255));
    views.forEach(({ values }, place) => {
      values.forEach((value, i) => {
        pixels.data.set(
          Number.isNaN(value) ? [0, 0, 0, 0] : table[Math.round(255 * shade(value, scale))],
          4 * i,
        );
      });
      pen.putImageData(
        pixels,
        (place % heads) * (columns + 1),
        Math.floor(place / heads) * (rows + 1),
      );
    });
    return canvas.toDataURL();
  };

  window.headbook.drawing = {
    svg,
    DASHES,
    colour,
    sided,
    paintMap,
    cellAt,
    paintLines,
    paintSheet,
    inkOf,
    sized,
  };
})();
