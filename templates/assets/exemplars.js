"use strict";
/* Attention under every exemplar of a head. */
(() => {
  const { all, one, load, make, hash, Instance, Panel, switches } = window.headbook;
  const { mapOf } = window.headbook.weights;
  /** @type {{ instance: InstanceLike, element: HTMLElement, open: (wanted: Wanted) => void }[]} */
  const instances = [];

  /* What pages leave to scripts: a line that says what is pointed at, and what opens below. */
  /** @type {(article: HTMLElement) => { details: HTMLDetailsElement, stage: HTMLElement,
     statusLine: HTMLElement }} */
  const partsOf = (article) => {
    let details = article.querySelector("details");
    if (!details) {
      details = make("details");
      details.append(make("summary", {}, "Lines, map, ranked weights"));
      article.append(details);
    }
    const stage = make("div", { class: "full", "data-full": "" });
    const statusLine = make("p", { class: "status", "data-status": "", "aria-live": "polite" });
    details.append(stage);
    details.before(statusLine);
    return { details, stage, statusLine };
  };

  /* An exemplar: its text at once, the rest where a reader opens it. */
  /** @type {(article: HTMLElement) => void} */
  const startExemplar = (article) => {
    const { map: place = "", looks, looked, sentence } = article.dataset;
    const { src = "", name = "" } = one("[data-src]").dataset;
    const file = src.slice(src.lastIndexOf("/") + 1, -3);
    const keys = one(".looked .text", article);
    const { details, stage, statusLine } = partsOf(article);
    const instance = new Instance({
      id: place,
      home: { q: Number(looks), k: Number(looked) },
      read: async () => ({ name, map: mapOf((await load(src, file))[place]) }),
      lines: { queries: all(".looking .text", article)[0] ?? keys, keys },
      statusLine, about: `sentence ${sentence}`,
    });
    const open = async () => {
      if (!instance.panel) new Panel(instance, stage);
      await instance.show();
    };
    /* What stands open stands in the address. */
    details.addEventListener("toggle", async () => {
      if (details.open) {
        await open();
        instance.point();
        /* the column it stood in is now below */
        article.scrollIntoView({ block: "nearest", behavior: "instant" });
      } else if (switches.place().at === place) switches.point({});
    });
    const link = article.querySelector("header a"), how = article.querySelector("[data-neurons]");
    const [, stack = "self", layer, head] = /^(?:([a-z]+)-)?L0*(\d+)-H0*(\d+)$/.exec(file) ?? [];
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

  /* What the address asks for. */
  const restore = async () => {
    const wanted = switches.place();
    /* A sentence may stand on the page twice, by two rankings: the first one opens. */
    const found = instances.find(({ instance }) => instance.id === wanted.at);
    if (!found) return;
    const { element, open } = found;
    let section = element.closest("details");
    while (section) {
      section.open = true;
      section = section.parentElement ? section.parentElement.closest("details") : null;
    }
    await open(wanted);
    element.scrollIntoView({ block: "start" });
  };
  document.addEventListener("DOMContentLoaded", () => {
    all(".exemplar").forEach(startExemplar);
    restore();
  });
  window.addEventListener("hashchange", () => { if (hash().includes("=")) restore(); });
})();
