"use strict";
/* A site in one file. Pages, scripts, data and files stand in the document as blocks of text, which
   `headbook.writing.solid` packs and which are opened when something of them is asked for; a page
   takes the place of the body, and the site's scripts run for it as they do in the folder. The address
   holds the page and what its views put there: #/heads/L00-H01.html#view=renorm. */
(() => {
  const FIRST = "index.html", MISSING = "404.html", TABLES = "data.html";
  const TYPES = { csv: "text/csv", json: "application/json", jsonl: "application/json", pdf: "application/pdf", svg: "image/svg+xml" };
  const ABSENT = "Left out of this one file; the folder of the site has it.";
  const OPEN = 12; /* blocks at a time */
  const stored = new Map(); /* where files are, by their addresses in the folder */
  const opened = new Map(); /* bytes of blocks, those asked for last at the end */
  const heights = new Map(); /* how far pages were scrolled, by address in the bar */
  let path = FIRST, home = "", asked = 0, clicked = false, page = new AbortController();

  /* Bytes from letters of base 85, as `headbook.writing.markup.letters` writes them. */
  const LETTERS = [..."0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~"];
  const VALUES = new Uint8Array(128);
  LETTERS.forEach((letter, value) => { VALUES[letter.charCodeAt(0)] = value; });
  const unpacked = (text) => {
    const groups = Math.ceil(text.length / 5), view = new DataView(new ArrayBuffer(4 * groups));
    for (let group = 0; group < groups; group += 1) {
      let number = 0;
      for (let i = 5 * group; i < 5 * group + 5; i += 1) {
        number = 85 * number + (i < text.length ? VALUES[text.charCodeAt(i)] : 84);
      }
      view.setUint32(4 * group, number);
    }
    return new Uint8Array(view.buffer, 0, 4 * groups - (5 * groups - text.length));
  };
  /* What stood before in a block, put back; see `headbook.writing.solid.thinned`. */
  const number = (part) => {
    let value = 0, scale = 1, byte = 128;
    for (; byte > 127; scale *= 128) {
      byte = part.bytes[part.place++];
      value += (byte & 127) * scale;
    }
    return value;
  };
  const whole = (bytes, parts, size) => {
    let begin = 0, done = 0, back = 0;
    const cut = (length) => ({ bytes: bytes.subarray(begin, begin += length), place: 0 });
    const [gaps, lengths, moves] = parts.map(cut), rest = cut(bytes.length);
    const found = new Uint8Array(size);
    const copy = (length) => {
      found.set(rest.bytes.subarray(rest.place, rest.place += length), done);
      done += length;
    };
    while (gaps.place < gaps.bytes.length) {
      copy(number(gaps));
      const end = done + number(lengths), move = number(moves);
      back += move % 2 ? -(move + 1) / 2 : move / 2;
      for (; done < end; done += 1) found[done] = found[done - back];
    }
    copy(size - done);
    return found;
  };
  const block = async ({ text, parts, size }) => {
    const stream = new Blob([unpacked(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return whole(new Uint8Array(await new Response(stream).arrayBuffer()), parts, size);
  };
  const take = (place) => {
    const bytes = opened.get(place) || block(place);
    opened.delete(place);
    opened.set(place, bytes);
    if (opened.size > OPEN) opened.delete(opened.keys().next().value);
    return bytes;
  };
  const text = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  /* A table that stood column by column. */
  const byRow = (bytes, count) => {
    const values = text(bytes).split("\n"), height = values.length / count;
    const row = (at) => Array.from({ length: count }, (_, column) => values[column * height + at]).join(",");
    return new TextEncoder().encode(Array.from({ length: height }, (_, at) => `${row(at)}\n`).join(""));
  };
  const content = async (name) => {
    const { place, start, end, columns } = stored.get(name), bytes = (await take(place)).subarray(start, end);
    return columns ? byRow(bytes, columns) : bytes;
  };
  const read = async (name) => text(await content(name));
  const picture = async (name) => {
    const letters = Array.from(await content(name), (byte) => String.fromCharCode(byte)).join("");
    return `data:image/png;base64,${btoa(letters)}`;
  };
  const keep = (element) => {
    const { files, parts } = element.dataset, columns = JSON.parse(element.dataset.columns);
    const place = { text: element.textContent, parts: JSON.parse(parts), size: 0 };
    for (const [name, length] of JSON.parse(files)) {
      const start = place.size;
      place.size += length;
      stored.set(name, { place, start, end: place.size, columns: columns[name] });
    }
    element.remove();
  };

  /* The page that an address asks for, and what is left for its views. */
  const parted = (hash) => {
    const [, name, state = ""] = /^#\/([^#]*)(#.*)?$/.exec(hash) || ["", hash ? path : FIRST, hash];
    if (stored.has(name) && name.endsWith(".html")) return [name, state];
    return [stored.has(name) ? TABLES : MISSING, ""];
  };
  const link = (hash) => `#/${path}${hash === "#" ? "" : hash}`;
  /* What a link of a page leads to in the folder: from the page itself or from a script. */
  const address = (href) => href.slice(href.startsWith("#/") ? 2 : home.length);

  /* Scripts are allowed by their hashes; data files are values alone. */
  const execute = (code) => {
    const element = document.createElement("script");
    element.textContent = code;
    document.head.append(element);
    element.remove();
  };
  const run = async (src) => {
    const name = address(src);
    if (!stored.has(name)) throw new Error(`cannot load ${name}`);
    const asking = window.headbook, found = await read(name); /* a page may have followed */
    if (name.startsWith("assets/")) execute(found);
    else asking.take(...JSON.parse(found));
  };
  window.oneFile = { hash: () => parted(location.hash)[1], link, run, aimed: (body) => aimed(body) };

  const save = async (name) => {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)] || "application/octet-stream";
    const url = URL.createObjectURL(new Blob([await content(name)], { type }));
    const element = document.createElement("a");
    element.href = url;
    element.download = name.slice(name.lastIndexOf("/") + 1);
    element.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  };

  /* A page of the folder as it stands here: links and pictures. */
  const aim = (element) => {
    const href = element.getAttribute("href");
    if (/^[a-z]+:/i.test(href) || element.matches(".skip")) return;
    const table = href.startsWith("#") ? path : address(href).replace(/#.*/, "");
    const other = table.endsWith(".parquet") ? table.replace(/parquet$/, "csv") : table.replace(/csv\.gz$/, "parquet");
    const name = stored.has(table) || path === TABLES ? table : other;
    const fragment = href.includes("#") ? href.slice(href.indexOf("#")) : "";
    if (stored.has(name)) {
      element.setAttribute("href", `#/${name}${fragment}`);
      if (!name.endsWith(".html")) element.dataset.save = name;
    } else {
      element.removeAttribute("href");
      element.setAttribute("title", ABSENT);
    }
  };
  const aimed = (body) => {
    body.querySelectorAll("a[href]").forEach(aim);
    return body;
  };
  const illustrated = async (body, own) => {
    for (const [selector, name] of [["img", "src"], ["image", "href"]]) {
      for (const element of body.querySelectorAll(`${selector}[${name}]`)) {
        const source = element.getAttribute(name);
        if (!source.startsWith("data:")) element.setAttribute(name, await picture(source.slice(own.length)));
      }
    }
  };
  const prepared = (body) => {
    body.dataset.root = "#/";
    aimed(body);
    if (path === TABLES && document.documentElement.dataset.left) {
      const note = document.createElement("p");
      note.className = "warnings";
      note.textContent = document.documentElement.dataset.left;
      body.querySelector("h1").after(note);
    }
    return body;
  };

  const settle = (state, height) => {
    const target = state.length > 1 && !state.includes("=") && document.getElementById(decodeURIComponent(state.slice(1)));
    for (let outer = target && target.closest("details"); outer; outer = outer.parentElement.closest("details")) outer.open = true;
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
  const show = async (name, height) => {
    page.abort();
    page = new AbortController();
    const mine = asked += 1;
    const parsed = new DOMParser().parseFromString(await read(name), "text/html");
    const sources = [...parsed.querySelectorAll("script")].map((script) => script.getAttribute("src"));
    const own = parsed.body.dataset.root;
    const codes = await Promise.all(sources.map((src) => read(src.slice(own.length))));
    await illustrated(parsed.body, own);
    if (mine !== asked) return;
    path = name;
    home = own;
    document.title = parsed.title;
    document.body.replaceWith(document.adoptNode(prepared(parsed.body)));
    codes.forEach(execute);
    document.dispatchEvent(new Event("DOMContentLoaded"));
    document.documentElement.hidden = false;
    begin();
    settle(parted(location.hash)[1], height);
  };

  const follow = (event) => {
    const [name, state] = parted(location.hash);
    const before = new URL(event.oldURL).hash;
    if (location.hash && !location.hash.startsWith("#/")) history.replaceState(null, "", link(state));
    if (name === path) { settle(state); return; }
    heights.set(before, scrollY);
    show(name, clicked ? 0 : heights.get(location.hash) || 0);
    clicked = false;
  };
  const click = (event) => {
    const element = event.target.closest("a[href]");
    if (!element || event.defaultPrevented) return;
    if (element.dataset.save) {
      event.preventDefault();
      save(element.dataset.save);
      return;
    }
    clicked = true;
    if (element.getAttribute("href") === location.hash) settle(parted(location.hash)[1]);
  };

  document.documentElement.hidden = parted(location.hash)[0] !== FIRST || location.hash.startsWith("#/");
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", click);
  document.addEventListener("DOMContentLoaded", () => {
    history.scrollRestoration = "manual";
    document.querySelectorAll("script[data-files]").forEach(keep);
    /* What scripts of a page hear on window and document ends with the page. */
    for (const target of [window, document]) {
      const add = target.addEventListener.bind(target);
      target.addEventListener = (type, call, options) => {
        const given = typeof options === "object" ? options : { capture: Boolean(options) };
        add(type, call, { ...given, signal: page.signal });
      };
    }
    show(parted(location.hash)[0], 0).finally(() => { document.documentElement.hidden = false; });
  }, { once: true });
})();
