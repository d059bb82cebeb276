"use strict";
/* The list of heads: what a reader has chosen, its form in the address, which heads that leaves and
   in which order. What an address holds and the list does not know is ignored. */
(() => {
  const { all, make, root, folded, svg: draw } = window.headbook;
  const { number, interval, MISSING } = window.headbook.numbers;
  /** @type {Record<WordName, string>} */
  const WORDS = {
    class: "What it does",
    verdict: "Verdict",
    relation: "Relation",
  };
  /** @type {WordName[]} */
  const LAST = ["verdict", "relation"]; /* columns after those of numbers */

  const NAMES = /** @type {WordName[]} */ (Object.keys(WORDS));
  const ENDS = /** @type {const} */ (["from", "to"]);
  const TEXTS = [...NAMES, ...ENDS, ...(/** @type {const} */ (["stack", "find"]))];

  /* What the data file holds, by name. */
  /** @type {List["opened"]} */
  const opened = (list) => {
    const heads = list.heads.map(
      ([name, href, stack, layer, label, relation, verdict, ...marks], i) => {
        const [family, style, rank, distance, key] = marks;
        const words = [label, relation, verdict].flatMap((word) => word.slice(0, 2));
        return {
          i,
          name,
          href,
          stack,
          layer,
          class: label,
          relation,
          verdict,
          family,
          style,
          rank,
          distance,
          key,
          text: folded([name, name.replace("·", ""), href, ...words].join(" ")),
        };
      },
    );
    const columns = new Map(list.metrics.flatMap(({ id, share, table = "heads", labels }) => (
      labels.map(([key, title, unit]) => [key, { key, metric: id, share, table, title, unit }]))));
    const facts = LAST.filter((name) => heads.some((head) => head[name][0]));
    const bars = heads.some(({ distance }) => distance !== undefined);
    return { ...list, heads, columns, facts, first: list.columns, bars };
  };

  /* What a reader has chosen, and its form in the address. */
  /** @type {List["beginning"]} */
  const beginning = (list) => ({
    columns: list.first,
    sort: "rank",
    down: false,
    class: "",
    verdict: "",
    relation: "",
    stack: "",
    from: "",
    to: "",
    find: "",
    ranges: new Map(),
  });
  /** @type {List["words"]} */
  const words = (list, name) =>
    [...new Set(list.heads.map((head) => head[name][0]).filter(Boolean))].sort();
  /** @type {(text: string) => boolean} */
  const isNumber = (text) => text === "" || (text.trim() !== "" && Number.isFinite(Number(text)));
  /** @type {List["read"]} */
  const read = (list, hash) => {
    const found = new URLSearchParams(hash.replace(/^#/, "")), state = beginning(list);
    /** @type {(key: string) => boolean} */
    const known = (key) => list.columns.has(key);
    /** @type {(name: string) => string} */
    const asked = (name) => found.get(name) || "";
    const chosen = [...new Set(asked("columns").split(" ").filter(known))];
    if (chosen.length || found.get("columns") === "") state.columns = chosen;
    const sort = asked("sort"), key = sort.replace(/^-/, "");
    if (key === "head" || Object.hasOwn(WORDS, key) || state.columns.includes(key))
      [state.sort, state.down] = [key, sort !== key];
    for (const name of NAMES) {
      if (words(list, name).includes(asked(name))) state[name] = asked(name);
    }
    if (list.stacks.some(([name]) => name === asked("stack"))) state.stack = asked("stack");
    for (const end of ENDS) if (/^\d{1,4}$/.test(asked(end))) state[end] = asked(end);
    state.find = asked("find").slice(0, 200);
    for (const range of found.getAll("range")) {
      const [column, least = "", most = ""] = range.split(" ");
      if (state.columns.includes(column) && isNumber(least) && isNumber(most))
        state.ranges.set(column, [least, most]);
    }
    return state;
  };
  /** @type {List["write"]} */
  const write = (list, state) => {
    const first = beginning(list), parts = new URLSearchParams();
    if (state.columns.join(" ") !== first.columns.join(" "))
      parts.set("columns", state.columns.join(" "));
    if (state.sort !== "rank")
      parts.set("sort", (state.down ? "-" : "") + state.sort);
    for (const name of TEXTS) {
      if (state[name] !== first[name]) parts.set(name, state[name]);
    }
    for (const [key, ends] of state.ranges)
      if (ends.some((end) => end !== "")) parts.append("range", [key, ...ends].join(" "));
    return parts.size ? `#${parts}` : "";
  };

  /* Which heads, in which order; heads without a number come last. */
  /** @type {List["passes"]} */
  const passes = (state, numbers) => {
    const wanted = folded(state.find.trim());
    const ranges = [...state.ranges].map(([key, ends]) => {
      const column = numbers.get(key);
      if (!column) return () => true; /* until its numbers are there */
      const { value, share } = column, unit = share ? 100 : 1;
      const [least, most] = ends.map((end) => (end === "" ? null : Number(end)));
      /** @type {(i: number) => boolean} */
      return (i) =>
        (least === null || value[i] * unit >= least) && (most === null || value[i] * unit <= most);
    });
    return (head) => (
      (!wanted || head.text.includes(wanted))
      && (!state.stack || head.stack === state.stack)
      && (state.from === "" || head.layer >= Number(state.from))
      && (state.to === "" || head.layer <= Number(state.to))
      && NAMES.every((name) => !state[name] || head[name][0] === state[name])
      && ranges.every((inside) => inside(head.i))
    );
  };
  /** @type {List["order"]} */
  const order = (state, numbers) => {
    const { sort, down } = state, sign = down ? -1 : 1;
    if (sort === "rank") return (a, b) => a.rank - b.rank;
    if (sort === "head") return (a, b) => sign * (a.i - b.i);
    const name = NAMES.find((each) => each === sort);
    if (name) {
      return (a, b) => {
        const [one, other] = [a[name], b[name]];
        if (!one[0] || !other[0]) return Number(!one[0]) - Number(!other[0]) || a.i - b.i;
        return (
          sign * (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : 0) ||
          (other[2] ?? 0) - (one[2] ?? 0) ||
          a.i - b.i
        );
      };
    }
    const value = numbers.get(sort)?.value;
    if (!value) return (a, b) => a.i - b.i; /* until its numbers are there */
    return (a, b) => {
      const [one, other] = [value[a.i], value[b.i]];
      const lacks = Number(Number.isNaN(one)) - Number(Number.isNaN(other));
      return lacks || (Number.isNaN(one) ? 0 : sign * (one - other)) || a.i - b.i;
    };
  };

  /* A number with the link that the page itself has for it, else to its table. */
  /** @type {(text: string, table: string, known?: string, title?: string) => HTMLElement} */
  const linked = (text, table, known, title) => {
    const href = known ?? `${root()}data.html#${table}`;
    return make("a", { class: "n", href, ...(title && { title }) }, text);
  };
  /** @type {(column: Numbered, i: number, known?: string) => HTMLElement} */
  const cellOf = ({ value, low, high, guess, share, table }, i, known) => {
    const cell = make("td", { class: "h" }), text = number(value[i], share);
    if (Number.isNaN(value[i])) cell.append(make("span", {}, text));
    else if (guess[i]) cell.append(linked(`≈ ${text}`, table, known, "estimated"));
    else cell.append(linked(text, table, known, interval(low[i], high[i], share)));
    return cell;
  };
  /** @type {(head: Head, name: WordName, known?: string) => HTMLElement} */
  const factOf = (head, name, known) => {
    const [text, detail, , value, table] = head[name];
    const cell = make("td", { class: `fact ${name}` }, text || MISSING);
    if (detail) cell.title = detail;
    if (value && table) cell.append(" ", linked(value, table, known));
    return cell;
  };
  /** @type {(head: Head) => string} */
  const lineOf = ({ href }) => href.slice("heads/".length, -".html".length);
  /* Links of the page's own lines by line and column: these lead to rows of the tables. */
  /** @type {List["linksOf"]} */
  const linksOf = (list, table) => {
    const bar = list.bars ? [""] : [], links = new Map();
    const keys = ["", "", "class", ...bar, ...list.first, ...list.facts];
    for (const link of all("tbody a.n", table)) {
      const cell = link.closest("td"), href = link.getAttribute("href");
      if (cell) links.set(`${cell.closest("tr")?.id} ${keys[cell.cellIndex]}`, href);
    }
    return links;
  };
  /* What distance, the key and the pair explain, as a bar. */
  /** @type {(head: Head) => HTMLElement} */
  const partsOf = ({ distance, key }) => {
    const cell = make("td");
    if (distance === undefined || key === undefined) return cell;
    const bar = draw("svg", { class: "parts", role: "img" });
    let x = 0;
    for (const [fill, width] of /** @type {const} */ ([
      ["f-position", distance], ["f-same_keys", key], ["c-control", 100 - distance - key],
    ])) {
      bar.append(draw("rect", { class: fill, x: `${x}%`, width: `${width}%`, height: "100%" }));
      x += width;
    }
    const label = `distance ${number(distance / 100, true)}, the key ${number(key / 100, true)}`;
    bar.setAttribute("aria-label", label);
    cell.append(bar);
    return cell;
  };
  /* A row as the page has it. */
  /** @type {List["rowOf"]} */
  const rowOf = (list, head, columns, links) => {
    const id = lineOf(head), line = make("tr", { id });
    const map = make("td"), frame = make("span", { class: `map s24 ${head.style}` });
    const name = make("th", { scope: "row" }), does = make("td", { class: "does" });
    const [, noun, , value, table] = head.class;
    frame.append(make("i"));
    map.append(frame);
    name.append(make("a", { href: root() + head.href }, head.name));
    does.append(
      make("i", { class: head.family ? `key f-${head.family}` : "key" }),
      noun,
    );
    if (value && table) does.append(" ", linked(value, table, links.get(`${id} class`)));
    line.append(
      map, name, does,
      ...(list.bars ? [partsOf(head)] : []),
      ...columns.map((column) => cellOf(column, head.i, links.get(`${id} ${column.key}`))),
      ...list.facts.map((each) => factOf(head, each, links.get(`${id} ${each}`))),
    );
    return line;
  };

  window.headbook.list = {
    opened, beginning, read, write, words, passes, order, linksOf, rowOf, WORDS, NAMES,
  };
})();
