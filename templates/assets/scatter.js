"use strict";
/* Heads as points of two numbers, each a link. One point is in the order of Tab; from there the
   arrow keys go to the next one by place. */
(() => {
  const { make } = window.headbook;
  const { number } = window.headbook.numbers;
  const HEIGHT = 380, EDGE = { left: 62, right: 18, top: 12, bottom: 46 };
  const NAMED = 12; /* so few points carry their names */
  const SHAPES = [
    "M-5,0A5,5 0 1 1 5,0A5,5 0 1 1 -5,0Z", "M-4.5,-4.5H4.5V4.5H-4.5Z", "M0,-5.5L5.5,4.5H-5.5Z",
  ];
  const SIGNS = ["●", "■", "▲"];
  const STEPS = 20; /* of the colour scale */

  /* The name of SVG's elements is an address; the page's own picture knows it. */
  const draw = (name, attributes = {}, text = "") => {
    const element = document.createElementNS(document.querySelector("svg").namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };

  /* Places of at most nine round numbers, and how many decimals they need. */
  const ticks = (low, high) => {
    const raw = (high - low) / 8, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= raw * 0.999);
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return { digits, at: Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step) };
  };
  const scaleOf = (values, share, from, to) => {
    const known = values.filter((value) => !Number.isNaN(value)).map((value) => value * (share ? 100 : 1));
    let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    const room = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    [low, high] = [low - room, high + room];
    const { at, digits } = ticks(low, high);
    const place = (value) => from + ((value - low) / (high - low)) * (to - from);
    return {
      place: (value) => place(value * (share ? 100 : 1)),
      ticks: at.map((value) => [place(value), value.toFixed(digits).replace("-", "−") + (share ? " %" : "")]),
    };
  };

  const axes = (width, x, y, titles) => {
    const bottom = HEIGHT - EDGE.bottom, right = width - EDGE.right;
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
    parts.push(draw("text", { x: (EDGE.left + right) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, titles[0]));
    const middle = (EDGE.top + bottom) / 2;
    parts.push(draw("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, titles[1]));
    const group = draw("g", { "aria-hidden": "true" });
    group.append(...parts);
    return group;
  };

  const legend = (heads, stacks) => {
    const layers = heads.map((head) => head.layer);
    const box = make("p", { class: "hint" });
    const scale = make("span", { class: "scale" }, `layer ${Math.min(...layers)}`);
    scale.append(...Array.from({ length: STEPS + 1 }, (_, step) => make("i", { class: `c${step}` })), String(Math.max(...layers)));
    box.append(scale);
    if (stacks.length > 1) box.append(make("span", {}, ` ${stacks.map(([, title], i) => `${SIGNS[i % 3]} ${title}`).join("  ")}`));
    return box;
  };

  /* The arrow keys, among the points that are shown. */
  const DIRECTIONS = { ArrowLeft: ["x", -1], ArrowRight: ["x", 1], ArrowUp: ["y", -1], ArrowDown: ["y", 1] };
  const walk = (picture, dots, read) => {
    const stop = (dot) => {
      for (const each of dots) each.link.setAttribute("tabindex", each === dot ? "0" : "-1");
    };
    picture.addEventListener("keydown", (event) => {
      const way = DIRECTIONS[event.key];
      const now = dots.find((dot) => dot.link === document.activeElement);
      if (!way || !now) return;
      event.preventDefault();
      const [axis, step] = way;
      const order = dots.filter((dot) => !dot.link.hasAttribute("hidden")).sort((a, b) => a[axis] - b[axis] || a.i - b.i);
      const next = order[order.indexOf(now) + step];
      if (!next) return;
      stop(next);
      next.link.focus();
    });
    for (const dot of dots) {
      dot.link.addEventListener("focus", () => read(dot.text));
      dot.link.addEventListener("pointerenter", () => read(dot.text));
    }
    return stop;
  };

  /* Two columns over all heads in a box; the result shows some of the heads, by number. */
  const scatter = (box, { heads, stacks, root, x, y }) => {
    const width = Math.max(280, Math.min(760, box.clientWidth || 640));
    const across = scaleOf([...x.value], x.share, EDGE.left, width - EDGE.right);
    const up = scaleOf([...y.value], y.share, HEIGHT - EDGE.bottom, EDGE.top);
    const titles = [x, y].map((each) => `${each.title} (${each.unit})`);
    const picture = draw("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group",
      "aria-label": `Heads by ${x.title} and ${y.title}; arrow keys go from head to head`,
    });
    const most = Math.max(1, ...heads.map((head) => head.layer));
    const least = Math.min(...heads.map((head) => head.layer));
    const colour = (layer) => Math.round((STEPS * (layer - least)) / Math.max(1, most - least));
    const shape = (stack) => SHAPES[stacks.findIndex(([name]) => name === stack) % 3];
    const dots = [];
    heads.forEach((head, i) => {
      if (Number.isNaN(x.value[i]) || Number.isNaN(y.value[i])) return;
      const place = { x: across.place(x.value[i]), y: up.place(y.value[i]) };
      const text = `${head.name}: ${x.title} ${number(x.value[i], x.share)}, ${y.title} ${number(y.value[i], y.share)}`;
      const link = draw("a", { href: root + head.href, "aria-label": text, tabindex: "-1", transform: `translate(${place.x.toFixed(1)} ${place.y.toFixed(1)})` });
      const name = draw("text", { x: 8, y: 4 }, head.name);
      link.append(draw("path", { d: shape(head.stack), class: `c${colour(head.layer)}` }), name);
      dots.push({ ...place, i, link, name, text });
    });
    picture.append(axes(width, across, up, titles), ...dots.map((dot) => dot.link));
    const status = make("p", { class: "status", "aria-live": "polite" }, "Point at a head, or go there with Tab and the arrow keys.");
    const stop = walk(picture, dots, (text) => { status.textContent = text; });
    box.replaceChildren(legend(heads, stacks), picture, status);
    return (shown) => {
      const there = dots.filter((dot) => shown.has(dot.i));
      for (const dot of dots) {
        dot.link.toggleAttribute("hidden", !shown.has(dot.i));
        dot.name.toggleAttribute("hidden", there.length > NAMED);
      }
      if (!there.some((dot) => dot.link.getAttribute("tabindex") === "0")) stop(there[0]);
    };
  };

  window.headbook.scatter = scatter;
})();
