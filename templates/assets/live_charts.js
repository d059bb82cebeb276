"use strict";
/* Live charts in the place of their pictures, and back. */
(() => {
  const { all, root, make, one, load, use, offer, hash, link } = window.headbook;
  const OPTIONS = {
    ast: true, renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  /* The script of charts waits packed, as a text. The page's policy lets this very text run. In
     one file it ran when it was asked for. */
  const begun = async () => {
    await Promise.all([use("vega"), use("choices")]);
    const code = await load(`${root()}assets/vega.js`, "vega");
    if (!window.vegaEmbed) document.head.append(make("script", {}, code));
  };
  /* Files, caption and citation are of the picture. Where a reader chooses something else, what is
     on show is saved here, beside the command that draws it, if any does. */
  const ASKED = new Map([["label_shown", "--label"], ["view_shown", "--view"]]);
  /** @type {(figure: HTMLElement, spec: ChartSpec, view: ChartView) => () => void} */
  const tellFiles = (figure, spec, view) => {
    const { quoted, saver, fileName, cited, entry, asPdf, csv, rows } = window.headbook.choices;
    const tools = one(".tools", figure), note = make("span", { class: "made" });
    const drawn = new Map((spec.params ?? []).map(({ name, value }) => [name, value]));
    const name = figure.id, bibliography = figure.querySelector("pre")?.textContent ?? "";
    const caption = figure.querySelector("figcaption")?.firstChild?.textContent ?? "";
    const lists = () =>
      all(".vega-bindings select", figure).filter((each) => drawn.has(each.name));
    /* The rows of the choice: of the first table that has what is chosen. */
    const chosenRows = () => {
      const now = lists().map((each) => [each.name.replace(/_shown$/, ""), each.value]);
      const found = Object.values(spec.datasets ?? {}).find(
        (each) => now.every(([column]) => column in each));
      const every = found ? rows(found) : [];
      return every.filter((row) => now.every(([column, value]) => row[column] === value));
    };
    const save = async () => {
      const text = await view.toSVG();
      const paper = '<rect width="100%" height="100%" fill="white"/>';
      const white = text.replace(/(<svg[^>]*>)/, `$1${paper}`);
      return white.replaceAll('"currentColor"', '"black"');
    };
    return () => {
      const chosen = lists().filter((each) => each.value !== drawn.get(each.name));
      const files = [...all("a[href*='figures/'], a[href^='#']", tools), ...all("details", tools)];
      for (const each of files) if (!note.contains(each)) each.hidden = chosen.length > 0;
      note.remove();
      if (!chosen.length || !files.length) return;
      const { command } = figure.dataset, values = chosen.map((each) => each.value);
      const file = fileName(name, values), table = chosenRows();
      const options = chosen.map((each) => `${ASKED.get(each.name)} ${quoted(each.value)}`);
      const place = new URLSearchParams([["chart", name], ...chosen.map(
        (each) => /** @type {[string, string]} */ ([each.name, each.value]))]);
      note.replaceChildren(
        "This choice: ",
        saver("SVG", async () => offer(`${file}.svg`, "image/svg+xml", await save())),
        saver("CSV", () => offer(`${file}.csv`, "text/csv",
          csv(Object.keys(table[0] ?? {}), table))),
        make("a", { href: link(`#${place}`) }, "Permalink"),
        entry(cited(bibliography, name, file, `${caption.split(". ")[0]}: ${values.join(", ")}`)),
      );
      if (command && chosen.every((each) => ASKED.has(each.name)))
        note.append(asPdf([command, ...options].join(" ")));
      tools.append(note);
    };
  };
  /* An address may name a choice. */
  /** @type {(figure: HTMLElement) => void} */
  const choose = (figure) => {
    const wanted = new URLSearchParams(hash().slice(1));
    if (wanted.get("chart") !== figure.id) return;
    for (const list of all(".vega-bindings select", figure)) {
      const value = wanted.get(list.name);
      if (value === null) continue;
      list.value = value;
      list.dispatchEvent(new Event("change", { bubbles: true }));
    }
  };
  /* The way from a chart's picture to the live chart and back. */
  /** @type {(button: HTMLButtonElement) => () => Promise<void>} */
  const turned = (button) => {
    const figure = /** @type {HTMLElement} */ (button.closest("figure"));
    const box = one(".scroll", figure);
    let tell = () => {};
    const still = [...box.childNodes];
    const name = button.dataset.chart;
    const [begin, end] = box.querySelector("svg")
      ? ["Interactive", "Still picture"]
      : ["Draw", "Take away"];
    const show = async () => {
      button.disabled = true;
      const spec = await load(`${root()}data/charts/${name}.js`, `chart-${name}`);
      await begun();
      const sets = Object.entries(spec.datasets || {}), { rows } = window.headbook.choices;
      const datasets = Object.fromEntries(sets.map(([key, value]) => [key, rows(value)]));
      const stage = make("div", { class: "live" });
      box.replaceChildren(stage);
      const { view } = await window.vegaEmbed(stage, { ...spec, datasets }, OPTIONS);
      tell = tellFiles(figure, spec, view);
      stage.addEventListener("change", tell);
      choose(figure);
      button.textContent = end;
      button.disabled = false;
    };
    const stop = () => {
      box.replaceChildren(...still);
      tell();
      button.textContent = begin;
      button.disabled = false;
    };
    let live = false;
    return async () => {
      live = !live;
      if (!live) { stop(); return; }
      try { await show(); } catch (error) { live = false; stop(); throw error; }
    };
  };
  /** @type {WeakMap<HTMLButtonElement, () => Promise<void>>} */
  const known = new WeakMap();
  window.headbook.live = (button) => {
    const turn = known.get(button) ?? turned(button);
    known.set(button, turn);
    return turn();
  };
})();
