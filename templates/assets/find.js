"use strict";
/* Search on the overview: parts of words, whatever their case and accents, in questions, heads,
   metrics, pages, sentences and tokens. Data are loaded when the box is entered. */
(() => {
  const { all, make, load, folded, root, hash, link } = window.headbook;
  const SHOWN = 10, WINDOW = 220, BEFORE = 60;
  const PLACE = /^(?:(encoder|decoder|cross|self)(?=[\s\d])\s*)?(?:(l|layer)?\s*(\d+))?[\s·.,:]*(?:(h|head)?\s*(\d+))?$/;

  /* A head by its place: "L2 H3", "layer 2 head 3", "2.3", "decoder L2". */
  const placeOf = (query) => {
    const [, stack, l, layer, h, head] = query.match(PLACE) || [];
    if (!(l || h || (layer !== undefined && head !== undefined))) return null;
    return { stack, layer: layer && Number(layer), head: head && Number(head) };
  };
  const sits = (place, { at }) => place && at && (!place.stack || place.stack === at.stack)
    && (place.layer === undefined || place.layer === at.layer) && (place.head === undefined || place.head === at.head);

  /* What is searched, by kind: titles, addresses and notes beside them. */
  const entry = (title, href, note = "", rest = {}) => {
    const heading = folded(title);
    return { title, href, note, heading, text: `${heading}\n${folded(note)}`, ...rest };
  };
  const headEntry = (words) => ([name, href, stack, layer, label, looks, relation]) => {
    const spelled = words[relation[0].split(" ")[0]] || "";
    const said = [label[0], looks[0] && `looks most at ${looks[0]}`, relation[0] && `best at ${relation[0]}${spelled && ` (${spelled})`}`];
    return entry(name, href, said.filter(Boolean).join("; "), { at: { stack, layer, head: Number(name.split("H").pop()) } });
  };
  const times = (n, one) => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;
  const tokenEntry = (sentences) => ([name, count, within, numbers, typed]) => {
    const own = numbers.map((number) => [`${number}`, sentences.get(number)]);
    const href = typed ? `tokens.html#${new URLSearchParams({ find: name })}` : own[0][1];
    const note = count ? `${times(count, "time")} in ${times(within, "sentence")}` : "in other sentences only";
    return entry(name, href, note, { links: own, more: within - own.length });
  };
  const prepare = async () => {
    const [found, heads] = await Promise.all([
      load(`${root()}data/find.js`, "find"),
      document.querySelector("[data-finder]").dataset.heads ? load(`${root()}data/headlist.js`, "headlist") : { heads: [] },
    ]);
    const addresses = new Map(found.sentences.map(([number, href]) => [number, href]));
    const plain = ([title, href, note]) => entry(title, href, note);
    const kinds = [
      ["Questions", found.questions.map(plain)],
      ["Heads", heads.heads.map(headEntry(found.relations))],
      ["Metrics", found.metrics.map(plain)],
      ["Pages", found.pages.map(plain)],
      ["Sentences", found.sentences.map(([number, href, text, other]) => entry(text, href, other, { number }))],
      ["Tokens", found.tokens.map(tokenEntry(addresses))],
    ];
    return { kinds, cut: found.total > found.sentences.length && found.sentences.length };
  };

  /* All words must be there; where they stand together, in a title or at its start, comes first. */
  const search = (entries, query, words, place) => {
    const ranks = [[], [], [], []];
    for (const each of entries) {
      if (sits(place, each)) ranks[0].push(each);
      else if (words.every((word) => each.text.includes(word))) {
        const at = each.heading.indexOf(query);
        ranks[at === 0 ? 0 : at > 0 ? 1 : each.text.includes(query) ? 2 : 3].push(each);
      }
    }
    return ranks.flat();
  };

  /* Letters of a text, and whether each was found; folded letters can be more or fewer. */
  const lettersOf = (text, words) => {
    const letters = [...text], from = [], on = new Uint8Array(letters.length);
    const bare = letters.map((letter, i) => {
      const own = folded(letter);
      for (let n = 0; n < own.length; n += 1) from.push(i);
      return own;
    });
    const joined = bare.join("");
    for (const word of words) {
      for (let at = joined.indexOf(word); at >= 0; at = joined.indexOf(word, at + word.length)) {
        for (let n = 0; n < word.length; n += 1) on[from[at + n]] = 1;
      }
    }
    bare.forEach((own, i) => { if (!own && i) on[i] = on[i - 1]; }); /* accents go with their letter */
    return { letters, on };
  };
  const fill = (element, text, words) => {
    const { letters, on } = lettersOf(text, words);
    const first = on.indexOf(1);
    const start = letters.length > WINDOW && first > BEFORE ? first - BEFORE : 0;
    const end = Math.min(letters.length, start + WINDOW);
    if (start) element.append("…");
    for (let i = start; i < end;) {
      let next = i;
      while (next < end && on[next] === on[i]) next += 1;
      const part = letters.slice(i, next).join("");
      element.append(on[i] ? make("mark", {}, part) : part);
      i = next;
    }
    if (end < letters.length) element.append("…");
    return element;
  };
  const line = (each, words, place) => {
    const item = make("li");
    const hit = make("a", { href: root() + each.href, dir: "auto", class: "hit" });
    if (sits(place, each)) hit.append(make("mark", {}, each.title));
    else fill(hit, each.title, words);
    if (each.number) item.append(make("small", {}, `${each.number} `));
    item.append(hit);
    if (each.note) item.append(" ", fill(make("small", { dir: "auto" }), each.note, words));
    if (each.links?.length) {
      item.append(" ");
      const small = make("small", {}, each.links.length > 1 ? "sentences" : "sentence");
      for (const [text, href] of each.links) small.append(" ", make("a", { href: root() + href }, text));
      if (each.more > 0) small.append(" …");
      item.append(small);
    }
    return item;
  };

  const group = (title, found, words, place) => {
    const section = make("section");
    const heading = make("h2", {}, title);
    heading.append(" ", make("small", {}, found.length.toLocaleString("en-US")));
    const list = make("ul");
    const add = (some) => list.append(...some.map((each) => line(each, words, place)));
    add(found.slice(0, SHOWN));
    section.append(heading, list);
    if (found.length > SHOWN) {
      const button = make("button", { type: "button" }, `Show all ${found.length.toLocaleString("en-US")} ${title.toLowerCase()}`);
      button.addEventListener("click", () => {
        add(found.slice(SHOWN));
        button.remove();
        list.children[SHOWN].querySelector("a").focus();
      });
      section.append(button);
    }
    return section;
  };

  const start = (box) => {
    const input = box.querySelector("input"), status = box.querySelector("[role=status]");
    const results = box.querySelector("[data-results]");
    let ready = null, writing = 0;
    const say = ({ cut }, found) => {
      const counts = found.map(([title, some]) => `${title} ${some.length.toLocaleString("en-US")}`);
      const limit = cut ? ` Only the first ${cut.toLocaleString("en-US")} sentences are searched.` : "";
      status.textContent = (counts.join(", ") || "Nothing found") + "." + limit;
    };
    const show = async () => {
      ready ||= prepare();
      const data = await ready;
      const query = folded(input.value).trim().replace(/\s+/g, " ");
      const words = [...new Set(query.split(" "))].filter(Boolean), place = placeOf(query);
      const found = query ? data.kinds.map(([title, entries]) => [title, search(entries, query, words, place)]).filter(([, some]) => some.length) : [];
      results.replaceChildren(...found.map(([title, some]) => group(title, some, words, place)));
      if (query) say(data, found); else status.textContent = "";
    };
    const typed = () => {
      clearTimeout(writing);
      writing = setTimeout(() => {
        const state = input.value.trim() ? `#${new URLSearchParams({ find: input.value.trim() })}` : "";
        if (box.isConnected) history.replaceState(null, "", link(state) || location.href.split("#")[0]);
      }, 250);
      return show();
    };
    const read = () => {
      const wanted = new URLSearchParams(hash().slice(1)).get("find");
      if (wanted === null) return;
      input.value = wanted;
      box.scrollIntoView();
      show();
    };
    box.addEventListener("keydown", (event) => {
      const stops = [input, ...all("a.hit, button", results)];
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], now = stops.indexOf(document.activeElement);
      if (step && now >= 0) {
        event.preventDefault();
        stops[Math.min(Math.max(now + step, 0), stops.length - 1)].focus();
      } else if (event.key === "Escape" && input.value) {
        event.preventDefault();
        input.value = "";
        input.focus();
        typed();
      }
    });
    input.addEventListener("focus", () => { ready ||= prepare(); });
    input.addEventListener("input", typed);
    window.addEventListener("hashchange", read);
    read();
    if (input.value) show(); /* what the browser has kept */
  };

  document.addEventListener("DOMContentLoaded", () => all("[data-finder]").forEach(start));
})();
