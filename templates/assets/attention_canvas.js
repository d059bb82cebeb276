"use strict";
/* Attention on canvas: a map with its tokens, and lines from tokens to tokens. */
(() => {
  /**
   * @typedef {{ left: number, top: number, right: number }} Margins
   * @typedef {Margins & { size: number, named: boolean }} Room
   */
  const { make, REACH } = window.headbook;
  const { most, shade } = window.headbook.weights;
  const LARGEST = 560;
  const NAMED = 9; /* pixels of a cell from which on names stand beside it */
  const GAPS = 28; /* a gap between two texts is one part in so many of a small map */
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

  /* The stops of a scale on light or dark paper: `q` from paper to ink, `v` both ways from zero. */
  /** @type {Map<string, Colour[]>} */
  const stops = new Map();
  /** @type {() => "light" | "dark"} */
  const schemeNow = () => {
    const { theme } = document.documentElement.dataset;
    if (theme === "light" || theme === "dark") return theme;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };
  /** @type {(name: string, scheme: string) => Colour[]} */
  const stopsOf = (name, scheme) => {
    const key = `${name} ${scheme}`;
    const known = stops.get(key);
    if (known) return known;
    const probe = make("i");
    probe.style.colorScheme = scheme;
    document.body.append(probe);
    const found = Array.from({ length: 7 }, (_, step) => {
      probe.className = `${name}${step}`;
      const numbers = getComputedStyle(probe).backgroundColor.match(/\d+/g) ?? [];
      return numbers.slice(0, 3).map(Number);
    });
    probe.remove();
    stops.set(key, found);
    return found;
  };
  /** @type {(found: Colour[], part: number) => Colour} */
  const between = (found, part) => {
    const place = Math.min(1, Math.max(0, part)) * 6,
      low = Math.min(5, Math.floor(place)),
      rest = place - low;
    return found[low].map((value, i) => Math.round(value + (found[low + 1][i] - value) * rest));
  };
  /** @type {Drawing["colour"]} */
  const colour = (part, scheme = schemeNow()) => between(stopsOf("q", scheme), part);
  /* Of a difference of two weights: the root of its size, so that it compares with those of
     weights. */
  /** @type {Drawing["sided"]} */
  const sided = (value) =>
    between(
      stopsOf("v", schemeNow()),
      (1 + Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value)))) / 2,
    );
  /* Of a cosine: both ways from zero, linear. */
  /** @type {Drawing["signed"]} */
  const signed = (value, scheme = schemeNow()) => between(stopsOf("v", scheme), (1 + value) / 2);
  /** @type {Drawing["inkOf"]} */
  const inkOf = (element) => getComputedStyle(element).color;

  /** @type {Drawing["penOf"]} */
  const penOf = (canvas) => /** @type {Pen} */ (canvas.getContext("2d"));
  /* A canvas of some size in CSS pixels, sharp on every screen; its pen. */
  /** @type {Drawing["sized"]} */
  const sized = (canvas, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = penOf(canvas);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
  };

  /* Room for the names of rows, and for those of columns, which lean. */
  const margins = new WeakMap(), measuring = penOf(make("canvas"));
  /** @type {(rows: string[], columns: string[]) => Margins} */
  const marginsOf = (rows, columns) => {
    if (!margins.has(columns)) {
      measuring.font = "bold 11px system-ui, sans-serif";
      /** @type {(names: string[]) => number} */
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
  /** @type {(shown: Drawable, canvas: HTMLCanvasElement) => Room} */
  const sizes = ({ rows, columns }, canvas) => {
    const longest = Math.max(rows.length, columns.length),
      { left, top, right } = marginsOf(rows, columns);
    const room = Number(canvas.parentElement?.clientWidth) - left - right;
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
  /** @type {WeakMap<Float64Array, { key: string, canvas: HTMLCanvasElement }>} */
  const drawn = new WeakMap();
  /** @type {(value: number, scale: MapScale) => Colour} */
  const colourOf = (value, scale) => {
    if (scale === "difference") return sided(value);
    return scale === "cosine" ? signed(value) : colour(shade(value, scale));
  };
  /** @type {(shown: Drawable, scale: MapScale, size: number) => HTMLCanvasElement} */
  const cellsOf = (picture, scale, size) => {
    const ratio = window.devicePixelRatio || 1, key = `${scale} ${size} ${ratio} ${schemeNow()}`;
    const before = drawn.get(picture.values);
    if (before && before.key === key) return before.canvas;
    const canvas = make("canvas"), n = picture.columns.length, gap = size > 4 ? 1 : 0;
    const pen = sized(canvas, n * size, picture.rows.length * size);
    picture.values.forEach((value, i) => {
      if (Number.isNaN(value)) return;
      pen.fillStyle = `rgb(${colourOf(value, scale).join(" ")})`;
      pen.fillRect((i % n) * size, Math.floor(i / n) * size, size - gap, size - gap);
    });
    drawn.set(picture.values, { key, canvas });
    return canvas;
  };
  /** @type {(pen: Pen, shown: Drawable, near: Pair, room: Room) => void} */
  const paintNames = (pen, picture, near, { size, left, top }) => {
    /** @type {(marked: boolean) => string} */
    const face = (marked) => `${marked ? "bold " : ""}11px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    picture.rows.forEach((token, q) => {
      pen.textAlign = "right";
      pen.font = face(q === near.q);
      pen.fillText([...token].slice(0, 14).join(""), left - 6, top + (q + 0.5) * size, left - 10);
    });
    picture.columns.forEach((token, k) => {
      pen.save();
      pen.translate(left + (k + 0.5) * size, top - 6);
      pen.rotate(-Math.PI / 3);
      pen.textAlign = "left";
      pen.font = face(k === near.k);
      pen.fillText([...token].slice(0, 14).join(""), 0, 0, top - 8);
      pen.restore();
    });
  };
  /* Gaps with a line where sentences of a passage, or the second text of a pair, begin. */
  /** @type {(pen: Pen, shown: Drawable, room: Room) => void} */
  const paintStarts = (pen, { rows, columns, starts = [[], []] }, { size, left, top }) => {
    const [width, height] = [columns.length * size, rows.length * size];
    const half = size > 4 ? 0.5 : 0, gap = Math.max(3, Math.round(size / 3));
    pen.lineWidth = 1;
    pen.beginPath();
    for (const q of starts[0]) {
      const y = top + q * size - half;
      pen.clearRect(left, y - gap / 2, width, gap);
      pen.moveTo(left, y);
      pen.lineTo(left + width, y);
    }
    for (const k of starts[1]) {
      const x = left + k * size - half;
      pen.clearRect(x - gap / 2, top, gap, height);
      pen.moveTo(x, top);
      pen.lineTo(x, top + height);
    }
    pen.stroke();
  };
  /* The map of what is shown, with the row and the column of a token and the cell of both. */
  /** @type {Drawing["paintMap"]} */
  const paintMap = (canvas, picture, scale, near) => {
    const room = sizes(picture, canvas), { size, left, top, right } = room;
    canvas.dataset.grid = `${left} ${top} ${size}`;
    const [width, height] = [picture.columns.length * size, picture.rows.length * size];
    const pen = sized(canvas, left + width + right, top + height + (room.named ? 0 : 2));
    pen.drawImage(cellsOf(picture, scale, size), left, top, width, height);
    pen.fillStyle = inkOf(canvas);
    if (room.named) paintNames(pen, picture, near, room);
    pen.strokeStyle = inkOf(canvas);
    paintStarts(pen, picture, room);
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
  /** @type {Drawing["cellAt"]} */
  const cellAt = (event, canvas, picture) => {
    if (!picture) return null;
    if (!canvas.dataset.grid) return null;
    const box = canvas.getBoundingClientRect(),
      [left, top, size] = canvas.dataset.grid.split(" ").map(Number);
    /** @type {(place: number, count: number) => number | null} */
    const nearest = (place, count) => {
      if (place < -REACH || place >= count * size + REACH) return null;
      return Math.min(count - 1, Math.max(0, Math.floor(place / size)));
    };
    const q = nearest(event.clientY - box.top - top, picture.rows.length);
    const k = nearest(event.clientX - box.left - left, picture.columns.length);
    return q === null || k === null ? null : { q, k };
  };

  /* Lines to the keys that hold a share of a row: of one query, or of all where none is chosen.
     Each head has a dash of its own; its letter stands beside the key. */
  /** @type {Drawing["paintLines"]} */
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
  /** @type {(part: number) => Colour} */
  const inked = (part) => {
    const found = colour(part, "light"), alpha = 1 - Math.min(...found) / 255;
    return [
      ...found.map((value) => (alpha ? Math.round((value - (1 - alpha) * 255) / alpha) : 0)),
      Math.round(255 * alpha),
    ];
  };
  /** @type {Drawing["paintSheet"]} */
  const paintSheet = (views, heads, scale) => {
    const { rows, columns, starts = [[], []] } = views[0];
    const gap = Math.max(1, Math.round(Math.max(rows.length, columns.length) / GAPS));
    /* The pixel of each token, with gaps before those that begin a text. */
    /** @type {(tokens: string[], first: number[]) => number[]} */
    const placed = (tokens, first) =>
      tokens.map((_, i) => i + gap * first.filter((start) => start <= i).length);
    const down = placed(rows, starts[0]), across = placed(columns, starts[1]);
    const [height, width] = [down, across].map((places) => places[places.length - 1] + 1);
    const canvas = make("canvas", {
      width: heads * (width + 1),
      height: (views.length / heads) * (height + 1),
    });
    const pen = penOf(canvas), pixels = new ImageData(width, height);
    const table = Array.from({ length: 256 }, (_, step) => inked(step / 255));
    views.forEach(({ values }, place) => {
      values.forEach((value, i) => {
        pixels.data.set(
          Number.isNaN(value) ? [0, 0, 0, 0] : table[Math.round(255 * shade(value, scale))],
          4 * (down[Math.floor(i / columns.length)] * width + across[i % columns.length]),
        );
      });
      pen.putImageData(
        pixels,
        (place % heads) * (width + 1),
        Math.floor(place / heads) * (height + 1),
      );
    });
    return canvas.toDataURL();
  };

  window.headbook.drawing = {
    DASHES, colour, sided, signed, paintMap, cellAt, paintLines, paintSheet, inkOf, penOf, sized,
  };
})();
