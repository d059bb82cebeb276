"use strict";
/* The table of a metric of several labels, by another label or with other keys: its numbers and
   their range, the head at the notable end, its files, its address and its citation. Numbers come
   from the data of the figure, which is loaded with the first choice. */
(() => {
  const { all, one, root, make, load, use, offer, hash, link } = window.headbook;
  const COLUMNS = ["layer", "head", "value", "low", "high", "view", "label"];
  const STEPS = 7, BELOW = 4; /* fills above and below 0, as in headbook.charts.theme */

  /** @type {(columns: Record<string, unknown[]>) => MapRow[]} */
  const rowsOf = (columns) => Array.from({ length: columns.view.length }, (_, i) =>
    /** @type {MapRow} */ (Object.fromEntries(
      Object.entries(columns).map(([name, values]) => [name, values[i]]))));

  /** @type {(value: number, low: number, high: number, isDarkLow?: boolean) => string} */
  const fillOf = (amount, low, high, isDarkLow = false) => {
    const value = isDarkLow ? low + high - amount : amount;
    if (low < 0 && value < 0) return `z${Math.min(1 + Math.floor((BELOW * value) / low), BELOW)}`;
    const from = Math.max(low, 0), part = high > from ? (value - from) / (high - from) : 0;
    return `q${Math.min(Math.max(Math.floor(part * STEPS * 0.9999), 0), STEPS - 1)}`;
  };
  /** @type {(value: number, share: boolean) => string} */
  const cellText = (value, share) => {
    const { number } = window.headbook.numbers;
    return share ? number(value, true).replace(/\s?%$/u, "") : number(value, false);
  };

  /* One map, with all that belongs to it. */
  /** @type {(figure: HTMLElement) => void} */
  const start = (figure) => {
    const { map: name = "", title = "", source = "", model = "" } = figure.dataset;
    const share = Boolean(figure.dataset.share);
    const [low, high] = [Number(figure.dataset.low), Number(figure.dataset.high)];
    const selects = all("select[data-choice]", figure);
    const usual = Object.fromEntries(selects.map((each) => [each.dataset.choice, each.value]));
    const cells = all("tbody tr", figure).map((line) => ({
      layer: Number((one("th", line).textContent ?? "").replace(/\D+/g, "")),
      cells: all("td", line),
    }));
    const still = cells.map((line) => line.cells.map(
      (cell) => ({ style: cell.className, parts: [...cell.childNodes] })));
    const tableCaption = one("caption", figure), firstCaption = [...tableCaption.childNodes];
    const files = one(".files", figure), filesStill = [...files.childNodes];
    const cite = one("pre", files).textContent ?? "";
    const scale = one(".steps-of", figure), steps = all("i", scale);
    const fills = steps.map((each) => each.className);
    /** @type {(names: string[]) => void} */
    const showSteps = (names) => steps.forEach((each, i) => { each.className = names[i]; });
    /** @type {[string, string]} */
    const ends = [scale.firstChild?.textContent ?? "", scale.lastChild?.textContent ?? ""];

    const chosen = () => {
      const now = Object.fromEntries(selects.map((each) => [each.dataset.choice, each.value]));
      return { label: now.label ?? "", view: now.view ?? figure.dataset.view ?? "" };
    };
    /** @type {() => boolean} */
    const changed = () => selects.some((each) => each.value !== usual[each.dataset.choice ?? ""]);
    const back = () => {
      cells.forEach((line, i) => line.cells.forEach((cell, j) => {
        cell.className = still[i][j].style;
        cell.replaceChildren(...still[i][j].parts);
      }));
      tableCaption.replaceChildren(...firstCaption);
      showSteps(fills);
      files.replaceChildren(...filesStill);
    };
    /** @type {(rows: MapRow[]) => void} */
    const fill = (rows) => {
      const byPlace = new Map(rows.map((row) => [`${row.layer} ${row.head}`, row]));
      const [least, most] = [rows.reduce((a, b) => (b.value < a.value ? b : a)),
        rows.reduce((a, b) => (b.value > a.value ? b : a))];
      const notable = notableOf(chosen().label);
      showSteps(fillsOf(chosen().label));
      const framed = notable === "high" ? most : notable === "low" ? least : undefined;
      for (const { layer, cells: line } of cells)
        line.forEach((cell, head) => {
          const row = byPlace.get(`${layer} ${head}`);
          const text = row ? cellText(row.value, share) : window.headbook.numbers.MISSING;
          const { interval } = window.headbook.numbers;
          const note = row ? `L${layer}·H${head} ${interval(row.low, row.high, share)}` : "";
          cell.className = `h ${row ? fillOf(row.value, low, high, notable === "low") : "q0"}`;
          if (row && row === framed) cell.classList.add("top1");
          cell.replaceChildren(make("span", { title: note.trim() }, text));
        });
      const [from, to] = [cellText(least.value, share), cellText(most.value, share)];
      const unit = optionOf(chosen().label)?.dataset.unit ?? "";
      const words = share ? `${to}\u202f%` : unit ? `${to} ${unit}` : to;
      tableCaption.textContent = `${phraseOf(chosen().label)}: ${from} to ${words}`;
    };

    /* Files, address and citation of what is chosen. */
    /** @type {(rows: MapRow[]) => void} */
    const tell = (rows) => {
      const { quoted, saver, fileName, cited, entry, asPdf, csv } = window.headbook.choices;
      const { label, view } = chosen();
      const about = `${title}, ${nameOf(label)}, of every head, ${nameOf(view)}`;
      const file = fileName(name, [label, view]);
      const caption = `${about}. Rows: layers, columns: heads. ${source}`;
      /** @type {(value: number) => string} */
      const fillHere = (value) => fillOf(value, low, high, notableOf(label) === "low");
      const picture = () =>
        window.headbook.heatPicture(rows, {
          fills: fillsOf(label), ends, fillOf: fillHere, caption,
        });
      const options = [`--only ${name}`, `--label ${quoted(label)}`, `--view ${view}`];
      files.replaceChildren(
        saver("SVG", () => offer(`${file}.svg`, "image/svg+xml", picture())),
        saver("CSV", () => offer(`${file}.csv`, "text/csv", csv(COLUMNS, rows))),
        make("a", { href: link(`#${fragment()}`) }, "Permalink"),
        entry(cited(cite, name, file, `${about} (${model})`)),
        asPdf(["headbook figures STUDY", ...options].join(" ")),
      );
    };
    /** @type {(value: string) => HTMLOptionElement | undefined} */
    const optionOf = (value) =>
      selects.flatMap((each) => [...each.options]).find((option) => option.value === value);
    /* The name of a label or of keys. */
    /** @type {(value: string) => string} */
    const nameOf = (value) => optionOf(value)?.textContent ?? value;
    /* A label as the beginning of a sentence. */
    /** @type {(value: string) => string} */
    const phraseOf = (value) => optionOf(value)?.dataset.phrase || nameOf(value);
    /* The end of a label's numbers that is framed: high, low or neither. */
    /** @type {(value: string) => string} */
    const notableOf = (value) => optionOf(value)?.dataset.notable ?? "";
    /* The fills from low to high numbers: the other way round if the other end is dark. */
    /** @type {(value: string) => string[]} */
    const fillsOf = (value) => {
      const [isLow, wasLow] = [value, usual.label ?? ""].map((each) => notableOf(each) === "low");
      return isLow === wasLow ? fills : [...fills].reverse();
    };
    const fragment = () => new URLSearchParams({ map: name, ...chosen() }).toString();

    const show = async () => {
      if (!changed()) { back(); return; }
      await Promise.all([use("numbers"), use("choices"), use("heat_picture")]);
      const columns = await load(`${root()}data/maps/${name}.js`, `map-${name}`);
      const { label, view } = chosen();
      const about = nameOf(label);
      const rows = rowsOf(columns).filter((row) => row.label === about && row.view === view);
      if (!rows.length) {
        tableCaption.textContent = `${about}: not measured with these keys`;
        return;
      }
      fill(rows);
      tell(rows);
    };
    for (const select of selects) {
      select.addEventListener("change", async () => {
        await show();
        history.replaceState(null, "", link(changed() ? `#${fragment()}` : `#${name}`));
      });
    }
    /* An address may name a choice. */
    const wanted = new URLSearchParams(hash().slice(1));
    if (wanted.get("map") !== name) return;
    for (const select of selects) {
      const value = wanted.get(select.dataset.choice ?? "");
      if (value !== null && [...select.options].some((each) => each.value === value))
        select.value = value;
    }
    figure.scrollIntoView();
    void show();
  };
  document.addEventListener("DOMContentLoaded", () => all("figure[data-map]").forEach(start));
})();
