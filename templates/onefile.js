"use strict";
/* A site in one file. Pages, scripts, data and files stand in the document as blocks of text, which
   `headbook.site.single_file` compresses and which are opened when something of them is asked
   for; a page takes the place of the body, and the site's scripts run for it as they do in the
   folder. The address holds the page and what its views put there:
   #/heads/L00-H01.html#view=renorm. */
(() => {
  const FIRST = "index.html", MISSING = "404.html", TABLES = "data.html";
  /** @type {Lookup<string>} */
  const TYPES = {
    csv: "text/csv",
    json: "application/json",
    jsonl: "application/json",
    svg: "image/svg+xml",
  };
  const ABSENT = "Left out of this one file; the folder of the site has it.";
  const OPEN = 12; /* blocks at a time */
  /** @typedef {{ text: string }} Block */
  /** @typedef {{ place: Block, start: number, end: number }} Stored */
  /** @type {Map<string, Stored>} */
  const stored = new Map(); /* where files are, by their addresses in the folder */
  /** @type {Map<Block, Promise<Uint8Array<ArrayBuffer>>>} */
  const opened = new Map(); /* bytes of blocks, those asked for last at the end */
  /** @type {Map<string, number>} */
  const heights = new Map(); /* how far pages were scrolled, by address in the bar */
  let path = FIRST, home = "", asked = 0, clicked = false, page = new AbortController();

  /** @type {(place: Block) => Promise<Uint8Array<ArrayBuffer>>} */
  const take = (place) => {
    const bytes = opened.get(place) || window.unpack(place.text);
    opened.delete(place);
    opened.set(place, bytes);
    const [oldest] = opened.keys();
    if (opened.size > OPEN) opened.delete(oldest);
    return bytes;
  };
  /** @type {(bytes: Uint8Array) => string} */
  const text = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  /** @type {(name: string) => Promise<Uint8Array<ArrayBuffer>>} */
  const content = async (name) => {
    const file = stored.get(name);
    if (!file) throw new Error(`cannot load ${name}`);
    return (await take(file.place)).subarray(file.start, file.end);
  };
  /** @type {(name: string) => Promise<string>} */
  const read = async (name) => text(await content(name));
  /** @type {(name: string) => Promise<string>} */
  const picture = async (name) => {
    const letters = Array.from(await content(name), (byte) => String.fromCharCode(byte)).join("");
    return `data:image/png;base64,${btoa(letters)}`;
  };
  /** @type {(element: HTMLScriptElement) => void} */
  const keep = (element) => {
    const { files = "[]" } = element.dataset, place = { text: element.textContent };
    let start = 0;
    for (const [name, length] of JSON.parse(files)) {
      stored.set(name, { place, start, end: start + length });
      start += length;
    }
    element.remove();
  };

  /* The page that an address asks for, and what is left for its views; of the address of a row
     the table. */
  /** @type {(hash: string) => [page: string, state: string]} */
  const parted = (hash) => {
    const [, name, state = ""] = /^#\/([^#?]*)(?:\?[^#]*)?(#.*)?$/.exec(hash)
      || ["", hash ? path : FIRST, hash];
    if (stored.has(name) && name.endsWith(".html")) return [name, state];
    return [stored.has(name) ? TABLES : MISSING, ""];
  };
  /** @type {OneFile["link"]} */
  const link = (hash) => `#/${path}${hash === "#" ? "" : hash}`;
  /* What a link of a page leads to in the folder: from the page itself or from a script. */
  /** @type {(href: string) => string} */
  const address = (href) => href.slice(href.startsWith("#/") ? 2 : home.length);

  /* Scripts are allowed by their hashes; data files are values alone. */
  /** @type {(code: string) => void} */
  const execute = (code) => {
    const element = document.createElement("script");
    element.textContent = code;
    document.head.append(element);
    element.remove();
  };
  /** @type {OneFile["run"]} */
  const run = async (src) => {
    const name = address(src);
    if (!stored.has(name)) throw new Error(`cannot load ${name}`);
    const asking = window.headbook, found = await content(name); /* a page may have followed */
    if (name.startsWith("assets/")) execute(text(found));
    else {
      const [data, value] = asking.revived(found);
      asking.take(data, value);
    }
  };
  window.oneFile = {
    hash: () => parted(location.hash)[1],
    query: () => /\?[^#]*/.exec(location.hash)?.[0] ?? "",
    link,
    run,
    aimed: (body) => aimed(body),
  };

  /** @type {(name: string) => Promise<void>} */
  const save = async (name) => {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)] || "application/octet-stream";
    const url = URL.createObjectURL(new Blob([await content(name)], { type }));
    const element = document.createElement("a");
    element.href = url;
    element.download = name.slice(name.lastIndexOf("/") + 1);
    element.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  };

  /* A page of the folder as it stands here: links and pictures. A table that is not here leads to
     its CSV, or to the page that lists what was left out. */
  /** @type {(element: HTMLAnchorElement) => void} */
  const aim = (element) => {
    const href = element.getAttribute("href") ?? "";
    if (/^[a-z]+:/i.test(href) || element.matches(".skip")) return;
    const target = href.startsWith("#") ? path : address(href).replace(/[?#].*/, "");
    const others = path !== TABLES && target.startsWith("data/")
      ? [target.replace(/parquet$/, "csv"), TABLES]
      : [];
    const name = [target, ...others].find((each) => stored.has(each));
    const rest = href.slice(href.search(/[?#]|$/));
    if (target.endsWith(".pdf")) element.remove();
    else if (name) {
      element.setAttribute("href", `#/${name}${rest}`);
      if (!name.endsWith(".html")) element.dataset.save = name;
    } else {
      element.removeAttribute("href");
      element.setAttribute("title", ABSENT);
    }
  };
  /** @type {OneFile["aimed"]} */
  const aimed = (body) => {
    for (const element of body.querySelectorAll("a")) {
      if (element.hasAttribute("href")) aim(element);
    }
    return body;
  };
  /** @type {(body: HTMLElement, own: string) => Promise<void>} */
  const illustrated = async (body, own) => {
    for (const [selector, name] of [["img", "src"], ["image", "href"]]) {
      for (const element of body.querySelectorAll(`${selector}[${name}]`)) {
        const source = element.getAttribute(name) ?? "";
        if (source.startsWith("data:")) continue;
        const file = source.slice(own.length);
        if (stored.has(file)) element.setAttribute(name, await picture(file));
        else element.removeAttribute(name); /* the page's scripts draw it */
      }
    }
  };
  /** @type {(body: HTMLElement) => HTMLElement} */
  const prepared = (body) => {
    body.dataset.root = "#/";
    aimed(body);
    if (path === TABLES) {
      const note = document.createElement("p");
      note.className = "warnings";
      note.textContent = document.documentElement.dataset.left ?? "";
      body.querySelector("h1")?.after(note);
    }
    return body;
  };

  /** @type {(state: string, height?: number) => void} */
  const settle = (state, height) => {
    const id = state.length > 1 && !state.includes("=") ? decodeURIComponent(state.slice(1)) : "";
    const target = document.getElementById(id);
    let outer = target?.closest("details");
    while (outer) {
      outer.open = true;
      outer = outer.parentElement?.closest("details");
    }
    if (target) {
      target.scrollIntoView({ behavior: "instant" });
      target.focus({ preventScroll: true });
    } else if (height !== undefined) scrollTo({ top: height, behavior: "instant" });
  };

  /* The keyboard begins at the top, as on a page that was loaded. */
  const begin = () => {
    document.body.tabIndex = -1;
    document.body.focus({ preventScroll: true });
    document.body.removeAttribute("tabindex");
  };

  /* Put a page in the place of the one before, whose listeners end. */
  /** @type {(name: string, height?: number) => Promise<void>} */
  const show = async (name, height) => {
    page.abort();
    page = new AbortController();
    const mine = asked += 1;
    const parsed = new DOMParser().parseFromString(await read(name), "text/html");
    const sources = [...parsed.querySelectorAll("script")].map((script) =>
      script.getAttribute("src") ?? "");
    const { root: own = "" } = parsed.body.dataset;
    const codes = await Promise.all(sources.map((src) => read(src.slice(own.length))));
    await illustrated(parsed.body, own);
    if (mine !== asked) return;
    path = name;
    home = own;
    document.title = parsed.title;
    const sheets = [...parsed.querySelectorAll("link[rel=stylesheet]")].map((each) =>
      each.getAttribute("href")?.replace(/^.*\/|\.css$/g, ""));
    for (const style of document.querySelectorAll("style[data-sheet]"))
      style.setAttribute("media", "not all");
    for (const name of sheets) { /* in the order of the page, which decides between rules */
      const style = document.querySelector(`style[data-sheet="${name}"]`);
      style?.setAttribute("media", "all");
      if (style) document.head.append(style);
    }
    document.body.replaceWith(document.adoptNode(prepared(parsed.body)));
    codes.forEach(execute);
    document.dispatchEvent(new Event("DOMContentLoaded"));
    document.documentElement.hidden = false;
    begin();
    settle(parted(location.hash)[1], height);
  };

  /** @type {(event: HashChangeEvent) => void} */
  const follow = (event) => {
    const [name, state] = parted(location.hash);
    const before = new URL(event.oldURL).hash;
    if (location.hash && !location.hash.startsWith("#/"))
      history.replaceState(null, "", link(state));
    if (name === path) { settle(state); return; }
    heights.set(before, scrollY);
    show(name, clicked ? 0 : heights.get(location.hash) || 0);
    clicked = false;
  };
  /** @type {(event: Event) => void} */
  const click = (event) => {
    /** @type {HTMLAnchorElement | null} */
    const element = /** @type {Element} */ (event.target).closest("a[href]");
    if (!element || event.defaultPrevented) return;
    if (element.dataset.save) {
      event.preventDefault();
      save(element.dataset.save);
      return;
    }
    clicked = true;
    if (element.getAttribute("href") === location.hash) settle(parted(location.hash)[1]);
  };

  document.documentElement.hidden =
    parted(location.hash)[0] !== FIRST || location.hash.startsWith("#/");
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", click);
  document.addEventListener("DOMContentLoaded", () => {
    history.scrollRestoration = "manual";
    for (const element of document.querySelectorAll("script")) {
      if (element.dataset.files) keep(element);
    }
    /* What scripts of a page hear on window and document ends with the page. */
    for (const target of [window, document]) {
      const add = target.addEventListener.bind(target);
      /** @type {EventTarget["addEventListener"]} */
      target.addEventListener = (type, call, options) => {
        const given = typeof options === "object" ? options : { capture: Boolean(options) };
        if (call) add(type, call, { ...given, signal: page.signal });
      };
    }
    show(parted(location.hash)[0], 0).finally(() => { document.documentElement.hidden = false; });
  }, { once: true });
})();
