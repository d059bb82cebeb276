"use strict";
/* The page of all heads: controls, and the table of the list that they leave. */
(() => {
  const { make, all, one, load, hash, link } = window.headbook;
  const { unpacked } = window.headbook.numbers;
  const { opened, beginning, read, write, passes, order, linksOf, rowOf, WORDS } =
    window.headbook.list;

  /** @type {(box: HTMLElement) => Promise<void>} */
  const start = async (box) => {
    const { src = "", values = "" } = box.dataset;
    const list = opened(await load(src, "headlist"));
    const limit = Number(box.dataset.limit);
    const table = one("table.finding"), body = one("tbody", table);
    const links = linksOf(list, table);
    const status = one("[data-count]"), rest = one("[data-all]");
    /** @type {ValuesByColumn} */
    const numbers = new Map();
    const state = read(list, hash());
    /** @type {Map<number, HTMLTableRowElement>} */
    let rows = new Map();
    let whole = false, asked = 0;

    /** @type {(key: string) => Column} */
    const columnOf = (key) => /** @type {Column} */ (list.columns.get(key)); /* all are known */
    /* The numbers of some columns. */
    /** @type {(keys: string[]) => Promise<unknown>} */
    const ready = (keys) => Promise.all(keys.map(async (key) => {
      const column = list.columns.get(key);
      if (!column || numbers.has(key)) return;
      const file = await load(`${values}${column.metric}.js`, `values-${column.metric}`);
      numbers.set(key, { ...column, ...unpacked(file[key]) });
    }));

    /** @type {(text: string) => HTMLTableRowElement} */
    const part = (text) => {
      const line = make("tr", { class: "part" });
      line.append(make("td", { colspan: all("thead tr > *", table).length }, text));
      return line;
    };
    /* What the filters leave; quick, since it follows every key that is pressed. */
    const draw = () => {
      const found = list.heads.filter(passes(state, numbers)).sort(order(state, numbers));
      const columns = state.columns.flatMap((key) => numbers.get(key) ?? []);
      const listed = whole ? found : found.slice(0, limit);
      body.replaceChildren(...listed.flatMap((head, n) => {
        const row = rows.get(head.i) ?? rowOf(list, head, columns, links);
        rows.set(head.i, row);
        const [family] = head.class, begins = n === 0 || family !== listed[n - 1].class[0];
        return state.sort === "rank" && begins ? [part(family || "Not measured"), row] : [row];
      }));
      /** @type {(amount: number) => string} */
      const many = (amount) => amount.toLocaleString("en-US");
      const left =
        listed.length < found.length ? `; the first ${many(listed.length)} are listed` : "";
      status.textContent = `${many(found.length)} of ${many(list.heads.length)} heads${left}`;
      rest.hidden = !left;
    };
    const keep = () => {
      try {
        history.replaceState(null, "", link(write(list, state) || "#"));
      } catch { /* too many at once */ }
    };
    /** @type {(values: Partial<ListState>) => void} */
    const change = (values) => {
      Object.assign(state, values);
      keep();
      draw();
    };

    /* The list, or the line of a head that an address names. */
    const toList = () => {
      const named = list.heads.find(({ href }) => `heads/${hash().slice(1)}.html` === href);
      if (named) {
        whole = true;
        draw();
        const row = rows.get(named.i);
        row?.classList.add("named");
        row?.scrollIntoView({ behavior: "instant", block: "center" });
      } else if (write(list, state)) status.scrollIntoView({ behavior: "instant" });
    };

    /* Headings: each sorts, those of numbers hold a range and can go. */
    /** @type {(key: string) => void} */
    const sortBy = (key) => {
      change({ sort: key, down: state.sort === key ? !state.down : list.columns.has(key) });
      mark();
    };
    const mark = () => {
      for (const heading of all("th[data-key]", table)) {
        const own = heading.dataset.key === state.sort;
        if (own) heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else heading.removeAttribute("aria-sort");
      }
    };
    /** @type {(key: string, title: string, unit?: string) => HTMLElement} */
    const heading = (key, title, unit) => {
      const cell = make("th", { scope: "col", "data-key": key });
      const button = make("button", { type: "button", class: "sorter" }, title);
      button.addEventListener("click", () => sortBy(key));
      cell.append(button);
      if (unit) cell.append(" ", make("small", {}, unit));
      return cell;
    };
    /** @type {(key: string) => void} */
    const remove = (key) => {
      const ranges = new Map(state.ranges);
      ranges.delete(key);
      const left = state.columns.filter((each) => each !== key);
      if (state.sort === key) Object.assign(state, { sort: "rank", down: false });
      refresh({ columns: left, ranges });
      one("[data-add]", box).focus();
    };
    /** @type {(key: string) => HTMLElement} */
    const range = (key) => {
      const { title, share } = columnOf(key), cell = make("p", {}, `${title} `);
      const ends = ["at least", "at most"].map((end, side) => {
        const input = make("input", {
          type: "number", step: "any", placeholder: side ? "max" : "min", "data-range": key,
          "aria-label": `${title}, ${end}${share ? ", per cent" : ""}`,
        });
        input.value = state.ranges.get(key)?.[side] ?? "";
        input.addEventListener("input", () => {
          const both = ends.map((each) => each.value), ranges = new Map(state.ranges);
          if (both.some((each) => each !== "")) ranges.set(key, both); else ranges.delete(key);
          change({ ranges });
        });
        return input;
      });
      const close = make(
        "button",
        { type: "button", class: "remove", "aria-label": `Remove ${title}` },
        "×",
      );
      close.addEventListener("click", () => remove(key));
      cell.append(...ends, close);
      return cell;
    };
    const head = () => {
      const titles = make("tr");
      titles.append(make("td"), heading("head", "Head"), heading("class", WORDS.class));
      if (list.bars) titles.append(make("th", { scope: "col" }, "Depends on"));
      titles.append(
        ...state.columns.map((key) => heading(key, columnOf(key).title, columnOf(key).unit)),
      );
      titles.append(...list.facts.map((name) => heading(name, WORDS[name])));
      one("thead", table).replaceChildren(titles);
      one(".ranges", box).replaceChildren(...state.columns.map(range));
      rows = new Map();
    };

    /* Controls show what is chosen. */
    const tell = () => {
      for (const control of all("[data-filter]")) {
        Object.assign(control, { value: Object(state)[control.dataset.filter ?? ""] });
      }
    };
    /** @type {(values?: Partial<ListState>) => Promise<void>} */
    const refresh = async (values) => {
      Object.assign(state, values);
      asked += 1;
      const mine = asked;
      await ready(state.columns);
      if (mine !== asked) return;
      head();
      mark();
      tell();
      draw();
      if (values) keep();
    };

    window.headbook.controls(box, list, {
      state,
      change,
      refresh,
      reset: () => refresh(beginning(list)),
    });
    rest.addEventListener("click", () => {
      whole = true;
      draw();
      all("th a", body)[limit].focus();
    });
    window.addEventListener("hashchange", async () => {
      Object.assign(state, read(list, hash()));
      await refresh();
      table.closest("div")?.focus({ preventScroll: true });
      toList();
    });
    for (const view of all("[data-view]")) view.setAttribute("href", link(`#${view.dataset.view}`));
    await refresh();
    toList();
  };

  document.addEventListener("DOMContentLoaded", () => all("[data-list]").forEach(start));
})();
