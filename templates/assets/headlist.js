"use strict";
/* The list of heads: what a reader has chosen, its form in the address, which heads that leaves and
   in which order. What an address holds and the list does not know is ignored. */
(() => {
  const { make, root, folded } = window.headbook;
  const { number, interval, MISSING } = window.headbook.numbers;
  const WORDS = { class: "Type", looks: "Most attention to", relation: "Best relation" };

  /* What the data file holds, by name. */
  const opened = (list) => {
    const heads = list.heads.map(
      ([name, href, stack, layer, label, looks, relation, beats], i) => ({
        i,
        name,
        href,
        stack,
        layer,
        class: label,
        looks,
        relation,
        beats: beats === 1,
        text: folded([name, name.replace("·", ""), href, label, looks, relation].flat().join(" ")),
      }),
    );
    const columns = new Map(list.metrics.flatMap(({ id, share, labels }) => (
      labels.map(([key, title, unit]) => [key, { key, metric: id, share, title, unit }]))));
    return { ...list, heads, columns, first: list.columns };
  };

  /* What a reader has chosen, and its form in the address. */
  const beginning = (list) => ({
    columns: list.first,
    sort: "head",
    down: false,
    class: "",
    looks: "",
    relation: "",
    beats: false,
    stack: "",
    from: "",
    to: "",
    find: "",
    ranges: new Map(),
    x: list.axes[0] || "",
    y: list.axes[1] || "",
  });
  const words = (list, name) =>
    [...new Set(list.heads.map((head) => head[name][0]).filter(Boolean))].sort();
  const isNumber = (text) => text === "" || (text.trim() !== "" && Number.isFinite(Number(text)));
  const read = (list, hash) => {
    const found = new URLSearchParams(hash.replace(/^#/, "")), state = beginning(list);
    const known = (key) => list.columns.has(key);
    const chosen = [...new Set((found.get("columns") || "").split(" ").filter(known))];
    if (chosen.length || found.get("columns") === "") state.columns = chosen;
    const sort = found.get("sort") || "", key = sort.replace(/^-/, "");
    if (key === "head" || Object.hasOwn(WORDS, key) || state.columns.includes(key))
      [state.sort, state.down] = [key, sort !== key];
    for (const name of Object.keys(WORDS)) {
      if (words(list, name).includes(found.get(name))) state[name] = found.get(name);
    }
    if (list.stacks.some(([name]) => name === found.get("stack"))) state.stack = found.get("stack");
    for (const end of ["from", "to"])
      if (/^\d{1,4}$/.test(found.get(end) || "")) state[end] = found.get(end);
    state.beats = found.get("beats") === "1";
    state.find = (found.get("find") || "").slice(0, 200);
    for (const range of found.getAll("range")) {
      const [column, least = "", most = ""] = range.split(" ");
      if (state.columns.includes(column) && isNumber(least) && isNumber(most))
        state.ranges.set(column, [least, most]);
    }
    for (const axis of ["x", "y"]) if (known(found.get(axis))) state[axis] = found.get(axis);
    return state;
  };
  const write = (list, state) => {
    const first = beginning(list), parts = new URLSearchParams();
    if (state.columns.join(" ") !== first.columns.join(" "))
      parts.set("columns", state.columns.join(" "));
    if (state.sort !== "head" || state.down)
      parts.set("sort", (state.down ? "-" : "") + state.sort);
    for (const name of [...Object.keys(WORDS), "stack", "from", "to", "find", "x", "y"]) {
      if (state[name] !== first[name]) parts.set(name, state[name]);
    }
    if (state.beats) parts.set("beats", "1");
    for (const [key, ends] of state.ranges)
      if (ends.some((end) => end !== "")) parts.append("range", [key, ...ends].join(" "));
    return parts.size ? `#${parts}` : "";
  };

  /* Which heads, in which order; heads without a number come last. */
  const passes = (state, numbers) => {
    const wanted = folded(state.find.trim());
    const ranges = [...state.ranges].map(([key, ends]) => {
      const { value, share } = numbers.get(key), unit = share ? 100 : 1;
      const [least, most] = ends.map((end) => (end === "" ? null : Number(end)));
      return (i) =>
        (least === null || value[i] * unit >= least) && (most === null || value[i] * unit <= most);
    });
    return (head) => (
      (!wanted || head.text.includes(wanted))
      && (!state.stack || head.stack === state.stack)
      && (state.from === "" || head.layer >= Number(state.from))
      && (state.to === "" || head.layer <= Number(state.to))
      && (!state.beats || head.beats)
      && Object.keys(WORDS).every((name) => !state[name] || head[name][0] === state[name])
      && ranges.every((inside) => inside(head.i))
    );
  };
  const order = (state, numbers) => {
    const { sort, down } = state, sign = down ? -1 : 1;
    if (sort === "head") return (a, b) => sign * (a.i - b.i);
    if (Object.hasOwn(WORDS, sort)) {
      return (a, b) => {
        const [one, other] = [a[sort], b[sort]];
        if (!one[0] || !other[0]) return !one[0] - !other[0] || a.i - b.i;
        return (
          sign * (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : 0) ||
          other[2] - one[2] ||
          a.i - b.i
        );
      };
    }
    const { value } = numbers.get(sort);
    return (a, b) => {
      const [one, other] = [value[a.i], value[b.i]],
        lacks = Number.isNaN(one) - Number.isNaN(other);
      return lacks || (Number.isNaN(one) ? 0 : sign * (one - other)) || a.i - b.i;
    };
  };

  /* A row as the page has it. */
  const beside = (element, text) => {
    if (text) element.append(" ", make("small", {}, text));
    return element;
  };
  const rowOf = (head, columns) => {
    const line = make("tr"), name = make("th", { scope: "row" });
    name.append(make("a", { href: root() + head.href }, head.name));
    const said = Object.keys(WORDS).map((each) =>
      beside(make("td", {}, head[each][0] || MISSING), head[each][1]),
    );
    const cells = columns.map(({ value, low, high, thin, share }) => {
      const few = thin[head.i] && !Number.isNaN(value[head.i]);
      const cell = make(
        "td",
        { class: few ? "number thin" : "number" },
        number(value[head.i], share),
      );
      return beside(
        cell,
        Number.isNaN(value[head.i]) ? "" : interval(low[head.i], high[head.i], share),
      );
    });
    line.append(name, ...cells, ...said);
    return line;
  };

  window.headbook.list = { opened, beginning, read, write, words, passes, order, rowOf, WORDS };
})();
