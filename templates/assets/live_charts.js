"use strict";
/* Live charts in the place of their pictures, and back. */
(() => {
  const { all, root, make, one, load, use } = window.headbook;
  /** @type {(given: Record<string, ChartColumn>) => Record<string, unknown>[]} */
  const rows = (given) => {
    /** @type {(column: ChartColumn) => unknown[]} */
    const whole = (column) =>
      Array.isArray(column) ? column : column.at.map((place) => column.texts[place]);
    const columns = Object.fromEntries(
      Object.entries(given).map(([name, column]) => [name, whole(column)]),
    );
    const names = Object.keys(columns);
    const length = names.length ? columns[names[0]].length : 0;
    return Array.from({ length }, (_, i) =>
      Object.fromEntries(names.map((n) => [n, columns[n][i]])),
    );
  };
  const OPTIONS = {
    ast: true, renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  /* The script of charts waits packed, as a text. The page's policy lets this very text run. In
     one file it ran when it was asked for. */
  const begun = async () => {
    await use("vega");
    const code = await load(`${root()}assets/vega.js`, "vega");
    if (!window.vegaEmbed) document.head.append(make("script", {}, code));
  };
  /* Files, caption and citation are of the picture. Where a reader chooses something else, the
     links give way to the command that draws it, if any does. */
  const ASKED = new Map([["label_shown", "--label"], ["view_shown", "--view"]]);
  /** @type {(text: string) => string} */
  const quoted = (text) =>
    (/^[\w.:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  /** @type {(figure: HTMLElement, spec: ChartSpec) => () => void} */
  const tellFiles = (figure, spec) => {
    const tools = one(".tools", figure), note = make("p", { class: "hint", "aria-live": "polite" });
    const drawn = new Map((spec.params ?? []).map(({ name, value }) => [name, value]));
    return () => {
      const chosen = all(".vega-bindings select", figure).filter(
        (each) => drawn.has(each.name) && each.value !== drawn.get(each.name),
      );
      const files = [...all("a[href*='figures/']", tools), ...all("details", tools)];
      for (const each of files) each.hidden = chosen.length > 0;
      note.remove();
      if (!chosen.length || !files.length) return;
      const { command } = figure.dataset;
      const options = chosen.map(({ name, value }) => `${ASKED.get(name)} ${quoted(value)}`);
      if (command && chosen.every(({ name }) => ASKED.has(name)))
        note.replaceChildren(
          "The caption is of the still picture. This choice as SVG, PDF, CSV with its citation: ",
          make("code", {}, [command, ...options].join(" ")),
        );
      else note.textContent = "The caption is of the still picture; no file shows this choice.";
      tools.append(note);
    };
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
      const sets = Object.entries(spec.datasets || {});
      const datasets = Object.fromEntries(sets.map(([key, value]) => [key, rows(value)]));
      const stage = make("div", { class: "live" });
      box.replaceChildren(stage);
      await window.vegaEmbed(stage, { ...spec, datasets }, OPTIONS);
      tell = tellFiles(figure, spec);
      stage.addEventListener("change", tell);
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
