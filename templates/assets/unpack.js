"use strict";
/* What `headbook.site.pressed` made few with LZMA (https://www.7-zip.org/sdk.html) and
   `headbook.site.letters` wrote as letters: no header but the size, three bits of the byte before
   tell the contexts of a literal, none of the position do. */
(() => {
  /* Bytes from letters. */
  const UNFIT = [0, 10, 13, 34, 38, 60, 62, 92], PAIRS = 0x100, LAST = 0x500;
  /** @type {(text: string) => Uint8Array<ArrayBuffer>} */
  const spelt = (text) => {
    const found = new Uint8Array(2 * text.length); /* a letter is fourteen bits at most */
    let size = 0, held = 0, bits = 0;
    /** @type {(seven: number) => void} */
    const add = (seven) => {
      held = ((held & 255) << 7) | seven;
      bits += 7;
      if (bits < 8) return;
      bits -= 8;
      found[size++] = held >> bits;
    };
    for (let i = 0; i < text.length; i += 1) {
      const code = text.charCodeAt(i);
      if (code < 128) add(code);
      else if (code >= LAST) add(UNFIT[code - LAST]);
      else {
        add(UNFIT[(code - PAIRS) >> 7]);
        add(code & 127);
      }
    }
    return found.slice(0, size);
  };

  const TOP = 2 ** 24, HALF = 1024, WHOLE = 2048, SPEED = 5;
  /* Where the chances of each decision stand in one table, by state or by the bits before. */
  const MATCH = 0, REPEAT = 12, FIRST = 24, SECOND = 36, THIRD = 48, SINGLE = 60, SLOTS = 72,
    SPECIAL = SLOTS + 256, ALIGN = SPECIAL + 115, LENGTH = ALIGN + 16, WIDTH = 2 + 16 + 256,
    LITERAL = LENGTH + 2 * WIDTH, EACH = 0x300, ALL = LITERAL + 8 * EACH;
  /* Bits of a stream, each with the chance that it has learnt. */
  /** @type {(bytes: Uint8Array) => Bits} */
  const decoder = (bytes) => {
    const chances = new Uint16Array(ALL).fill(HALF), held = new Uint32Array(2); /* range, code */
    let at = 1;
    held[0] = -1;
    for (; at < 5; at += 1) held[1] = (held[1] << 8) | bytes[at];
    const fill = () => {
      if (held[0] >= TOP) return;
      held[0] <<= 8;
      held[1] = (held[1] << 8) | bytes[at];
      at += 1;
    };
    /** @type {Bits["bit"]} */
    const bit = (place) => {
      const chance = chances[place], bound = (held[0] >>> 11) * chance;
      const found = held[1] < bound ? 0 : 1;
      if (found) {
        held[0] -= bound;
        held[1] -= bound;
        chances[place] -= chance >> SPEED;
      } else {
        held[0] = bound;
        chances[place] += (WHOLE - chance) >> SPEED;
      }
      fill();
      return found;
    };
    /** @type {Bits["tree"]} */
    const tree = (place, count) => {
      let found = 1;
      for (let i = 0; i < count; i += 1) found = (found << 1) | bit(place + found);
      return found - (1 << count);
    };
    /** @type {Bits["reversed"]} */
    const reversed = (place, count) => {
      let found = 0;
      for (let i = 0, node = 1; i < count; i += 1) {
        const one = bit(place + node);
        node = (node << 1) | one;
        found |= one << i;
      }
      return found;
    };
    /** @type {Bits["even"]} */
    const even = (count) => {
      let found = 0;
      for (let i = 0; i < count; i += 1) {
        held[0] >>>= 1;
        const one = held[1] >= held[0] ? 1 : 0;
        held[1] -= one * held[0];
        fill();
        found = (found << 1) | one;
      }
      return found;
    };
    return { bit, tree, reversed, even };
  };
  /** @type {(bits: Bits, place: number) => number} */
  const length = ({ bit, tree }, place) => {
    if (!bit(place)) return 2 + tree(place + 2, 3);
    return bit(place + 1) ? 18 + tree(place + 18, 8) : 10 + tree(place + 10, 3);
  };
  /** @type {(bits: Bits, long: number) => number} */
  const distance = ({ tree, reversed, even }, long) => {
    const slot = tree(SLOTS + 64 * Math.min(long - 2, 3), 6), count = (slot >> 1) - 1;
    if (slot < 4) return slot;
    const least = (2 | (slot & 1)) << count;
    if (slot < 14) return least + reversed(SPECIAL + least - slot, count);
    return least + (even(count - 4) << 4) + reversed(ALIGN, 4);
  };
  /* A literal; after a match the byte that would have gone on with it tells what it is not. */
  /** @type {(bits: Bits, before: number, likely: number) => number} */
  const literal = ({ bit }, before, likely) => {
    const place = LITERAL + EACH * (before >> 5);
    let found = 1;
    for (let i = likely < 0 ? -1 : 7; i >= 0; i -= 1) {
      const other = (likely >> i) & 1, one = bit(place + ((1 + other) << 8) + found);
      found = (found << 1) | one;
      if (one !== other) break;
    }
    while (found < 256) found = (found << 1) | bit(place + found);
    return found & 255;
  };
  /** @type {Window["unpack"]} */
  window.unpack = (text) => {
    const bytes = spelt(text), size = new DataView(bytes.buffer).getUint32(0);
    const found = new Uint8Array(size), bits = decoder(bytes.subarray(4)), { bit } = bits;
    let done = 0, state = 0, last = [0, 0, 0, 0];
    while (done < size) {
      const [back] = last, next = found[done - back - 1];
      if (!bit(MATCH + state)) {
        found[done] = literal(bits, found[done - 1] ?? 0, state < 7 ? -1 : next);
        done += 1;
        state -= state < 4 ? state : state < 10 ? 3 : 6;
        continue;
      }
      const later = state < 7 ? 0 : 3;
      let long = 1;
      if (!bit(REPEAT + state)) {
        long = length(bits, LENGTH);
        last = [distance(bits, long), ...last.slice(0, 3)];
        state = 7 + later;
      } else if (bit(FIRST + state)) {
        const which = bit(SECOND + state) ? 2 + bit(THIRD + state) : 1;
        last = [last[which], ...last.filter((_, i) => i !== which)];
        long = length(bits, LENGTH + WIDTH);
        state = later ? 11 : 8;
      } else {
        const single = !bit(SINGLE + state);
        if (!single) long = length(bits, LENGTH + WIDTH);
        state = later ? 11 : single ? 9 : 8;
      }
      for (const end = Math.min(done + long, size), [from] = last; done < end; done += 1)
        found[done] = found[done - from - 1];
    }
    return found;
  };
})();
