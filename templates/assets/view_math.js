"use strict";
/* What views make of a stored map: raw, no sink, renormalised, norm-weighted; pieces or words. The
   mathematics alone, nothing here touches the page. Tables are lists, row after row; NaN stands
   where there is nothing to see: the sink that is left out, keys that come later. */
(() => {
  const STEPS = 255;
  /** @type {Weights["total"]} */
  const total = (row) => row.reduce((sum, value) => (value > 0 ? sum + value : sum), 0);
  /** @type {(value: number) => boolean} */
  const known = (value) => !Number.isNaN(value);

  /* Map number `place` of a data file's list. */
  /** @type {Weights["mapOf"]} */
  const mapOf = (data, place = 0) => {
    const queries = data.queries || data.keys, { keys, causal } = data;
    const n = keys.pieces.length, size = queries.pieces.length * n;
    return {
      queries, keys, causal, made: {},
      steps: data.weights.subarray(place * size, (place + 1) * size),
      norms: data.norms.slice(place * n, (place + 1) * n),
    };
  };

  /** @type {(map: StoredMap, key: number) => boolean} */
  const isSink = ({ keys, causal }, key) => Boolean(keys.special[key]) || (causal && key === 0);

  /** @type {(map: StoredMap, view: ViewName) => Float64Array} */
  const ofPieces = (map, view) => {
    const n = map.keys.pieces.length;
    const cut = view === "nosink" || view === "renorm";
    const values = Float64Array.from(map.steps, (step, i) => {
      const key = i % n;
      if (map.causal && key > Math.floor(i / n)) return NaN;
      if (cut && isSink(map, key)) return NaN;
      return (step / STEPS) * (view === "norm" ? map.norms[key] : 1);
    });
    if (view !== "renorm" && view !== "norm") return predicted(map, values);
    for (let start = 0; start < values.length; start += n) {
      const row = values.subarray(start, start + n), left = total(row);
      row.forEach((value, k) => { row[k] = left > 0 ? value / left : NaN; });
    }
    return predicted(map, values);
  };

  /* By the word that a decoder is about to write, the row of a token is the one before, which
     predicts it; nothing predicts the first token. */
  /** @type {(map: StoredMap, values: Float64Array) => Float64Array} */
  const predicted = (map, values) => {
    if (!map.written) return values;
    const n = map.keys.pieces.length, shifted = new Float64Array(values.length).fill(NaN);
    shifted.set(values.subarray(0, values.length - n), n);
    return shifted;
  };

  /* To a word the sum over its pieces, from a word the mean over those that count: neither special
     nor, in a causal stack, the first token; all of them where none counts. */
  /** @type {(map: StoredMap, values: Float64Array) => Float64Array} */
  const ofWords = (map, values) => {
    const { queries, keys, causal } = map, n = keys.pieces.length, width = keys.names.length;
    const found = new Float64Array(queries.names.length * width).fill(NaN);
    queries.names.forEach((_, word) => {
      const own = [...queries.units.keys()].filter((q) => queries.units[q] === word);
      const counted = own.filter((q) => !queries.special[q] && !(causal && q === 0));
      const rows = (counted.length ? counted : own).map((q) => values.subarray(q * n, (q + 1) * n));
      const there = rows.filter((row) => row.some(known));
      for (const row of there) {
        row.forEach((value, k) => {
          const at = word * width + keys.units[k];
          if (known(value)) found[at] = (known(found[at]) ? found[at] : 0) + value / there.length;
        });
      }
    });
    return found;
  };

  /* The view that is shown: without lengths of values, none is weighted by them. */
  /** @type {Weights["viewOf"]} */
  const viewOf = (map, view) => (view === "norm" && !map.norms.length ? "raw" : view);

  /* A map in a view: names of rows and columns, and the values. */
  /** @type {Weights["seen"]} */
  const seen = (map, view, units) => {
    const found = map.made[view + units] ?? make(map, view, units);
    map.made[view + units] = found;
    return found;
  };
  /** @type {Weights["seen"]} */
  const make = (map, view, units) => {
    const words = units === "words";
    const pieces = ofPieces(map, viewOf(map, view));
    const columns = words ? map.keys.names : map.keys.pieces;
    const values = words ? ofWords(map, pieces) : pieces;
    const rows = words ? map.queries.names : map.queries.pieces, n = columns.length;
    /** @type {Seen["row"]} */
    const row = (q) => values.subarray(q * n, (q + 1) * n);
    /** @type {Seen["column"]} */
    const column = (k) => Float64Array.from(rows, (_, q) => values[q * n + k]);
    /** @type {Seen["starts"]} */
    const starts = [startsOf(map.queries, units), startsOf(map.keys, units)];
    return { rows, columns, values, row, column, starts };
  };

  /* Where the sentences of a passage begin, but for the first. */
  /** @type {Weights["startsOf"]} */
  const startsOf = ({ starts = [], units: words }, units) =>
    units === "words" ? starts.map((place) => words[place]) : starts;

  /* Keys from the strongest on, each with the share of the row up to it. */
  /** @type {Weights["sorted"]} */
  const sorted = (row) => {
    const all = total(row);
    let sum = 0;
    /** @type {(k: number) => number} */
    const place = (k) => Math.round(row[k] * 1e12); /* sums that differ by rounding are equal */
    return [...row.keys()].filter((k) => known(row[k])).sort((a, b) => place(b) - place(a) || a - b)
      .map((key) => ({ key, value: row[key], sofar: all > 0 ? (sum += row[key]) / all : NaN }));
  };
  /* The fewest keys that hold a share of the row. */
  /** @type {Weights["most"]} */
  const most = (row, share) => {
    const keys = sorted(row).filter(({ value }) => value > 0);
    const last = keys.findIndex(({ sofar }) => sofar >= share - 1e-9);
    return last < 0 ? keys : keys.slice(0, last + 1);
  };

  /* The place of a value on the colour scale, 0 to 1; the logarithm begins at one stored step. */
  /** @type {Weights["shade"]} */
  const shade = (value, scale) => {
    if (!(value > 0)) return 0;
    if (scale === "log") return Math.min(1, Math.max(0, 1 + Math.log(value) / Math.log(STEPS)));
    return Math.min(1, scale === "root" ? Math.sqrt(value) : value);
  };
  /** @type {Weights["written"]} */
  const written = (value) => /* in two digits, as many as 8 bits hold; no minus before 0 */
    known(value) ? (Math.round(100 * value) / 100 + 0).toFixed(2) : "–";

  window.headbook.weights = { mapOf, viewOf, seen, sorted, most, shade, written, total, startsOf };
})();
