"use strict";
/* The row of a table behind a number: opened in place by a click on the number (site.js), and on
   the page of files by an address that was copied. Rows are in the file of the page that prints
   them, columns and files of tables in data/tables.js (`headbook.site.rows`). */
(() => {
  const { root, all, make, load, apart } = window.headbook;
  /** @typedef {{ table: string, line: string, page: string }} Place */
  /**
   * @typedef {{ place: Place, facts: TableFacts, lines: number, by: number[],
   *   values: RowValue[] }} Found
   */
  const SCALES = [1, 100, 1000]; /* pages print values as they are, in per cent, in thousandths */
  /* Texts with an apostrophe before them in the CSV: formulas, but no numbers. */
  const FORMULA = /^(?![+-]?\d+(?:\.\d+)?$)[=+\-@\t\r]/;
  const ORDER = /[\u202a-\u202e\u2066-\u206f]/g; /* they change the order of all that follows */
  const SHORT = 60; /* letters of a number that the heading quotes */
  /** @type {Element | null} */
  let from = null;

  /** @type {(address: string) => Place | null} */
  const placeOf = (address) => {
    const [, table, line, page] = /[?&]row=(\w+):(\d+)&on=([\w/-]+)/.exec(address) ?? [];
    return table ? { table, line, page } : null;
  };
  /** @type {(place: Place) => string} */
  const addressOf = ({ table, line, page }) =>
    `${root()}data.html?row=${table}:${line}&on=${page}#${table}`;

  /** @type {(text: string) => string} */
  const escaped = (text) =>
    text.replace(ORDER, (letter) => `\\u${letter.charCodeAt(0).toString(16)}`);

  /** @type {(place: Place) => Promise<Found | null>} */
  const find = async (place) => {
    const name = place.page.replaceAll("/", "-");
    try {
      const tables = await load(`${root()}data/tables.js`, "tables");
      const rows = await load(`${root()}data/rows/${name}.js`, `rows-${name}`);
      const { lines, rows: { [place.line]: row } } = rows[place.table];
      const [by, ...values] = row;
      return { place, facts: tables[place.table], lines, by, values };
    } catch {
      return null;
    }
  };

  /* The column whose value was printed, in the unit of the page; -1 where none is. */
  /** @type {(found: Found, text: string) => number} */
  const printedIn = ({ facts, by, values }, text) => {
    const numbers = text.replaceAll("−", "-").match(/-?\d[\d,]*(?:\.\d+)?/g) ?? [];
    /** @type {(value: number, printed: string) => boolean} */
    const same = (value, printed) => {
      const digits = printed.split(".")[1]?.length ?? 0, wanted = Number(printed.replace(/,/g, ""));
      return SCALES.some((scale) =>
        Math.abs(Math.abs(value * scale) - Math.abs(wanted)) <= 0.5000001 * 10 ** -digits);
    };
    const places = values.flatMap((value, n) => (typeof value === "number" && !by.includes(n)
      && numbers.some((printed) => same(value, printed)) ? [n] : []));
    const named = places.find((n) => facts.columns[n][0] === "value");
    return named ?? places[0] ?? -1;
  };

  /* Conditions that no other row fulfils, in both languages. */
  /** @type {(found: Found) => { python: string, r: string }} */
  const code = ({ facts, by, values }) => {
    const [csv] = facts.files, parquet = facts.files.at(-1);
    const each = by.map((n) => {
      const name = facts.columns[n][0], value = values[n];
      const missing = value === null, quoted = escaped(JSON.stringify(value));
      const safe = typeof value === "string" && FORMULA.test(value) && csv !== parquet
        ? escaped(JSON.stringify(`'${value}`))
        : quoted;
      const column = name === "class" ? "`class`" : name; /* a word of Python */
      return {
        python: missing ? `${column}.isna()` : `${column} == ${quoted}`,
        r: missing ? `is.na(${name})` : `${name} == ${safe}`,
      };
    });
    const query = each.map(({ python }) => python).join(" and ");
    const string = query.replaceAll("\\", "\\\\").replaceAll("'", "\\'");
    const read = csv === parquet
      ? `arrow::read_parquet("${csv}")`
      : `read.csv("${csv}", check.names = FALSE)`;
    return {
      python: `import pandas as pd\npd.read_parquet("${parquet}").query('${string}')`,
      r: `subset(${read}, ${each.map(({ r }) => r).join(" & ")})`,
    };
  };

  /** @type {(value: RowValue) => string} */
  const field = (value) => {
    const raw = value === null ? "" : String(value);
    const text = (typeof value === "string" && FORMULA.test(raw) ? "'" : "") + raw;
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  /** @type {(found: Found) => HTMLButtonElement} */
  const copyButton = ({ facts, values }) => {
    const button = make("button", { type: "button" }, "Copy row");
    const text = [facts.columns.map(([name]) => name), values.map(field)].join("\n");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    });
    return button;
  };

  /* Sites of a study have a page of each head. */
  /** @type {(found: Found) => HTMLAnchorElement[]} */
  const headLink = ({ facts, values }) => {
    const [stack, layer, head] = ["stack", "layer", "head"].map(
      (name) => values[facts.columns.findIndex(([column]) => column === name)],
    );
    const known = typeof layer === "number" && typeof head === "number";
    if (!known || !document.querySelector("[data-heads]")) return [];
    const own = stack === "self" ? "" : `${stack}`;
    /** @type {(n: RowValue) => string} */
    const two = (n) => String(n).padStart(2, "0");
    const page = `${own && `${own}-`}L${two(layer)}-H${two(head)}`;
    const name = `Head ${own && `${own} `}L${layer}·H${head}`;
    return [make("a", { href: `${root()}heads/${page}.html` }, name)];
  };

  /** @type {(found: Found, text: string) => HTMLElement[]} */
  const contents = (found, text) => {
    const { place, facts, lines, values } = found, list = make("dl");
    const file = make("p"), [address] = facts.files, printed = printedIn(found, text);
    const of = address.endsWith(".parquet")
      ? `, of ${facts.rows.toLocaleString("en-US")} rows`
      : `, line ${Number(place.line).toLocaleString("en-US")} of ${lines.toLocaleString("en-US")}`;
    file.append(make("a", { href: root() + address }, address), of);
    facts.columns.forEach(([name, meaning], n) => {
      const value = values[n];
      if (value === null || value === "") return;
      const cell = make("dd", n === printed ? { class: "printed" } : {});
      cell.append(apart(escaped(String(value))), " ", make("small", {}, meaning));
      list.append(make("dt", {}, name), cell);
    });
    const { python, r } = code(found), actions = make("p", { class: "do" });
    actions.append(
      copyButton(found),
      make("a", { href: addressOf(place) }, "Link to this row"),
      ...headLink(found),
    );
    return [file, list, make("pre", { "data-code": "python" }, python),
      make("pre", { "data-code": "r" }, r), actions];
  };

  const close = () => {
    all(".behind-number").forEach((each) => each.remove());
    if (!(from instanceof HTMLElement || from instanceof SVGElement)) return;
    from.classList.remove("on");
    from.focus({ preventScroll: true });
    from = null;
  };
  /** @type {(place: Place, text: string) => Promise<void>} */
  const open = async (place, text) => {
    const found = await find(place);
    const box = make("section", {
      class: "behind-number", role: "dialog", "aria-label": "The row behind this number",
    });
    const head = make("div", { class: "title" }), title = make("h2");
    const button = make("button", { type: "button" }, "Close");
    title.textContent = text && text.length <= SHORT ? `Behind “${text}”` : `Row of ${place.table}`;
    button.addEventListener("click", close);
    head.append(title, button);
    const where = `line ${place.line} of table ${place.table}`;
    const lost = `${place.page}.html prints no number of ${where}.`;
    box.append(head, ...(found ? contents(found, text) : [make("p", {}, lost)]));
    all(".behind-number").forEach((each) => each.remove());
    document.body.append(box);
    button.focus({ preventScroll: true });
  };

  window.headbook.showRow = async (number) => {
    const place = placeOf(number.getAttribute("href") ?? "");
    if (!place) return;
    from?.classList.remove("on");
    from = number;
    number.classList.add("on");
    await open(place, (number.getAttribute("aria-label") ?? number.textContent).trim());
  };
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") close(); });
  document.addEventListener("DOMContentLoaded", () => {
    const place = placeOf(window.oneFile ? window.oneFile.query() : location.search);
    if (place) open(place, "");
  });
  if (!window.oneFile && !document.querySelector('link[href$="/rows.css"]'))
    document.head.append(make("link", { rel: "stylesheet", href: `${root()}assets/rows.css` }));
})();
