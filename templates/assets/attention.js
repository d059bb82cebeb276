"use strict";
/* Where attention stands on pages: under every exemplar, and all heads of a sentence. */
(() => {
  const { all, load, make, use, hash, Instance, Panel, switches, drawing } = window.headbook;
  const { mapOf, seen } = window.headbook.weights;
  const MOST_HEADS = 4;
  const instances = [];

  /* An exemplar: its text at once, the rest where a reader opens it. */
  const startExemplar = (article) => {
    const { map: place, src, looks, looked, name, sentence } = article.dataset;
    const file = src.slice(src.lastIndexOf("/") + 1, -3);
    const keys = article.querySelector(".looked .text");
    const details = article.querySelector("details");
    const instance = new Instance({
      id: place,
      home: { q: Number(looks), k: Number(looked) },
      read: async () => [{ name, map: mapOf((await load(src, file))[place]) }],
      lines: { queries: article.querySelector(".looking .text") || keys, keys },
      told: article.querySelector("[data-status]"), about: `sentence ${sentence}`,
    });
    const open = async () => {
      if (!instance.panel) new Panel(instance, article.querySelector("[data-full]"));
      await instance.show();
    };
    /* What stands open stands in the address. */
    details.addEventListener("toggle", async () => {
      if (details.open) {
        await open();
        instance.point();
      } else if (switches.place().at === place) switches.point({});
    });
    const link = article.querySelector("header a"), how = article.querySelector("[data-neurons]");
    const [, stack = "self", layer, head] = /^(?:([a-z]+)-)?L0*(\d+)-H0*(\d+)$/.exec(file);
    const page = link && link.getAttribute("href");
    instance.after = () => {
      const { q, k } = instance.place;
      const there = { at: stack, heads: `${layer}.${head}`, q, k };
      if (link) link.setAttribute("href", page + switches.address(there));
      if (how) how.setAttribute("href", page + switches.address({ ...there, neurons: "1" }));
    };
    if (how) instance.after();
    instances.push({
      instance, element: article,
      open: (wanted) => {
        instance.restore(wanted);
        if (details.open) open();
        else details.open = true;
      },
    });
    if (switches.changed()) instance.show();
  };

  /* All heads of a sentence: thumbnails, and the chosen ones large. */
  const startSheet = (sheet) => {
    const tiles = window.headbook.tiles(sheet), { list } = tiles;
    const { sheet: stack, name, src, neurons: files } = sheet.dataset;
    /* Without numbers a map leads to its head. */
    if (!stack) return;
    const box = document.querySelector(`[data-full-of="${stack}"]`);
    const image = sheet.querySelector("image"), still = image.getAttribute("href");
    const data = async () => (await load(src, `sentence-${name}`))[stack];
    let chosen = [], instance = null, neurons = null;

    const head = (found, tile) => ({
      name: tile.name, href: tile.href, map: mapOf(found, list.indexOf(tile)),
      place: tile.head.split(".").map(Number),
      remove: () => choose(chosen.filter((each) => each !== tile)),
    });
    const choose = async (heads, wanted = null) => {
      chosen = heads.slice(0, MOST_HEADS);
      if (!instance) await start();
      tiles.mark(chosen);
      instance.heads = chosen.map((tile) => tile.head).join(",");
      if (wanted) instance.restore(wanted);
      if (wanted && neurons) neurons.open(wanted.neurons === "1");
      await instance.show();
      if (!wanted) instance.point();
    };
    const start = async () => {
      const { texts } = await data();
      const copies = [...new Set(texts)].map((side) => {
        const copy = document.querySelector(`[data-text="${side}"]`).cloneNode(true);
        copy.removeAttribute("data-text");
        return [side, copy];
      });
      const lines = Object.fromEntries(copies.map(([side, copy]) => [side, copy.querySelector(".text")]));
      const told = make("p", { class: "told", "aria-live": "polite" });
      const stage = make("div");
      box.replaceChildren(adder(), ...copies.map(([, copy]) => copy), told, stage);
      instance = new Instance({
        id: stack, home: { q: null, k: null }, told, about: document.querySelector("h1").textContent,
        read: async () => { const found = await data(); return chosen.map((tile) => head(found, tile)); },
        lines: { queries: lines[texts[0]], keys: lines[texts[1]] },
      });
      new Panel(instance, stage);
      if (files) {
        for (const name of ["scores", "neurons"]) await use(name);
        neurons = new window.headbook.Neurons(instance, files);
        box.append(neurons.box);
      }
    };
    const adder = () => {
      const select = make("select");
      select.append(make("option", { value: "" }, "another head"), ...list.map((tile, i) => make("option", { value: String(i) }, tile.name)));
      select.addEventListener("change", () => {
        const tile = list[Number(select.value)];
        if (select.value && !chosen.includes(tile) && chosen.length < MOST_HEADS) choose([...chosen, tile]);
        select.value = "";
      });
      const label = make("label", {}, "Compare with ");
      label.append(select);
      const line = make("p");
      line.append(label);
      return line;
    };
    tiles.follow(async (event, tile) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      await choose([tile]);
      box.scrollIntoView({ block: "nearest" });
    });
    const thumbs = async () => {
      const { state } = switches;
      if (!switches.changed()) { image.setAttribute("href", still); return; }
      const found = await data();
      const views = list.map((_, place) => seen(mapOf(found, place), state.view, state.units));
      image.setAttribute("href", drawing.paintSheet(views, found.heads, state.scale));
    };
    switches.follow(thumbs);
    thumbs();
    instances.push({
      get instance() { return instance || { id: stack }; },
      element: box,
      open: (wanted) => {
        const heads = (wanted.heads || "").split(",").map((text) => list.find((tile) => tile.head === text));
        const there = [...new Set(heads.filter(Boolean))];
        return there.length ? choose(there, wanted) : null;
      },
    });
  };

  /* What the address asks for. */
  const restore = async () => {
    const wanted = switches.place();
    for (const { instance, element, open } of instances) {
      if (instance.id === wanted.at) {
        await open(wanted);
        element.scrollIntoView({ block: "start" });
      }
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    all(".exemplar").forEach(startExemplar);
    all("svg.sheet").forEach(startSheet);
    restore();
  });
  window.addEventListener("hashchange", () => { if (hash().includes("=")) restore(); });
})();
