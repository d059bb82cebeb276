"use strict";
/* Everything that a page adds when scripts may run: live charts, the grid's chooser, attention on
   demand, light or dark. Without it the page is complete and still. No fetch, no modules: it works
   from disk. Text from outside goes into the page through textContent alone. */
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
  window.headbook = Object.freeze({ take: (name, value) => taken.set(name, value) });
  const scripts = new Map();
  const run = (src) => {
    if (!scripts.has(src)) {
      scripts.set(src, new Promise((resolve, reject) => {
        const element = make("script", { src });
        element.onload = resolve;
        element.onerror = () => reject(new Error(`cannot load ${src}`));
        document.head.append(element);
      }));
    }
    return scripts.get(src);
  };
  const load = async (src, name) => {
    if (!taken.has(name)) await run(src);
    return taken.get(name);
  };

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
  const rows = (columns) => {
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
    const show = async () => {
      button.disabled = true;
      const spec = await load(`${root()}data/charts/${name}.js`, `chart-${name}`);
      await run(`${root()}assets/vega.js`);
      const sets = Object.entries(spec.datasets || {});
      const datasets = Object.fromEntries(sets.map(([key, value]) => [key, rows(value)]));
      const stage = make("div", { class: "live" });
      box.replaceChildren(stage);
      await window.vegaEmbed(stage, { ...spec, datasets }, OPTIONS);
      button.textContent = "Still picture";
      button.disabled = false;
    };
    const stop = () => {
      box.replaceChildren(...still);
      button.textContent = "Interactive";
      button.disabled = false;
    };
    let live = false;
    button.addEventListener("click", async () => {
      live = !live;
      if (!live) { stop(); return; }
      try { await show(); } catch (error) { live = false; stop(); throw error; }
    });
  };

  /* The grid of all heads. */
  const startGrid = (grid) => {
    const chooser = grid.querySelector("[data-metric]");
    const cells = all("td", grid);
    const names = cells.map((cell) => cell.firstElementChild.title);
    chooser.addEventListener("change", async () => {
      const grids = await load(`${root()}data/grid.js`, "grid");
      const shown = grids[grid.dataset.grid][chooser.value];
      for (const part of ["caption", "low", "high"]) {
        grid.querySelector(`[data-${part}]`).textContent = shown[part];
      }
      cells.forEach((cell, i) => {
        cell.className = shown.steps[i] < 0 ? "" : `c${shown.steps[i]}`;
        cell.firstElementChild.textContent = shown.texts[i];
        cell.firstElementChild.setAttribute("aria-label", `${names[i]}: ${shown.texts[i]}`);
      });
    });
  };

  /* Attention maps: weights are bytes, 255 stands for 1. */
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const written = (step) => (step / 255).toFixed(3);
  let palette = null;
  const colours = () => {
    if (!palette) {
      const probe = make("i");
      document.body.append(probe);
      palette = Array.from({ length: 21 }, (_, step) => {
        probe.className = `c${step}`;
        return getComputedStyle(probe).backgroundColor.match(/\d+/g).map(Number);
      });
      probe.remove();
    }
    return palette;
  };
  const colour = (step) => {
    const place = (step / 255) * 20, low = Math.min(19, Math.floor(place)), part = place - low;
    const [a, b] = [colours()[low], colours()[low + 1]];
    return a.map((value, i) => Math.round(value + (b[i] - value) * part));
  };
  const LARGEST = 560;

  /* Draw a map with its tokens; the pointer or the arrow keys read single weights. */
  const drawMap = (box, map, title) => {
    const { queries, keys, weights } = map;
    const size = Math.max(2, Math.min(18, Math.floor(LARGEST / Math.max(queries.length, keys.length))));
    const named = size >= 9;
    const [left, top, right] = named ? [96, 84, 44] : [0, 0, 0];
    const canvas = make("canvas", {
      width: left + keys.length * size + right, height: top + queries.length * size,
      tabindex: "0", role: "img", "aria-label": `${title}; arrow keys read single weights`,
    });
    const status = make("p", { class: "status", "aria-live": "polite" }, "Point at the map, or use the arrow keys.");
    const pen = canvas.getContext("2d");
    const ink = getComputedStyle(document.body).color;
    let [row, column] = [0, 0];
    const paint = (marked) => {
      pen.clearRect(0, 0, canvas.width, canvas.height);
      for (let q = 0; q < queries.length; q += 1) {
        for (let k = 0; k < keys.length; k += 1) {
          pen.fillStyle = `rgb(${colour(weights[q * keys.length + k]).join(" ")})`;
          pen.fillRect(left + k * size, top + q * size, size - (size > 4), size - (size > 4));
        }
      }
      if (named) {
        pen.fillStyle = ink;
        pen.font = "11px system-ui, sans-serif";
        pen.textBaseline = "middle";
        queries.forEach((token, q) => {
          pen.textAlign = "right";
          pen.fillText(token.slice(0, 14), left - 6, top + (q + 0.5) * size, left - 10);
        });
        keys.forEach((token, k) => {
          pen.save();
          pen.translate(left + (k + 0.5) * size, top - 6);
          pen.rotate(-Math.PI / 3);
          pen.textAlign = "left";
          pen.fillText(token.slice(0, 14), 0, 0, top - 8);
          pen.restore();
        });
      }
      if (marked) {
        pen.strokeStyle = ink;
        pen.lineWidth = 2;
        pen.strokeRect(left + column * size, top + row * size, size, size);
      }
    };
    const read = (q, k) => {
      if (q < 0 || k < 0 || q >= queries.length || k >= keys.length) return;
      [row, column] = [q, k];
      paint(true);
      status.textContent = `${q} ${queries[q]} → ${k} ${keys[k]}: ${written(weights[q * keys.length + k])}`;
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const scale = canvas.width / box.width;
      read(Math.floor(((event.clientY - box.top) * scale - top) / size),
        Math.floor(((event.clientX - box.left) * scale - left) / size));
    });
    const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    canvas.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      read(row + step[0], column + step[1]);
    });
    paint(false);
    box.replaceChildren(make("p", { class: "maptitle" }, title), canvas, status);
    return status;
  };

  /* Exemplars: the row of the token that is pointed at; the whole map on demand. */
  const startExemplar = (article) => {
    const { map: place, src } = article.dataset;
    const name = src.slice(src.lastIndexOf("/") + 1, -3);
    /* Of a long text only some tokens stand here; data-i is their place in the whole. */
    const keys = all(".looked .t", article);
    const crossing = article.querySelector(".looking") !== null;
    const queries = crossing ? all(".looking .t", article) : keys;
    const placeOf = (token) => Number(token.dataset.i);
    const line = queries[0].closest(".text");
    const status = article.querySelector("[data-status]");
    let pinned = Number(article.dataset.looks), shown = pinned;
    const read = async () => {
      const map = (await load(src, name))[place];
      return { ...map, weights: bytes(map.weights) };
    };
    const look = async (query) => {
      shown = query;
      const map = await read();
      if (shown !== query) return;
      const row = map.weights.subarray(query * map.keys.length, (query + 1) * map.keys.length);
      for (const token of queries) token.classList.toggle("looks", placeOf(token) === query);
      for (const token of keys) {
        const i = placeOf(token);
        token.className = token.className.replace(/ ?\bs\d+\b/g, "");
        token.classList.add(`s${Math.round(row[i] / 25.5)}`);
        token.title = `${i} ${map.keys[i]}: ${written(row[i])}`;
      }
      const best = [...row.keys()].sort((a, b) => row[b] - row[a] || a - b).slice(0, 3);
      const list = best.map((i) => `${i} ${map.keys[i]} ${written(row[i])}`).join(", ");
      status.textContent = `${query} ${map.queries[query]} looks at ${list}`;
    };
    const at = (event) => {
      const token = event.target.closest(".t");
      return token ? placeOf(token) : -1;
    };
    line.tabIndex = 0;
    line.setAttribute("role", "group");
    line.setAttribute("aria-label", "Tokens; left and right arrow choose the one that looks");
    line.addEventListener("pointerover", (event) => { if (at(event) >= 0) look(at(event)); });
    line.addEventListener("pointerleave", () => { if (shown !== pinned) look(pinned); });
    line.addEventListener("click", (event) => { if (at(event) >= 0) { pinned = at(event); look(pinned); } });
    line.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = queries[queries.findIndex((token) => placeOf(token) === pinned) + step];
      if (!next) return;
      pinned = placeOf(next);
      look(pinned);
    });
    const full = article.querySelector("[data-full]");
    article.querySelector("details").addEventListener("toggle", async (event) => {
      if (event.target.open && !full.firstChild) drawMap(full, await read(), "All weights");
    });
  };

  /* All heads of a sentence: the chosen map, large. */
  const startSheet = (sheet) => {
    const { sheet: stack, name, src } = sheet.dataset;
    const box = document.querySelector(`[data-full-of="${stack}"]`);
    const carried = document.querySelector(`[data-carried="${stack}"]`);
    let chosen = null;
    const show = async () => {
      const maps = (await load(src, `sentence-${name}`))[stack];
      const [place, n] = [Number(chosen.dataset.place), maps.keys.length];
      const start = place * maps.queries.length * n;
      let weights = bytes(maps.weights).subarray(start, start + maps.queries.length * n);
      let title = chosen.getAttribute("aria-label");
      if (carried && carried.checked) {
        /* Over the largest of the map. */
        const products = [...weights].map((weight, i) => weight * maps.norms[place * n + (i % n)]);
        const most = Math.max(...products) || 1;
        weights = products.map((product) => Math.round((255 * product) / most));
        title += ", by what is carried; 1 is the largest of this map";
      }
      const status = drawMap(box, { ...maps, weights }, title);
      status.after(make("a", { href: chosen.getAttribute("href") }, `Page of ${chosen.getAttribute("aria-label")}`));
    };
    for (const link of all("a", sheet)) {
      link.addEventListener("click", async (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        chosen = link;
        await show();
        box.scrollIntoView({ block: "nearest" });
      });
    }
    if (carried) carried.addEventListener("change", () => { if (chosen) show(); });
  };

  /* One token of a sentence: the entries nearest to it, a row a layer. */
  const startStory = (box) => {
    const choosers = all("select", box);
    const show = async () => {
      const stacks = await load(box.dataset.src, box.dataset.name);
      const [token, choice] = choosers.map((chooser) => chooser.value);
      const { layers, cells } = stacks[box.dataset.story][choice];
      const lines = layers.map((layer, i) => {
        const line = make("tr");
        line.append(make("th", { scope: "row" }, `L${layer}`), ...cells[token][i].map((entry) => make("td", { dir: "auto" }, entry)));
        return line;
      });
      box.querySelector("tbody").replaceChildren(...lines);
    };
    choosers.forEach((chooser) => chooser.addEventListener("change", show));
  };

  /* Token types by name; accents and case do not count. */
  const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  const startTypes = (input) => {
    const body = document.querySelector(`[data-types-of="${input.dataset.types}"]`);
    const status = input.closest("p").querySelector("[role=status]");
    const still = [...body.children];
    const row = ([name, ...cells]) => {
      const line = make("tr");
      line.append(make("th", { scope: "row", dir: "auto" }, name), ...cells.map((cell) => make("td", { class: "number" }, cell)));
      return line;
    };
    input.addEventListener("input", async () => {
      const types = (await load(input.dataset.src, "types"))[input.dataset.types];
      const wanted = plain(input.value.trim());
      const found = wanted ? types.filter(([name]) => plain(name).includes(wanted)) : [];
      body.replaceChildren(...(wanted ? found.slice(0, still.length).map(row) : still));
      status.textContent = wanted ? `${found.length} of ${types.length} types` : "";
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const part of all(".js, .chooser, [data-chart], [data-theme-switch]")) part.hidden = false;
    all("[data-theme-switch]").forEach(startTheme);
    all("[data-chart]").forEach(startChart);
    all("[data-grid]").forEach(startGrid);
    all(".exemplar").forEach(startExemplar);
    all("[data-sheet]").forEach(startSheet);
    all("[data-types]").forEach(startTypes);
    all("[data-story]").forEach(startStory);
  });
})();
