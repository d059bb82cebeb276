"use strict";
/* What every page adds when scripts may run: menu, search, contents, light or dark. Scripts of
   some pages stand beside it and use what `headbook` holds. Without them pages are complete and
   still. No fetch, no modules: it works from disk. Text from outside goes into the page through
   textContent alone. */
(() => {
  const root = () => document.body.dataset.root ?? "";
  /** @type {All} */
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));
  /** @type {One} */
  const one = (selector, inside = document) => {
    const [found] = all(selector, inside);
    if (!found) throw new Error(`nothing here is ${selector}`);
    return found;
  };
  /** @type {Make} */
  const make = (name, attributes = {}, text = "") => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    element.textContent = text;
    return element;
  };

  /* An element of a picture in lines. The name of such elements is an address, which the parser
     of pages knows. */
  const parser = new DOMParser();
  const { namespaceURI } = one("svg", parser.parseFromString("<svg></svg>", "text/html"));
  /** @type {Draw} */
  const svg = (name, attributes = {}, text = "") => {
    const element = /** @type {any} */ (document.createElementNS(namespaceURI, name));
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== "") element.textContent = text;
    return element;
  };

  /* Data files call headbook.take(name, value), or the other one with the value compressed. */
  /* A value from its JSON; of bytes that stand behind the JSON's line this says where. */
  /** @type {Headbook["revived"]} */
  const revived = (content) => {
    const line = content.indexOf(10), end = line < 0 ? content.length : line;
    const text = new TextDecoder().decode(content.subarray(0, end));
    if (line < 0) return JSON.parse(text);
    const behind = content.subarray(line + 1);
    return JSON.parse(text, (_, value) => (
      Array.isArray(value?.bytes) ? behind.slice(...value.bytes) : value));
  };
  /** @type {(text: string) => Promise<unknown>} */
  const unpacked = async (text) => {
    await use("gunzip");
    return revived(await window.unpack(text));
  };
  /** @type {Map<string, any>} */
  const taken = new Map(); /* values, or promises of them */
  /** @type {Pick<Headbook, "take" | "packed" | "revived">} */
  const taking = {
    revived,
    take: (name, value) => taken.set(name, value),
    packed: (name, text) => taken.set(name, unpacked(text)),
  };
  window.headbook = /** @type {Headbook} */ (taking); /* the rest follows, here and in scripts */
  /** @type {Map<string, Promise<void>>} */
  const scripts = new Map();
  /** @type {(src: string) => Promise<void>} */
  const added = (src) => new Promise((resolve, reject) => {
    const element = make("script", { src });
    element.onload = () => resolve();
    element.onerror = () => reject(new Error(`cannot load ${src}`));
    document.head.append(element);
  });
  /* What the address holds of a page's view, and the address with another one. In one file all
     pages have one address, and data stands in it. */
  /** @type {Pick<OneFile, "hash" | "link" | "run">} */
  const folder = { hash: () => location.hash, link: (hash) => hash, run: added };
  const { hash, link, run: fetched } = window.oneFile || folder;
  /** @type {(src: string) => Promise<void>} */
  const run = (src) => {
    const known = scripts.get(src) ?? fetched(src);
    scripts.set(src, known);
    return known;
  };
  /** @type {Headbook["use"]} */
  const use = (name) => run(`${root()}assets/${name}.js`);
  /** @type {Headbook["load"]} */
  const load = async (src, name) => {
    if (!taken.has(name)) await run(src);
    return taken.get(name);
  };
  /* A file for the reader to keep. */
  /** @type {Headbook["offer"]} */
  const offer = (name, type, text) => {
    const href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10000);
  };
  /** @type {Headbook["targetOf"]} */
  const targetOf = ({ target }) => /** @type {HTMLElement} */ (target);
  /* A text from outside inside a sentence of ours, whatever its direction. */
  /** @type {Headbook["apart"]} */
  const apart = (text) => make("bdi", {}, text);
  /* Of places {x, y} the one nearest to a point, within reach; undefined where none is. */
  const REACH = 12; /* pixels beside a mark that still mean it */
  /** @type {Headbook["nearest"]} */
  const nearest = (places, x, y) => {
    /** @type {(each: Point) => number} */
    const away = (each) => Math.hypot(each.x - x, each.y - y);
    return places.filter((each) => away(each) <= REACH).sort((a, b) => away(a) - away(b))[0];
  };
  /* For searches: accents and case do not count. */
  /** @type {Headbook["folded"]} */
  const folded = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  Object.assign(window.headbook, {
    root, all, one, make, svg, load, use, offer, hash, link, apart, folded, targetOf, REACH,
    nearest,
  });

  /* Light, dark, or as the system has it. */
  const THEMES = ["system", "light", "dark"];
  const remembered = () => {
    try { return localStorage.getItem("headbook-theme") || "system"; } catch { return "system"; }
  };
  /** @type {(button: HTMLElement) => void} */
  const nameTheme = (button) => {
    const label = button.firstElementChild ?? make("span", { class: "hidden" });
    button.append(label);
    label.textContent = `Theme: ${remembered()}`;
    button.title = `Theme: ${remembered()}`;
  };
  /** @type {(theme: string) => void} */
  const setTheme = (theme) => {
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("headbook-theme", theme); } catch { /* private windows */ }
    all("[data-theme-switch]").forEach(nameTheme);
  };
  document.documentElement.dataset.theme = remembered();
  /* Paper is light, for what scripts draw, too. */
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.dataset.theme = remembered();
  });
  /** @type {(button: HTMLElement) => void} */
  const startTheme = (button) => {
    nameTheme(button);
    button.addEventListener("click", () => {
      const now = THEMES.indexOf(document.documentElement.dataset.theme ?? "");
      setTheme(THEMES[(now + 1) % THEMES.length]);
    });
  };

  /* A number opens its row in place: the script is loaded with the first. A link without the
     line of a row, or a key that opens another window, leads to the table as without scripts. */
  document.addEventListener("click", async (event) => {
    const number = targetOf(event).closest("a.n");
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (!/\?row=\w+:\d+&/.test(number?.getAttribute("href") ?? "")) return;
    event.preventDefault();
    await use("rows");
    await window.headbook.showRow(/** @type {Element} */ (number));
  }, true);

  /* Pictures without a file of their own are saved as they stand, black on white. */
  /** @type {(figure: HTMLElement) => void} */
  const startPicture = (figure) => {
    const picture = figure.querySelector("svg"), tools = figure.querySelector(".tools");
    if (!picture || !tools || tools.querySelector("a[href$='.svg']")) return;
    const button = make("button", { type: "button" }, "SVG");
    button.addEventListener("click", () => {
      const copy = /** @type {SVGElement} */ (picture.cloneNode(true));
      copy.prepend(svg("rect", { width: "100%", height: "100%", fill: "white" }));
      offer(
        `${figure.id}.svg`,
        "image/svg+xml",
        new XMLSerializer().serializeToString(copy).replaceAll('"currentColor"', '"black"'),
      );
    });
    tools.append(button);
  };

  /* What opens in the header closes on Escape and on a click elsewhere. */
  /** @type {(box: HTMLDetailsElement) => void} */
  const startDrop = (box) => {
    document.addEventListener("click", (event) => {
      if (!box.contains(targetOf(event))) box.open = false;
    });
    box.addEventListener("keydown", ({ key }) => {
      if (key !== "Escape") return;
      box.open = false;
      one("summary", box).focus();
    });
    box.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !box.contains(relatedTarget)) box.open = false;
    });
  };

  /* Contents mark the part that is read, and keep its link in sight. */
  /** @type {(box: HTMLElement) => void} */
  const startContents = (box) => {
    const links = all("a", box);
    const parts = links.map((each) => document.getElementById(each.href.split("#").at(-1) ?? ""));
    let waiting = 0;
    /** @type {HTMLElement | null} */
    let marked = null;
    const mark = () => {
      waiting = 0;
      const edge = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) + 24;
      const end = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
      const place = parts.findLastIndex(
        (part) => part && part.getBoundingClientRect().top <= (end ? innerHeight : edge),
      );
      const now = links[Math.max(place, 0)];
      if (now === marked) return;
      if (marked) marked.removeAttribute("aria-current");
      marked = now;
      now.setAttribute("aria-current", "true");
      const { left, right, top, bottom } = now.getBoundingClientRect(),
        frame = box.getBoundingClientRect();
      if (left < frame.left || right > frame.right) box.scrollLeft += left - frame.left - 16;
      if (top < frame.top || bottom > frame.bottom)
        box.scrollTop += top - frame.top - frame.height / 2;
    };
    const soon = () => { waiting ||= requestAnimationFrame(mark); };
    window.addEventListener("scroll", soon, { passive: true });
    window.addEventListener("resize", soon);
    mark();
  };

  /* Search: script and data are loaded when the field is entered; "/" leads there. */
  const FIELD = {
    type: "text", id: "find", role: "combobox", "aria-label": "Search this site",
    "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list",
    "aria-describedby": "found-count", "aria-keyshortcuts": "/", autocomplete: "off",
    spellcheck: "false", placeholder: "Search: L2 H8, obj, bank …",
  };
  const LIST = { id: "found", role: "listbox", "aria-label": "What was found" };
  /** @type {(box: HTMLElement) => void} */
  const startFinder = (box) => {
    const input = make("input", FIELD);
    const found = make("div", { class: "found", "data-found": "", hidden: "" });
    found.append(make("p", { id: "found-count", role: "status" }), make("div", LIST));
    box.append(input, found);
    input.addEventListener("focus", async () => {
      await use("search");
      window.headbook.finder(box);
    }, { once: true });
    document.addEventListener("keydown", (event) => {
      const { key, ctrlKey, altKey, metaKey } = event;
      if (key !== "/" || ctrlKey || altKey || metaKey) return;
      if (targetOf(event).closest("input, select, textarea")) return;
      event.preventDefault();
      input.focus();
    });
  };

  /* One Tab stop for many links; arrow keys move between them, Home and End along a row.
     `columns`: links in a row, or a function that gives them where they follow the width of the
     page. */
  /** @type {Headbook["rove"]} */
  const rove = (box, links, columns) => {
    /** @type {(next: Focusable) => void} */
    const stop = (next) => links.forEach((each) => { each.tabIndex = each === next ? 0 : -1; });
    stop(links.find((each) => each.hasAttribute("aria-current")) || links[0]);
    box.addEventListener("focusin", (event) => {
      const target = targetOf(event);
      if (links.includes(target)) stop(target);
    });
    box.addEventListener("keydown", (event) => {
      const now = links.findIndex((each) => each === document.activeElement);
      if (now < 0 || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
      const n = typeof columns === "function" ? columns() : columns, start = now - (now % n);
      const end = Math.min(start + n, links.length) - 1;
      const steps = [Math.max(now - 1, start), Math.min(now + 1, end)];
      const { direction } = getComputedStyle(links[now].parentElement ?? box);
      const [left, right] = direction === "rtl" ? steps.reverse() : steps;
      /** @type {Lookup<number>} */
      const moves = {
        ArrowLeft: left, ArrowRight: right,
        ArrowUp: now - n, ArrowDown: now + n, Home: start, End: end,
      };
      const next = moves[event.key];
      if (next === undefined) return;
      event.preventDefault();
      if (links[next]) links[next].focus();
    });
  };
  window.headbook.rove = rove;
  /** @type {(list: HTMLElement) => void} */
  const startTiles = (list) => {
    const links = all("a:not(.n)", list);
    for (const number of all("a.n", list)) number.tabIndex = -1; /* its tile is the tab stop */
    const inRow = () => links.filter((each) => each.offsetTop === links[0].offsetTop).length;
    if (links.length) rove(list, links, inRow);
  };

  /* Closed parts wait in a file until they are opened. */
  /** @type {(box: HTMLElement) => void} */
  const startLater = (box) => {
    const details = box.closest("details"), { later, src = "" } = box.dataset;
    const fill = async () => {
      const file = src.slice(src.lastIndexOf("/") + 1, -3);
      const parts = await load(src, `later-${file}`);
      const { body } = parser.parseFromString(parts[Number(later)], "text/html");
      box.replaceChildren(...(window.oneFile ? window.oneFile.aimed(body) : body).childNodes);
      all("figure.chart", box).forEach(startPicture);
    };
    if (!details || details.open) fill();
    else details.addEventListener("toggle", fill, { once: true });
  };

  /* Tokens of a text without marks stand together where blanks alone part them; those without a
     number follow the one before. */
  /** @type {(run: HTMLElement) => void} */
  const parted = (run) => {
    const [first, ...others] = (run.textContent ?? "").split(" ");
    run.textContent = first;
    run.after(...others.flatMap((token) => [" ", make("i", {}, token)]));
  };
  /** @type {(text: HTMLElement) => void} */
  const startText = (text) => {
    all("i:not([class])", text).forEach(parted);
    let place = 0;
    for (const token of all("i", text)) {
      place = Number(token.dataset.i ?? place);
      token.dataset.i = String(place);
      token.classList.add("t");
      place += 1;
    }
  };

  /* Marks of charts show their label when a pointer rests on them. */
  document.addEventListener("pointerover", ({ target }) => {
    const mark = target instanceof Element ? target.closest("svg a[aria-label]") : null;
    if (mark === null || mark.querySelector("title") !== null) return;
    const title = document.createElementNS(mark.namespaceURI, "title");
    title.textContent = mark.getAttribute("aria-label");
    mark.prepend(title);
  });

  document.addEventListener("DOMContentLoaded", () => {
    all(".text").forEach(startText);
    all("[data-later]").forEach(startLater);
    for (const part of all(".js, .chooser, [data-theme-switch]")) part.hidden = false;
    all("[data-theme-switch]").forEach(startTheme);
    all("figure.chart").forEach(startPicture);
    all("details[data-drop]").forEach(startDrop);
    all("[data-finder]").forEach(startFinder);
    all(".contents").forEach(startContents);
    all(".head-maps, .near").forEach(startTiles);
  });
})();
