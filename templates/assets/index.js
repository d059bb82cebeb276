"use strict";
/* The overview: the card follows pointer and focus in the atlas, arrow keys walk it, strips show
   any metric, and the heat map's choice stands in the address. Without this the page is
   complete. */
(() => {
  /**
   * @typedef {{ stack: string, side: number, sheet: HTMLImageElement | null, box: HTMLElement,
   *   links: HTMLAnchorElement[], heads: number }} Table
   * @typedef {Point & { mark: SVGElement, text: string }} Mark
   */
  const { all, one, make, load, root, hash, link, folded, rove, nearest, targetOf } =
    window.headbook;
  const TOP = 20; /* the last step of the colour scale */

  /** @type {(element: Element) => string} */
  const labelOf = (element) => element.getAttribute("aria-label") ?? "";
  /* What the address says, and the address with something else in it. */
  const state = () =>
    hash().includes("=") ? new URLSearchParams(hash().slice(1)) : new URLSearchParams();
  /** @type {(name: string, value: string, usual: string) => void} */
  const keep = (name, value, usual) => {
    const now = state();
    if (value === usual) now.delete(name);
    else now.set(name, value);
    const text = now.toString();
    history.replaceState(history.state, "", link(text ? `#${text}` : "#"));
  };

  /* The card. */
  /**
   * @type {(box: HTMLElement, tables: Table[]) => (table: Table, place: number) => Promise<void>}
   */
  const startCard = (box, tables) => {
    /** @type {(name: string) => HTMLElement} */
    const part = (name) => one(`[data-${name}]`, box);
    const canvas = make("canvas", { class: "ink", role: "img" });
    /** @type {(table: Table, place: number, name: string) => void} */
    const draw = (table, place, name) => {
      if (!table.sheet) { canvas.hidden = true; return; }
      canvas.hidden = false;
      canvas.width = table.side;
      canvas.height = table.side;
      canvas.setAttribute("aria-label", `Mean attention map of ${name}`);
      const row = Math.floor(place / table.heads),
        column = place % table.heads,
        step = table.side + 1;
      const { side } = table, pen = canvas.getContext("2d");
      pen?.drawImage(table.sheet, column * step, row * step, side, side, 0, 0, side, side);
      const still = box.querySelector("[data-picture]");
      if (still) still.replaceWith(canvas);
      else if (!canvas.isConnected) part("summary").before(canvas);
    };
    let asked = "";
    /** @type {(table: Table, place: number) => Promise<void>} */
    const show = async (table, place) => {
      asked = `${table.stack} ${place}`;
      const cards = await load(`${root()}data/atlas.js`, "atlas");
      if (asked !== `${table.stack} ${place}`) return;
      const [name, href, type, style, border, summary,
        evidence, given, brought, what, caption, text] =
        cards[table.stack][place];
      part("name").textContent = name;
      part("name").setAttribute("href", root() + href);
      part("style").className = style;
      const info = { type, border, summary, evidence, given, brought, what, exemplar: caption };
      for (const [key, value] of Object.entries(info)) part(key).textContent = value;
      part("text").replaceChildren(
        ...text.map(([kind, letters]) => (kind ? make("span", { class: kind }, letters) : letters)),
      );
      draw(table, place, name);
      for (const { links } of tables) links.forEach((each) => each.removeAttribute("aria-current"));
      table.links[place].setAttribute("aria-current", "true");
    };
    return show;
  };

  /** @type {(box: HTMLElement) => Table} */
  const startTiles = (box) => {
    const links = all("td a", box), heads = all("thead th", box).length;
    const table = {
      stack: box.dataset.tiles ?? "",
      side: Number(box.dataset.side),
      sheet: box.querySelector("img"),
      box,
      links,
      heads,
    };
    rove(box, links, heads);
    return table;
  };

  /* Strips by type, or as bars of a metric. */
  /** @type {(select: HTMLSelectElement, tables: Table[]) => () => void} */
  const startStrip = (select, tables) => {
    const note = one("[data-strip-note]");
    for (const part of all("[data-metric] > *")) select.append(part.cloneNode(true));
    for (const option of all("option", select)) option.defaultSelected = false;
    const letters = tables.map(({ links }) => links.map((each) => each.textContent));
    const labels = tables.map(({ links }) => links.map(labelOf));
    const show = async () => {
      const key = select.value, grids = key ? await load(`${root()}data/grid.js`, "grid") : {};
      if (key !== select.value) return;
      let info = "";
      tables.forEach(({ stack, box, links }, t) => {
        const choice = (grids[stack] || {})[key];
        if (choice && !info) info = `${choice.caption}: full length ${choice.high}`;
        box.classList.toggle("bymetric", Boolean(key));
        links.forEach((each, n) => {
          const known = choice && choice.steps[n] >= 0;
          const part = known ? choice.steps[n] / TOP : 0;
          const length = known && choice.ink === "d" ? Math.abs(2 * part - 1) : part;
          each.style.setProperty("--w", String(length));
          const text = choice ? choice.texts[n] : "–", letter = each.querySelector("b");
          if (letter) letter.textContent = key ? text : letters[t][n];
          each.setAttribute("aria-label", key ? `${labels[t][n]}: ${text}` : labels[t][n]);
        });
      });
      note.textContent = info;
    };
    const set = () => {
      const wanted = state().get("strip") || "";
      select.value = all("option", select).some(({ value }) => value === wanted) ? wanted : "";
      show();
    };
    select.addEventListener("change", () => { keep("strip", select.value, ""); show(); });
    return set;
  };

  /* A heat map. */
  /** @type {Grid} */
  const ABSENT = {
    caption: "Not measured for this attention type",
    low: "",
    high: "",
    steps: [],
    texts: [],
    file: "",
    command: "",
  };
  /** @type {(grid: HTMLElement) => (key: string, grids: Grids) => void} */
  const startGrid = (grid) => {
    const { grid: name = "" } = grid.dataset, files = one("[data-files]", grid);
    const cells = all("td", grid), links = all("td a", grid);
    const titles = links.map((each) => labelOf(each).replace(/:.*/, ""));
    links.forEach((each, n) => { each.title = titles[n]; });
    if (links.length) rove(one("table", grid), links, all("thead th", grid).length - 1);
    return (key, grids) => {
      const choice = grids[name][key] || ABSENT, [metric] = key.split("/");
      if (choice.ink)
        all(".scale i", grid).forEach((each, step) => {
          each.className = `${choice.ink}${step}`;
        });
      for (const part of /** @type {const} */ (["caption", "low", "high"]))
        one(`[data-${part}]`, grid).textContent = choice[part];
      cells.forEach((cell, n) => {
        cell.className = choice.steps[n] >= 0 ? `${choice.ink}${choice.steps[n]}` : "";
        (cell.firstElementChild || cell).textContent = choice.texts[n] ?? "–";
      });
      links.forEach((each, n) =>
        each.setAttribute("aria-label", `${titles[n]}: ${each.textContent}`),
      );
      files.hidden = choice === ABSENT;
      /* A link stands only where the file shows this very choice; else what makes the file. */
      const page = `${root()}metrics/${metric}.html`;
      const stored = one("[data-file]", files), asked = one("[data-command]", files);
      stored.hidden = !choice.file;
      asked.hidden = !choice.command;
      one("code", asked).textContent = choice.command;
      one("a", asked).setAttribute("href", page);
      for (const each of all("a", stored)) {
        const format = each.textContent.toLowerCase();
        if (!choice.file) each.removeAttribute("href");
        else if ("about" in each.dataset) each.setAttribute("href", `${page}#${choice.file}`);
        else each.setAttribute("href", `${root()}figures/${choice.file}.${format}`);
      }
    };
  };
  /* All heat maps, of the metric that is chosen. */
  /** @type {(box: HTMLElement) => () => void} */
  const startGrids = (box) => {
    const chooser = one("select[data-metric]", box), narrow = one("input[data-narrow]", box);
    const usual = chooser.value, draws = all("[data-grid]", box).map(startGrid);
    let drawn = usual;
    const show = async () => {
      const key = chooser.value;
      if (key === drawn) return;
      const grids = await load(`${root()}data/grid.js`, "grid");
      if (key !== chooser.value) return;
      drawn = key;
      draws.forEach((draw) => draw(key, grids));
    };
    chooser.addEventListener("change", () => {
      keep("metric", chooser.value, usual);
      show();
    });
    narrow.addEventListener("input", () => {
      const wanted = folded(narrow.value.trim());
      for (const option of all("option", chooser))
        option.hidden = !folded(option.textContent).includes(wanted);
      for (const group of all("optgroup", chooser))
        group.hidden = all("option", group).every(({ hidden }) => hidden);
    });
    return () => {
      const wanted = state().get("metric") ?? usual;
      chooser.value = all("option", chooser).some(({ value }) => value === wanted) ? wanted : usual;
      show();
    };
  };

  /* A chart of lines: the mark nearest to the pointer is told beside it. */
  /** @type {(figure: HTMLElement) => void} */
  const startCurve = (figure) => {
    const tip = make("p", { class: "tip", "aria-hidden": "true", hidden: "" });
    const marks = all("circle", figure).map((mark) => ({ mark, text: mark.textContent }));
    for (const { mark } of marks) mark.replaceChildren(); /* no second tooltip beside ours */
    figure.append(tip);
    /** @type {(found?: Mark) => void} */
    const show = (found) => {
      tip.hidden = !found;
      for (const { mark } of marks)
        mark.classList.toggle("near", found?.mark === mark);
      if (!found) return;
      const { left, top, width } = figure.getBoundingClientRect();
      tip.textContent = found.text;
      const beside = found.x - left - tip.offsetWidth / 2;
      tip.style.left = `${Math.max(0, Math.min(width - tip.offsetWidth, beside))}px`;
      tip.style.top = `${found.y - top - tip.offsetHeight - 8}px`;
    };
    const placed = () => marks.map(({ mark, text }) => {
      const { left, top, width, height } = mark.getBoundingClientRect();
      return { mark, text, x: left + width / 2, y: top + height / 2 };
    });
    figure.addEventListener("pointermove", ({ clientX, clientY }) =>
      show(nearest(placed(), clientX, clientY)),
    );
    figure.addEventListener("pointerleave", () => show());
  };

  document.addEventListener("DOMContentLoaded", () => {
    all(".curve").forEach(startCurve);
    const tables = all("[data-tiles]").map(startTiles);
    const [box] = all("[data-inspect]"),
      strip = all("select[data-strip]");
    if (box) {
      const show = startCard(box, tables);
      for (const table of tables) {
        /** @type {(event: Event) => void} */
        const on = (event) => {
          const target = targetOf(event).closest("a");
          const place = table.links.findIndex((each) => each === target);
          if (place >= 0) show(table, place);
        };
        for (const event of ["pointerover", "focusin"]) table.box.addEventListener(event, on);
      }
    }
    const sets = [
      ...strip.map((each) => startStrip(each, tables)),
      ...all("[data-grids]").map(startGrids),
    ];
    const set = () => sets.forEach((each) => each());
    set();
    window.addEventListener("hashchange", set);
    window.addEventListener("pageshow", set);
  });
})();
