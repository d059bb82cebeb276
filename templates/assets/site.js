"use strict";
/* What every page adds when scripts may run: live charts, light or dark. Scripts
   of some pages stand beside it and use what `headbook` holds. Without them pages are complete and
   still. No fetch, no modules: it works from disk. Text from outside goes into the page through textContent alone. */
(() => {
  const root = () => document.body.dataset.root;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const make = (name, attributes = {}, text = "") => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };

  /* Data files call headbook.take(name, value). */
  const taken = new Map();
  window.headbook = { take: (name, value) => taken.set(name, value) };
  const scripts = new Map();
  const added = (src) => new Promise((resolve, reject) => {
    const element = make("script", { src });
    element.onload = resolve;
    element.onerror = () => reject(new Error(`cannot load ${src}`));
    document.head.append(element);
  });
  /* What the address holds of a page's view, and the address with another one. In one file all pages
     have one address, and data stands in it. */
  const folder = { hash: () => location.hash, link: (hash) => hash, run: added };
  const { hash, link, run: fetched } = window.oneFile || folder;
  const run = (src) => {
    if (!scripts.has(src)) scripts.set(src, fetched(src));
    return scripts.get(src);
  };
  const use = (name) => run(`${root()}assets/${name}.js`);
  const load = async (src, name) => {
    if (!taken.has(name)) await run(src);
    return taken.get(name);
  };
  /* A file for the reader to keep. */
  const offer = (name, type, text) => {
    const href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10000);
  };
  /* A text from outside inside a sentence of ours, whatever its direction. */
  const apart = (text) => make("bdi", {}, text);
  /* For searches: accents and case do not count. */
  const folded = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  /* What a data file holds in base64. */
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  Object.assign(window.headbook, { root, all, make, load, use, offer, hash, link, apart, folded, bytes });

  /* Light, dark, or as the system has it. */
  const THEMES = ["system", "light", "dark"];
  const remembered = () => {
    try { return localStorage.getItem("headbook-theme") || "system"; } catch { return "system"; }
  };
  const setTheme = (theme) => {
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("headbook-theme", theme); } catch { /* private windows */ }
    for (const button of all("[data-theme-switch]")) button.textContent = `Theme: ${theme}`;
  };
  document.documentElement.dataset.theme = remembered();
  const startTheme = (button) => {
    button.textContent = `Theme: ${remembered()}`;
    button.addEventListener("click", () => {
      const now = THEMES.indexOf(document.documentElement.dataset.theme);
      setTheme(THEMES[(now + 1) % THEMES.length]);
    });
  };

  /* Live charts. */
  const rows = (given) => {
    const whole = (column) => (Array.isArray(column) ? column : column.at.map((place) => column.texts[place]));
    const columns = Object.fromEntries(Object.entries(given).map(([name, column]) => [name, whole(column)]));
    const names = Object.keys(columns);
    const length = names.length ? columns[names[0]].length : 0;
    return Array.from({ length }, (_, i) => Object.fromEntries(names.map((n) => [n, columns[n][i]])));
  };
  const OPTIONS = {
    ast: true, renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  const startChart = (button) => {
    const box = button.closest("figure").querySelector(".scroll");
    const still = [...box.childNodes];
    const name = button.dataset.chart;
    const [begin, end] = box.querySelector("svg") ? ["Interactive", "Still picture"] : ["Draw", "Take away"];
    const show = async () => {
      button.disabled = true;
      const spec = await load(`${root()}data/charts/${name}.js`, `chart-${name}`);
      await use("vega");
      const sets = Object.entries(spec.datasets || {});
      const datasets = Object.fromEntries(sets.map(([key, value]) => [key, rows(value)]));
      const stage = make("div", { class: "live" });
      box.replaceChildren(stage);
      await window.vegaEmbed(stage, { ...spec, datasets }, OPTIONS);
      button.textContent = end;
      button.disabled = false;
    };
    const stop = () => {
      box.replaceChildren(...still);
      button.textContent = begin;
      button.disabled = false;
    };
    let live = false;
    button.addEventListener("click", async () => {
      live = !live;
      if (!live) { stop(); return; }
      try { await show(); } catch (error) { live = false; stop(); throw error; }
    });
  };

  /* Pictures without a file of their own are saved as they stand, black on white. */
  const startPicture = (figure) => {
    const svg = figure.querySelector("svg"), tools = figure.querySelector(".tools");
    if (!svg || !tools || tools.querySelector("a[href$='.svg']")) return;
    const button = make("button", { type: "button" }, "SVG");
    button.addEventListener("click", () => {
      const copy = svg.cloneNode(true);
      const paper = document.createElementNS(svg.namespaceURI, "rect");
      for (const [key, value] of [["width", "100%"], ["height", "100%"], ["fill", "white"]]) paper.setAttribute(key, value);
      copy.prepend(paper);
      offer(`${figure.id}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy).replaceAll('"currentColor"', '"black"'));
    });
    tools.append(button);
  };

  /* Token types by name. */
  const startTypes = (input) => {
    const body = document.querySelector(`[data-types-of="${input.dataset.types}"]`);
    const status = input.closest("p").querySelector("[role=status]");
    const still = [...body.children];
    const row = ([name, ...cells]) => {
      const line = make("tr");
      line.append(make("th", { scope: "row", dir: "auto" }, name), ...cells.map((cell) => make("td", { class: "number" }, cell)));
      return line;
    };
    const show = async () => {
      const types = (await load(input.dataset.src, "types"))[input.dataset.types];
      const wanted = folded(input.value.trim());
      const found = wanted ? types.filter(([name]) => folded(name).includes(wanted)) : [];
      body.replaceChildren(...(wanted ? found.slice(0, still.length).map(row) : still));
      status.textContent = wanted ? `${found.length} of ${types.length} types` : "";
    };
    input.addEventListener("input", show);
    const asked = new URLSearchParams(hash().slice(1)).get("find");
    if (asked) {
      input.value = asked;
      show();
      input.scrollIntoView({ block: "center" });
    }
  };

  /* The map of all heads in the header: its script is loaded when it is opened. */
  const startAtlas = (box) => {
    box.addEventListener("toggle", () => use("atlas"), { once: true });
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const part of all(".js, .chooser, [data-chart], [data-theme-switch]")) part.hidden = false;
    all("[data-theme-switch]").forEach(startTheme);
    all("[data-chart]").forEach(startChart);
    all("figure.chart").forEach(startPicture);
    all("[data-types]").forEach(startTypes);
    all("[data-atlas]").forEach(startAtlas);
  });
})();
