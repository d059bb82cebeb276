"use strict";
/* Attention on canvas: a map with its tokens, and lines from tokens to tokens. */
(() => {
  const { make } = window.headbook;
  const { most, shade } = window.headbook.weights;
  const LARGEST = 560;
  const NAMED = 9; /* pixels of a cell from which on names stand beside it */
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

  /* The scale of the stylesheet, on the paper of the page or on white paper. */
  const palettes = new Map();
  const colours = (white) => {
    const paper = white ? "white" : getComputedStyle(document.body).backgroundColor;
    if (!palettes.has(paper)) {
      const probe = make("i"), box = make("span", { class: white ? "white" : "" });
      box.append(probe);
      document.body.append(box);
      palettes.set(paper, Array.from({ length: 21 }, (_, step) => {
        probe.className = `c${step}`;
        return getComputedStyle(probe).backgroundColor.match(/\d+/g).map(Number);
      }));
      box.remove();
    }
    return palettes.get(paper);
  };
  const colour = (part, white = false) => {
    const place = part * 20, low = Math.min(19, Math.floor(place)), rest = place - low;
    const [a, b] = [colours(white)[low], colours(white)[low + 1]];
    return a.map((value, i) => Math.round(value + (b[i] - value) * rest));
  };
  /* The same on white paper as ink on glass: red, green, blue and opacity, 0 to 255. */
  const ink = (part) => {
    const found = colour(part, true), opacity = 1 - Math.min(...found) / 255;
    return [...found.map((value) => (opacity ? Math.round((value - (1 - opacity) * 255) / opacity) : 0)), Math.round(255 * opacity)];
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

  /* Cells fit the page as long as names do, too; below that the map scrolls. */
  const sizes = ({ rows, columns }, canvas) => {
    const largest = Math.floor(LARGEST / Math.max(rows.length, columns.length));
    const named = largest >= NAMED;
    const fit = Math.floor((canvas.parentElement.clientWidth - 140) / columns.length);
    const size = named ? Math.max(NAMED, Math.min(18, largest, fit)) : Math.max(2, largest);
    const [left, top, right] = named ? [96, 84, 44] : [2, 2, 2];
    return { size, left, top, right, named };
  };
  /* The cells alone, drawn once for a map; pointing changes only what lies above them. */
  const drawn = new WeakMap();
  const cellsOf = (shown, scale, size) => {
    const ratio = window.devicePixelRatio || 1, key = `${scale} ${size} ${ratio} ${colour(0)}`;
    const before = drawn.get(shown.values);
    if (before && before.key === key) return before.canvas;
    const canvas = make("canvas"), n = shown.columns.length;
    const pen = sized(canvas, n * size, shown.rows.length * size);
    shown.values.forEach((value, i) => {
      if (Number.isNaN(value)) return;
      pen.fillStyle = `rgb(${colour(shade(value, scale)).join(" ")})`;
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
    if (near.q !== null && near.k !== null) pen.strokeRect(left + near.k * size, top + near.q * size, size, size);
  };
  /* The cell under the pointer, or null; nothing is shown before the numbers are there. */
  const cellAt = (event, canvas, shown) => {
    if (!shown) return null;
    const box = canvas.getBoundingClientRect(), { size, left, top } = sizes(shown, canvas);
    const q = Math.floor((event.clientY - box.top - top) / size);
    const k = Math.floor((event.clientX - box.left - left) / size);
    return q < 0 || k < 0 || q >= shown.rows.length || k >= shown.columns.length ? null : { q, k };
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

  /* All heads as one picture that pages turn round on dark paper: rows are layers, columns are heads. */
  const paintSheet = (views, heads, scale) => {
    const [rows, columns] = [views[0].rows.length, views[0].columns.length];
    const longest = Math.max(rows, columns), zoom = Math.max(1, Math.floor(44 / longest));
    const side = longest * zoom + 2;
    const canvas = make("canvas", { width: heads * side, height: (views.length / heads) * side });
    const pen = canvas.getContext("2d");
    const small = make("canvas", { width: columns, height: rows });
    const pixels = new ImageData(columns, rows);
    const table = Array.from({ length: 256 }, (_, step) => ink(step / 255));
    pen.imageSmoothingEnabled = false;
    views.forEach(({ values }, place) => {
      values.forEach((value, i) => {
        const step = Math.round(255 * shade(value, scale));
        pixels.data.set(Number.isNaN(value) ? [0, 0, 0, 0] : table[step], 4 * i);
      });
      small.getContext("2d").putImageData(pixels, 0, 0);
      const [left, top] = [(place % heads) * side, Math.floor(place / heads) * side];
      pen.drawImage(small, left, top, columns * zoom, rows * zoom);
    });
    return canvas.toDataURL();
  };

  window.headbook.drawing = { DASHES, colour, paintMap, cellAt, paintLines, paintSheet, inkOf, sized };
})();
