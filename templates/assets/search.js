"use strict";
/* Search in the header of every page: parts of words, whatever their case and accents, in
   questions, heads, metrics, pages, sentences and tokens. It follows the pattern of a combobox:
   the field keeps the focus, arrow keys choose, Enter opens. */
(() => {
  /**
   * @typedef {{ stack?: string, layer?: number, head?: number }} Place
   * @typedef {{ at?: Place, number?: number }} More
   * @typedef {{ title: string, href: string, note: string, heading: string, text: string,
   *   unseen: string } & More} Entry
   * @typedef {{ query: string, words: string[][], place: Place | null, number: number }} Asked
   */
  const { all, one, make, load, folded, root, targetOf } = window.headbook;
  const OFFERED = 5, MOST = 1000, WINDOW = 160, BEFORE = 50;
  const PLACE = new RegExp(
    /^(?:(encoder|decoder|cross|self)(?=[\s\d])\s*)?/.source +
      /(?:(l|layer)?\s*(\d+))?[\s·.,:/-]*(?:(h|head)?\s*(\d+))?$/.source,
  );
  const NUMBER = /^(?:sentence|nr|no|#)?[\s.]*(\d+)$/;

  /* A head by its place: "L2 H3", "layer 2 head 3", "2.3", "decoder L2". */
  /** @type {(query: string) => Place | null} */
  const placeOf = (query) => {
    const [, stack, l, layer, h, head] = query.match(PLACE) || [];
    if (!(l || h || (layer !== undefined && head !== undefined))) return null;
    /** @type {(digits?: string) => number | undefined} */
    const number = (digits) => (digits ? Number(digits) : undefined);
    return { stack, layer: number(layer), head: number(head) };
  };
  /** @type {(place: Place | null, entry: Entry) => boolean | null | undefined} */
  const sits = (place, { at }) =>
    place &&
    at &&
    (!place.stack || place.stack === at.stack) &&
    (place.layer === undefined || place.layer === at.layer) &&
    (place.head === undefined || place.head === at.head);
  /** @type {(query: string) => number} */
  const numbered = (query) => Number((query.match(NUMBER) || [])[1] || 0);

  /* What is searched, by kind: titles, addresses, notes beside them, and words that are found
     but not shown. */
  /** @type {(title: string, href: string, note?: string, unseen?: string, more?: More) => Entry} */
  const entry = (title, href, note = "", unseen = "", rest = {}) => {
    const heading = folded(title);
    return {
      title,
      href,
      note,
      heading,
      text: `${heading}\n${folded(note)}`,
      unseen: ` ${folded(unseen)}`,
      ...rest,
    };
  };
  /** @type {(found: FindData) => (row: HeadRow, i: number) => Entry} */
  const headEntry =
    ({ functions, notes }) =>
    ([name, href, stack, layer], i) => {
      const [noun, text, words] = functions[i];
      const [own, note] = notes?.[i] ?? ["", ""];
      const title = own ? `${name} ${own}` : name;
      return entry(title, href, text || noun, `${note} ${noun} ${words}`, {
        at: { stack, layer, head: Number(name.split("H").pop()) },
      });
    };
  /** @type {(n: number, what: string) => string} */
  const times = (n, one) => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;
  /** @type {(addresses: Map<number, string>) => (token: FindToken) => Entry} */
  const tokenEntry = (addresses) => ([name, count, within, numbers, typed]) => {
    const href = typed
      ? `tokens.html#${new URLSearchParams({ find: name })}`
      : (addresses.get(numbers[0]) ?? "");
    return entry(
      name,
      href,
      count ? `${times(count, "time")} in ${times(within, "sentence")}` : "in other sentences only",
    );
  };
  /** @param {HTMLElement} box */
  const prepare = async (box) => {
    const [found, heads] = await Promise.all([
      load(`${root()}data/find.js`, "find"),
      box.dataset.heads ? load(`${root()}data/headlist.js`, "headlist") : { heads: [] },
    ]);
    const addresses = new Map(found.sentences.map(([number, href]) => [number, href]));
    /** @type {(named: Named) => Entry} */
    const toEntry = ([title, href, note, unseen]) => entry(title, href, note, unseen);
    const sentences = found.sentences.map(([number, href, text, other]) => (
      entry(text, href, other, "", { number })));
    const kinds = [
      { title: "Questions", entries: found.questions.map(toEntry) },
      { title: "Heads", entries: heads.heads.map(headEntry(found)) },
      { title: "Pages", entries: found.pages.map(toEntry) },
      { title: "Metrics", entries: found.metrics.map(toEntry) },
      { title: "Sentences", entries: sentences },
      { title: "Tokens", entries: found.tokens.map(tokenEntry(addresses)) },
    ];
    const searched = found.sentences.length;
    return { kinds, same: found.same, cut: found.total > searched ? searched : 0 };
  };

  /* Each word of a query with what else it is called. */
  /** @type {(query: string, same: Record<string, string[]>) => string[][]} */
  const meant = (query, same) => {
    const words = [...new Set(query.split(" "))].filter(Boolean);
    return words.map((word) => [word, ...(Object.hasOwn(same, word) ? same[word] : [])]);
  };
  /* All words must be there; where they stand together, in a title or at its start, comes first. */
  /** @type {(entry: Entry, name: string) => boolean} */
  const has = ({ text, unseen }, name) => text.includes(name) || unseen.includes(` ${name}`);
  /** @type {(entries: Entry[], asked: Asked) => { found: Entry[], best: number }} */
  const search = (entries, { query, words, place, number }) => {
    /** @type {Entry[][]} */
    const ranks = [[], [], [], []];
    for (const each of entries) {
      if (sits(place, each) || (number && each.number === number)) ranks[0].push(each);
      else if (words.every((names) => names.some((name) => has(each, name)))) {
        const at = each.heading.indexOf(query);
        ranks[at === 0 ? 0 : at > 0 ? 1 : each.text.includes(query) ? 2 : 3].push(each);
      }
    }
    return { found: ranks.flat(), best: ranks.findIndex((rank) => rank.length) };
  };

  /* Letters of a text, and whether each was found; folded letters can be more or fewer. */
  /** @type {(text: string, names: string[]) => { letters: string[], on: Uint8Array }} */
  const lettersOf = (text, names) => {
    const letters = [...text], on = new Uint8Array(letters.length);
    /** @type {number[]} */
    const from = [];
    const bare = letters.map((letter, i) => {
      const own = folded(letter);
      for (let n = 0; n < own.length; n += 1) from.push(i);
      return own;
    });
    const joined = bare.join("");
    for (const name of names) {
      for (let at = joined.indexOf(name); at >= 0; at = joined.indexOf(name, at + name.length)) {
        for (let n = 0; n < name.length; n += 1) on[from[at + n]] = 1;
      }
    }
    bare.forEach((own, i) => {
      if (!own && i) on[i] = on[i - 1];
    }); /* accents go with their letter */
    return { letters, on };
  };
  /** @type {(element: HTMLElement, text: string, names: string[]) => HTMLElement} */
  const fill = (element, text, names) => {
    const { letters, on } = lettersOf(text, names);
    const first = on.indexOf(1);
    const start = letters.length > WINDOW && first > BEFORE ? first - BEFORE : 0;
    const end = Math.min(letters.length, start + WINDOW);
    if (start) element.append("…");
    for (let i = start; i < end;) {
      let next = i;
      while (next < end && on[next] === on[i]) next += 1;
      const part = letters.slice(i, next).join("");
      element.append(on[i] ? make("mark", {}, part) : part);
      i = next;
    }
    if (end < letters.length) element.append("…");
    return element;
  };

  let made = 0;
  /** @type {WeakMap<HTMLElement, HTMLElement>} */
  const replaced = new WeakMap(); /* by the first of those that took its place */
  /** @type {(each: Entry, asked: Asked) => HTMLElement} */
  const optionOf = (each, { words, place }) => {
    const names = words.flat();
    made += 1;
    const option = make("a", {
      href: root() + each.href,
      role: "option",
      id: `found-${made}`,
      tabindex: "-1",
      "aria-selected": "false",
    });
    const title = make("span", { dir: "auto", class: "hit" });
    if (sits(place, each)) title.append(make("mark", {}, each.title));
    else fill(title, each.title, names);
    if (each.number) option.append(make("small", {}, `${each.number} `));
    option.append(title);
    if (each.note) option.append(" ", fill(make("small", { dir: "auto" }), each.note, names));
    return option;
  };
  /** @type {(title: string, found: Entry[], asked: Asked) => HTMLElement} */
  const groupOf = (title, found, asked) => {
    const many = found.length.toLocaleString("en-US");
    const group = make("div", { role: "group", "aria-label": `${title}, ${many}` });
    const heading = make("p", { "aria-hidden": "true" }, `${title} `);
    heading.append(make("small", {}, many));
    group.append(heading, ...found.slice(0, OFFERED).map((each) => optionOf(each, asked)));
    if (found.length > OFFERED) {
      made += 1;
      const rest = Math.min(found.length, MOST).toLocaleString("en-US");
      const more = make(
        "a",
        { role: "option", id: `found-${made}`, "aria-selected": "false", class: "more" },
        `Show ${rest === many ? "all" : "the first"} ${rest}`,
      );
      more.addEventListener("click", () => {
        const others = found.slice(OFFERED, MOST).map((each) => optionOf(each, asked));
        more.replaceWith(...others);
        replaced.set(more, others[0]);
      });
      group.append(more);
    }
    return group;
  };

  window.headbook.finder = (box) => {
    const input = one("input", box), status = one("[role=status]", box);
    const panel = one("[data-found]", box), list = one("[role=listbox]", box);
    const ready = prepare(box);
    /** @type {HTMLElement | null} */
    let active = null;

    const options = () => all("[role=option]", list);
    /** @type {(option?: HTMLElement | null) => void} */
    const choose = (option) => {
      if (active) active.setAttribute("aria-selected", "false");
      active = option || null;
      if (!active) { input.removeAttribute("aria-activedescendant"); return; }
      active.setAttribute("aria-selected", "true");
      input.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView({ block: "nearest" });
    };
    /** @type {(is: boolean) => void} */
    const open = (is) => {
      panel.hidden = !is;
      input.setAttribute("aria-expanded", String(is));
      if (!is) choose(null);
    };
    /** @type {(cut: number, groups: { title: string, found: Entry[] }[]) => void} */
    const say = (cut, groups) => {
      const counts = groups.map(
        ({ title, found }) => `${title} ${found.length.toLocaleString("en-US")}`,
      );
      const limit = cut
        ? ` Only the first ${cut.toLocaleString("en-US")} sentences are searched.`
        : "";
      status.textContent = `${counts.join(", ") || "Nothing found"}.${limit}`;
    };
    const show = async () => {
      const data = await ready;
      const query = folded(input.value).trim().replace(/\s+/g, " ");
      const asked = {
        query,
        words: meant(query, data.same),
        place: placeOf(query),
        number: numbered(query),
      };
      const every = query
        ? data.kinds.map(({ title, entries }) => ({ title, ...search(entries, asked) }))
        : [];
      const found = every.filter(({ best }) => best >= 0).sort((a, b) => a.best - b.best);
      choose(null);
      list.replaceChildren(...found.map((each) => groupOf(each.title, each.found, asked)));
      if (query) say(data.cut, found); else status.textContent = "";
      open(Boolean(query));
    };
    /** @type {(option: HTMLElement) => void} */
    const follow = (option) => {
      option.click();
      const next = replaced.get(option);
      if (next) choose(next);
      else open(false);
    };
    input.addEventListener("keydown", (event) => {
      /** @type {Lookup<number>} */
      const steps = { ArrowDown: 1, ArrowUp: -1 };
      const step = steps[event.key], there = options();
      if (step && there.length) {
        event.preventDefault();
        open(true);
        const now = there.findIndex((each) => each === active) + step;
        choose(now < 0 ? (step < 0 && active ? null : there.at(-1)) : there[now]);
      } else if (event.key === "Enter" && !panel.hidden && there.length) {
        event.preventDefault();
        follow(active || there[0]);
      } else if (event.key === "Escape" && (input.value || !panel.hidden)) {
        event.preventDefault();
        if (panel.hidden) input.value = "";
        open(false);
      }
    });
    input.addEventListener("input", show);
    input.addEventListener("focus", () => { if (input.value) show(); });
    list.addEventListener("click", (event) => {
      const option = targetOf(event).closest("[role=option]");
      if (option?.classList.contains("more")) input.focus();
      else if (option) open(false);
    });
    box.addEventListener("focusout", ({ relatedTarget }) => {
      if (!(relatedTarget instanceof Node && box.contains(relatedTarget))) open(false);
    });
    /* A press inside leaves the focus in the field, which would close the list. */
    panel.addEventListener("mousedown", (event) => event.preventDefault());
    ready.then(() => { box.dataset.ready = ""; });
    if (input.value) show();
  };
})();
