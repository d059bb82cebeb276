"use strict";
/* Heads as points of two numbers, each a link. One point is in the order of Tab; from there the
   arrow keys go to the next one by place. */
(() => {
  const { make, svg: draw, nearest } = window.headbook;
  const { number } = window.headbook.numbers;
  /**
   * @typedef {{ place: (value: number) => number, ticks: [place: number, text: string][] }} Axis
   * @typedef {Point & { i: number, link: SVGAElement, name: SVGElement, line: number,
   *   text: string }} Dot
   * @typedef {(dot?: Dot) => void} Stop
   * @typedef {{ left: number, right: number, y: number }} Label
   */
  const HEIGHT = 380,
    EDGE = { left: 62, right: 18, top: 12, bottom: 46 };
  const GAP = 6,
    LETTER = 6.5,
    HALF = 6; /* from a point to its name, of a letter, to either side of a line */
  const LIFT = 9; /* of a name whose point lies on the axis */
  const SHAPES = [
    "M-5,0A5,5 0 1 1 5,0A5,5 0 1 1 -5,0Z",
    "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "M0,-5.5L5.5,4.5H-5.5Z",
  ];
  const SIGNS = ["●", "■", "▲"];
  const FIRST = 1,
    LAST = 6; /* stops of the colour scale; the ones before are as light as paper */

  /* Places of at most nine round numbers, and how many decimals they need. */
  /** @type {(low: number, high: number) => { digits: number, at: number[] }} */
  const ticks = (low, high) => {
    const raw = (high - low) / 8,
      power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5].find((each) => each * power >= raw * 0.999) ?? 10);
    const first = Math.ceil(low / step - 1e-9),
      last = Math.floor(high / step + 1e-9);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return { digits, at: Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step) };
  };
  /** @type {(values: number[], share: boolean, from: number, to: number) => Axis} */
  const scaleOf = (values, share, from, to) => {
    const known = values
      .filter((value) => !Number.isNaN(value))
      .map((value) => value * (share ? 100 : 1));
    let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    /* With 0, and to the round numbers beyond, as in the still picture. */
    [low, high] = [Math.min(0, low), Math.max(0, high)];
    if (low === high) high = 1;
    const [first, second] = ticks(low, high).at, step = second - first;
    [low, high] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
    const { at, digits } = ticks(low, high);
    /** @type {(value: number) => number} */
    const place = (value) => from + ((value - low) / (high - low)) * (to - from);
    return {
      place: (value) => place(value * (share ? 100 : 1)),
      ticks: at.map((value) => [
        place(value),
        value.toFixed(digits).replace("-", "−") + (share ? " %" : ""),
      ]),
    };
  };

  /** @type {(width: number, x: Axis, y: Axis, titles: string[]) => SVGGElement} */
  const axes = (width, x, y, titles) => {
    const bottom = HEIGHT - EDGE.bottom,
      right = width - EDGE.right;
    const parts = [];
    for (const [place, text] of x.ticks) {
      parts.push(draw("path", { class: "rule", d: `M${place},${EDGE.top}V${bottom}` }));
      parts.push(draw("text", { x: place, y: bottom + 16, "text-anchor": "middle" }, text));
    }
    for (const [place, text] of y.ticks) {
      parts.push(draw("path", { class: "rule", d: `M${EDGE.left},${place}H${right}` }));
      parts.push(draw("text", { x: EDGE.left - 6, y: place + 4, "text-anchor": "end" }, text));
    }
    parts.push(draw("path", { class: "axis", d: `M${EDGE.left},${EDGE.top}V${bottom}H${right}` }));
    parts.push(
      draw(
        "text",
        { x: (EDGE.left + right) / 2, y: HEIGHT - 8, "text-anchor": "middle" },
        titles[0],
      ),
    );
    const middle = (EDGE.top + bottom) / 2;
    parts.push(
      draw(
        "text",
        { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` },
        titles[1],
      ),
    );
    const group = draw("g", { "aria-hidden": "true" });
    group.append(...parts);
    return group;
  };

  /** @type {(heads: Head[], stacks: [string, string][], guessed: boolean) => HTMLElement} */
  const legend = (heads, stacks, guessed) => {
    const layers = heads.map((head) => head.layer);
    const box = make("p", { class: "hint" });
    const scale = make("span", { class: "ramp" }, `layer ${Math.min(...layers)} `);
    scale.append(
      ...Array.from({ length: LAST - FIRST + 1 }, (_, i) => make("i", { class: `q${FIRST + i}` })),
      " ",
      String(Math.max(...layers)),
    );
    box.append(scale);
    if (guessed) box.append(make("span", {}, " hollow: estimated"));
    if (stacks.length > 1)
      box.append(
        make("span", {}, ` ${stacks.map(([, title], i) => `${SIGNS[i % 3]} ${title}`).join("  ")}`),
      );
    return box;
  };

  /* The arrow keys, among the points that are shown. */
  /** @type {Lookup<["x" | "y", number]>} */
  const DIRECTIONS = {
    ArrowLeft: ["x", -1],
    ArrowRight: ["x", 1],
    ArrowUp: ["y", -1],
    ArrowDown: ["y", 1],
  };
  /** @type {(picture: SVGSVGElement, dots: Dot[], read: (text: string) => void) => Stop} */
  const walk = (picture, dots, read) => {
    /** @type {(dot?: Dot) => void} */
    const stop = (dot) => {
      for (const each of dots) each.link.setAttribute("tabindex", each === dot ? "0" : "-1");
    };
    picture.addEventListener("keydown", (event) => {
      const arrow = DIRECTIONS[event.key];
      const now = dots.find((dot) => dot.link === document.activeElement);
      if (!arrow || !now) return;
      event.preventDefault();
      const [axis, step] = arrow;
      const order = dots
        .filter((dot) => !dot.link.hasAttribute("hidden"))
        .sort((a, b) => a[axis] - b[axis] || a.i - b.i);
      const next = order[order.indexOf(now) + step];
      if (!next) return;
      stop(next);
      next.link.focus();
    });
    for (const dot of dots) dot.link.addEventListener("focus", () => read(dot.text));
    /** @type {(near?: Dot) => void} */
    const mark = (near) => {
      for (const each of dots) each.link.classList.toggle("near", each === near);
    };
    picture.addEventListener("pointermove", ({ clientX, clientY }) => {
      const { left, top, width } = picture.getBoundingClientRect(),
        size = picture.viewBox.baseVal.width / width;
      const there = dots.filter((dot) => !dot.link.hasAttribute("hidden"));
      const near = nearest(there, (clientX - left) * size, (clientY - top) * size);
      mark(near);
      if (near) read(near.text);
    });
    picture.addEventListener("pointerleave", () => mark());
    return stop;
  };

  /* The points whose names hide neither a point nor another name; the outermost are asked first. */
  /** @type {(dots: Dot[]) => Set<Dot>} */
  const roomy = (dots) => {
    /** @type {(axis: "x" | "y") => number} */
    const middle = (axis) => [...dots].sort((a, b) => a[axis] - b[axis])[dots.length >> 1]?.[axis];
    const [x, y] = [middle("x"), middle("y")], named = new Set();
    /** @type {(dot: Dot) => number} */
    const away = (dot) => Math.hypot(dot.x - x, dot.y - y);
    /** @type {Label[]} */
    const taken = [];
    for (const dot of [...dots].sort((a, b) => away(b) - away(a) || a.i - b.i)) {
      const left = dot.x + GAP,
        right = left + LETTER * dot.name.textContent.length;
      /** @type {(each: Dot) => boolean} */
      const hides = (each) =>
        each !== dot &&
        each.x > left - HALF &&
        each.x < right &&
        Math.abs(each.y - dot.line) < 2 * HALF;
      /** @type {(each: Label) => boolean} */
      const meets = (each) =>
        each.left < right && left < each.right && Math.abs(each.y - dot.line) < 2 * HALF;
      if (taken.some(meets) || dots.some(hides)) continue;
      named.add(dot);
      taken.push({ left, right, y: dot.line });
    }
    return named;
  };

  /* The colour of a part of the scale, on any paper. */
  /** @type {(part: number) => string} */
  const colour = (part) => {
    const place = FIRST + part * (LAST - FIRST),
      low = Math.min(LAST - 1, Math.floor(place));
    const share = (100 * (place - low)).toFixed(1);
    return `color-mix(in srgb, var(--q${low + 1}) ${share}%, var(--q${low}))`;
  };

  /* Two columns over all heads in a box; the result shows some of the heads, by number. */
  /** @type {Scatter} */
  const scatter = (box, { heads, stacks, root, x, y }) => {
    const width = Math.max(280, Math.min(760, box.clientWidth || 640));
    const across = scaleOf([...x.value], x.share, EDGE.left, width - EDGE.right);
    const up = scaleOf([...y.value], y.share, HEIGHT - EDGE.bottom, EDGE.top);
    const titles = [x, y].map((each) => `${each.title} (${each.unit})`);
    const picture = draw("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`,
      width,
      height: HEIGHT,
      role: "group",
      "aria-label": `Heads by ${x.title} and ${y.title}; arrow keys go from head to head`,
    });
    const most = Math.max(1, ...heads.map((head) => head.layer));
    const least = Math.min(...heads.map((head) => head.layer));
    /** @type {(stack: string) => string} */
    const shape = (stack) => SHAPES[stacks.findIndex(([name]) => name === stack) % 3];
    /** @type {Dot[]} */
    const dots = [];
    heads.forEach((head, i) => {
      if (Number.isNaN(x.value[i]) || Number.isNaN(y.value[i])) return;
      const place = { x: across.place(x.value[i]), y: up.place(y.value[i]) };
      const [own, other] = [x, y].map(({ title, value, share, guess }) => (
        `${title} ${number(value[i], share)}${guess[i] ? " (estimated)" : ""}`
      ));
      const text = `${head.name}: ${own}, ${other}`;
      const link = draw("a", {
        href: root + head.href,
        "aria-label": text,
        tabindex: "-1",
        transform: `translate(${place.x.toFixed(1)} ${place.y.toFixed(1)})`,
      });
      const lift = place.y > HEIGHT - EDGE.bottom - HALF ? LIFT : 0; /* off the axis */
      const name = draw("text", { x: 8, y: 4 - lift }, head.name);
      const sign = draw("path", { d: shape(head.stack) });
      const guessed = x.guess[i] || y.guess[i];
      sign.classList.toggle("guess", guessed);
      sign.style.setProperty(
        guessed ? "--own" : "fill",
        colour((head.layer - least) / Math.max(1, most - least)),
      );
      link.append(sign, name);
      dots.push({ ...place, i, link, name, line: place.y - lift, text });
    });
    picture.append(axes(width, across, up, titles), ...dots.map((dot) => dot.link));
    const status = make(
      "p",
      { class: "status", "aria-live": "polite" },
      "Point at a head, or go there with Tab and the arrow keys.",
    );
    const stop = walk(picture, dots, (text) => {
      status.textContent = text;
    });
    const guessed = [x, y].some(({ guess }) => guess.some(Boolean));
    box.replaceChildren(legend(heads, stacks, guessed), picture, status);
    return (visible) => {
      const there = dots.filter((dot) => visible.has(dot.i)),
        named = roomy(there);
      for (const dot of dots) {
        dot.link.toggleAttribute("hidden", !visible.has(dot.i));
        dot.name.toggleAttribute("hidden", !named.has(dot));
      }
      if (!there.some((dot) => dot.link.getAttribute("tabindex") === "0")) stop(there[0]);
    };
  };

  window.headbook.scatter = scatter;
})();
