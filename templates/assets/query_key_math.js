"use strict";
/* From queries and keys to a row of weights: products, scaling, what the model adds, softmax. The
   mathematics alone, nothing here touches the page. */
(() => {
  /** @type {(bytes: Uint8Array<ArrayBuffer>) => Float32Array} */
  const floats = (bytes) => new Float32Array(bytes.buffer);
  /* Vectors from integers, which count steps of the scale of their head, or of their dimension. */
  /** @type {(data: NeuronsData, bytes: Bytes, scaleBytes: Bytes, heads: number) => Float32Array} */
  const vectors = ({ bits, width }, { buffer }, scaleBytes, heads) => {
    const steps = bits === 8 ? new Int8Array(buffer) : new Int16Array(buffer);
    const scales = floats(scaleBytes), ofHead = steps.length / heads, n = scales.length / heads;
    return Float32Array.from(steps, (step, i) =>
      step * scales[Math.floor(i / ofHead) * n + (n === 1 ? 0 : i % width)]);
  };

  /* A layer's file, read once. */
  /** @type {(data: NeuronsData) => Layer} */
  const layerOf = (data) => {
    data.read = data.read || {
      ...data, queries: vectors(data, data.queries, data.queryScales, data.heads),
      keys: vectors(data, data.keys, data.keyScales, data.keyHeads), added: floats(data.added),
      seen: data.seen,
    };
    return data.read;
  };

  /* What one query of a head makes of every key: `query` and `key(k)` as vectors; `products`,
     `added`, `scores` and `weights` by key, NaN where it does not see one; `sum`, the logarithm of
     the sum of exponentials of its scores; how many keys it sees. `added` is null without any. */
  /** @type {(layer: Layer, head: number, q: number) => ScoreRow} */
  const rowOf = (layer, head, q) => {
    const { width, heads, keyHeads, scaling } = layer;
    const n = layer.keys.length / keyHeads / width, m = layer.queries.length / heads / width;
    const group = Math.floor((head * keyHeads) / heads);
    const query = layer.queries.subarray((head * m + q) * width, (head * m + q + 1) * width);
    /** @type {ScoreRow["key"]} */
    const key = (k) => layer.keys.subarray((group * n + k) * width, (group * n + k + 1) * width);
    const places = Array.from({ length: n }, (_, k) => k);
    /** @type {(k: number) => boolean} */
    const seen = (k) => layer.seen[q * n + k] === 1;
    const products = places.map((k) =>
      seen(k) ? query.reduce((sum, value, i) => sum + value * key(k)[i], 0) : NaN,
    );
    const added = layer.added.length
      ? places.map((k) => layer.added[(head * m + q) * n + k])
      : null;
    const scores = products.map((value, k) => value * scaling + (added ? added[k] : 0));
    const there = scores.filter((value) => !Number.isNaN(value)), largest = Math.max(...there);
    const sum =
      largest + Math.log(there.reduce((total, value) => total + Math.exp(value - largest), 0));
    return {
      query,
      key,
      products,
      added,
      scores,
      weights: scores.map((value) => Math.exp(value - sum)),
      sum,
      sees: there.length,
    };
  };

  window.headbook.scores = { layerOf, rowOf };
})();
