"use strict";
/* Numbers as the pages print them, digit for digit, and the files that hold them. */
(() => {
  const MISSING = "–", THIN = "\u202f", MINUS = "−";

  /* A fixed number of decimals; a tie goes to the even digit, as where the pages were made. */
  /** @type {(value: number, digits: number) => string} */
  const fixed = (value, digits) => {
    const size = Math.abs(value), floor = Math.floor(size * 10 ** digits);
    const tie = (size * 2 ** (digits + 1)) % 2 === 1;
    const text =
      tie && floor % 2 === 0 ? (floor / 10 ** digits).toFixed(digits) : size.toFixed(digits);
    return value < 0 ? MINUS + text : text;
  };
  /** @type {(value: number) => string} */
  const percent = (value) => {
    if (value > 0 && value < 0.0005) return `<${THIN}0.1${THIN}%`;
    if (value > -0.0005 && value < 0) return `>${THIN}${MINUS}0.1${THIN}%`;
    if (value >= 0.9995 && value < 1) return `>${THIN}99.9${THIN}%`;
    return `${fixed(100 * value, 1)}${THIN}%`;
  };
  /** @type {NumberFormats["number"]} */
  const number = (value, share, like = value) => {
    if (Number.isNaN(value)) return MISSING;
    if (share) return percent(value);
    const own = Math.abs(value), size = Math.abs(Number.isNaN(like) ? value : like);
    if (own > 0 && own < 0.005) return value > 0 ? `<${THIN}0.01` : `>${THIN}${MINUS}0.01`;
    const digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    return fixed(value, digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  };
  /** @type {NumberFormats["interval"]} */
  const interval = (low, high, share) => {
    if (Number.isNaN(low) || Number.isNaN(high)) return "";
    if (!share) return `[${number(low, false, high)}, ${number(high, false)}]`;
    return `[${percent(low)}, ${percent(high)}]`.replaceAll(`${THIN}%`, "");
  };

  /* Numbers of all heads: values in 64 bits, ends of intervals in 32. */
  /** @type {NumberFormats["unpacked"]} */
  const unpacked = ({ value, low, high, thin, guess = "" }) => ({
    value: new Float64Array(value.buffer),
    low: new Float32Array(low.buffer),
    high: new Float32Array(high.buffer),
    thin: [...thin].map((few) => few === "1"),
    guess: [...guess].map((each) => each === "1"),
  });

  window.headbook.numbers = { MISSING, number, interval, unpacked };
})();
