"use strict";
/* Context similarity: the cosine of a head's outputs at every two tokens of a sentence, as they are
   or minus their mean; the switch between this matrix and the attention map. */
(() => {
  const { make, apart, load } = window.headbook;
  const { written, startsOf } = window.headbook.weights;
  const NO_OUTPUT = -32768; /* first number of a token without an output */
  /** @type {Matrix[]} */
  const MATRICES = ["attention", "similarity", "centred"];
  const SIMILARITY = "Cosine of the head’s outputs at two tokens";
  const CENTRED = "Cosine of outputs minus their mean in the text";
  const NOTE = "Blank: special tokens and tokens without an output. Rounded to ± 0.02.";

  /* Deviations from the mean output, a vector a token. The file has them axis by axis, for all
     heads and for the tokens that reach the axis. */
  /** @type {(outputs: OutputsData, place: number) => Float64Array[]} */
  const deviationsOf = ({ tokens, axes, mean, low, high }, place) => {
    const vectors = tokens.map(() => new Float64Array(axes)), heads = mean.length / 4;
    let start = 0;
    for (let axis = 0; axis < axes; axis += 1) {
      const first = Math.max(0, axis - 1), count = tokens.length - first;
      for (let t = first; t < tokens.length; t += 1) {
        const at = start + place * count + t - first, code = low[at] + 256 * high[at];
        vectors[t][axis] = code % 2 ? -(code + 1) / 2 : code / 2;
      }
      start += heads * count;
    }
    return vectors;
  };

  /** @type {(outputs: OutputsData, place: number, n: number, centred: boolean) => Float64Array} */
  const cosines = (outputs, place, n, centred) => {
    const mean = new Float32Array(outputs.mean.buffer)[place];
    const units = deviationsOf(outputs, place).map((vector) => {
      if (vector[0] === NO_OUTPUT) return null;
      if (!centred) vector[0] += mean;
      const length = Math.hypot(...vector);
      return length > 0 ? vector.map((value) => value / length) : null;
    });
    const values = new Float64Array(n * n).fill(NaN);
    units.forEach((one, i) => units.forEach((other, j) => {
      if (!one || !other) return;
      const product = one.reduce((sum, value, axis) => sum + value * other[axis], 0);
      values[outputs.tokens[i] * n + outputs.tokens[j]] = Math.min(1, Math.max(-1, product));
    }));
    return values;
  };

  /* Of two words, the mean over pairs of their subword tokens. */
  /** @type {(text: TokenText, values: Float64Array) => Float64Array} */
  const ofWords = ({ pieces, names, units }, values) => {
    const n = pieces.length, width = names.length;
    const sums = new Float64Array(width * width), counts = new Float64Array(width * width);
    values.forEach((value, i) => {
      if (Number.isNaN(value)) return;
      const at = units[Math.floor(i / n)] * width + units[i % n];
      sums[at] += value;
      counts[at] += 1;
    });
    return sums.map((sum, i) => (counts[i] ? sum / counts[i] : NaN));
  };

  /** @type {WeakMap<StoredMap, Lookup<Seen>>} */
  const known = new WeakMap();
  /**
   * @param {OutputsData} outputs @param {number} place @param {StoredMap} map
   * @param {Matrix} matrix @param {Units} units @returns {Seen}
   */
  const similarityOf = (outputs, place, map, matrix, units) => {
    const made = known.get(map) ?? {}, key = matrix + units;
    known.set(map, made);
    made[key] ??= (() => {
      const text = map.queries, words = units === "words";
      const pieces = cosines(outputs, place, text.pieces.length, matrix === "centred");
      const values = words ? ofWords(text, pieces) : pieces;
      const rows = words ? text.names : text.pieces, n = rows.length;
      /** @type {Seen["row"]} */
      const row = (q) => values.subarray(q * n, (q + 1) * n);
      const starts = startsOf(text, units);
      return { rows, columns: rows, values, row, column: row, starts: [starts, starts] };
    })();
    return made[key];
  };

  /* The place of the output that is most like that of a token; -1 without any. */
  /** @type {(seen: Seen, q: number) => number} */
  const nearest = (seen, q) => seen.row(q).reduce(
    (best, value, j, row) => (j === q || !(value > (row[best] ?? -2)) ? best : j), -1);

  /* What the work panel shows as a matrix: the attention map, or similarities of outputs. */
  class Matrices {
    /** @param {WorkspaceLike} work */
    constructor(work) {
      this.work = work;
      /** @type {Matrix} */
      this.matrix = "attention";
      /** @type {Record<string, OutputsData>} */
      this.outputs = {};
      this.box = make("span", { class: "turn", role: "group", "aria-label": "Matrix" });
      this.buttons = MATRICES.map((matrix) => {
        const button = make("button", { type: "button", "data-matrix": matrix }, matrix);
        button.addEventListener("click", async () => {
          await this.turn(matrix);
          work.draw();
          work.point(true);
        });
        return button;
      });
      this.box.append(...this.buttons);
    }

    /* Numbers are read when they are first asked for. */
    /** @param {string} [matrix] of an address or a button */
    async turn(matrix) {
      const { tiles: { outputs }, name } = this.work;
      this.matrix = MATRICES.find((each) => each === matrix) ?? "attention";
      if (this.matrix !== "attention" && outputs && !this.outputs[this.work.at])
        this.outputs = await load(outputs, `${name}-outputs`);
    }

    draw() {
      this.box.hidden = !this.work.tiles.outputs;
      for (const button of this.buttons)
        button.setAttribute("aria-pressed", String(button.dataset.matrix === this.matrix));
    }

    get title() { return this.matrix === "centred" ? CENTRED : SIMILARITY; }

    similar() {
      const { work, matrix } = this, outputs = this.outputs[work.at];
      if (matrix === "attention" || !outputs || !work.tiles.outputs) return null;
      return work.views.map((view) => {
        const place = work.tiles.list.findIndex(({ head }) => head === view.head);
        return similarityOf(outputs, place, view.map, matrix, work.units);
      });
    }

    /* A pair in words; of a token alone, the one whose output is most like its own. */
    /** @param {Seen[]} all @param {Pair} pair @returns {Content[]} */
    message(all, { q, k }) {
      const [first] = all, other = k ?? (q === null ? -1 : nearest(first, q));
      if (q === null || other < 0) return ["Choose a token that has an output."];
      const values = all.map((seen, i) => {
        const value = written(seen.row(q)[other]).replace("-", "−");
        return all.length > 1 ? `${this.work.views[i].name} ${value}` : value;
      });
      return [
        `Outputs at ${q} `, apart(first.rows[q]), ` and ${other} `, apart(first.rows[other]),
        `: ${this.matrix === "centred" ? "centred " : ""}similarity ${values.join(", ")}`,
      ];
    }

    legend() {
      const line = make("p", { class: "ramp hint" });
      const steps = Array.from({ length: 7 }, (_, i) => make("i", { class: `v${i}` }));
      const box = make("div");
      line.append("−1 ", ...steps, " 1 (linear)");
      box.append(line, make("p", { class: "hint" }, NOTE));
      return box;
    }
  }

  window.headbook.Matrices = Matrices;
})();
