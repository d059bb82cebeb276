"use strict";
/* The maps of all heads of a sentence as links. Of many heads the page has a link a layer only: one
   of these moves from map to map, by pointer or keys, and is in every place that map's link. */
(() => {
  const { all, make, rove } = window.headbook;
  const nameOf = (link) => link.getAttribute("aria-label");

  /* A link each. `list`: the heads in the order of the data, {name, href, head}. */
  class Links {
    constructor(sheet) {
      this.links = all("a", sheet);
      this.list = this.links.map((link) => ({ name: nameOf(link), href: link.getAttribute("href"), head: link.dataset.head }));
      const [first] = this.list[0].head.split(".");
      rove(sheet, this.links, this.list.filter(({ head }) => head.startsWith(`${first}.`)).length);
      sheet.addEventListener("pointerover", ({ target }) => {
        const link = target.closest("a");
        sheet.parentElement.title = link ? nameOf(link) : "";
      });
    }

    /* Show which heads are chosen. */
    mark(chosen) {
      this.links.forEach((link, i) => current(link, chosen.includes(this.list[i])));
    }

    /* Call with the event and the head when a link is followed. */
    follow(call) {
      this.links.forEach((link, i) => link.addEventListener("click", (event) => call(event, this.list[i])));
    }
  }

  /* One link for all. */
  class Moving {
    constructor(sheet) {
      this.sheet = sheet;
      this.image = sheet.querySelector("image");
      this.columns = Number(sheet.dataset.heads);
      const layers = all("a", sheet);
      this.side = Number(sheet.querySelector("image").getAttribute("width")) / this.columns;
      this.list = layers.flatMap((link) => Array.from({ length: this.columns }, (_, head) => ({
        name: nameOf(link).replace(/H0$/, `H${head}`),
        href: link.getAttribute("href").replace(/H00\.html$/, `H${String(head).padStart(2, "0")}.html`),
        head: link.dataset.head.replace(/0$/, head),
      })));
      [this.link] = layers;
      layers.slice(1).forEach((link) => link.remove());
      this.chosen = [];
      this.place = 0;
      this.link.setAttribute("aria-describedby", sheet.dataset.told);
      this.told = make("p", { class: "status", "aria-live": "polite" });
      sheet.parentElement.after(this.told);
      this.start();
    }

    get now() { return this.list[this.place]; }

    go(place) {
      this.place = place;
      const { name, href, head } = this.now, { link } = this, [rect] = link.children;
      link.setAttribute("aria-label", name);
      link.setAttribute("href", href);
      link.dataset.head = head;
      current(link, this.chosen.includes(this.now));
      this.put(rect, place);
      this.told.textContent = name;
      this.sheet.parentElement.title = name;
    }

    put(rect, place) {
      rect.setAttribute("x", (place % this.columns) * this.side);
      rect.setAttribute("y", Math.floor(place / this.columns) * this.side);
    }

    start() {
      let last = "";
      const point = ({ clientX, clientY, screenX, screenY }) => {
        /* The page has moved below the pointer. */
        const still = last === `${screenX} ${screenY}`;
        last = `${screenX} ${screenY}`;
        const { left, top, width } = this.image.getBoundingClientRect(), side = width / this.columns;
        const column = Math.floor((clientX - left) / side), row = Math.floor((clientY - top) / side);
        const place = row * this.columns + column;
        if (!still && column >= 0 && column < this.columns && row >= 0 && this.list[place] && place !== this.place) this.go(place);
      };
      for (const kind of ["pointermove", "pointerdown"]) this.sheet.addEventListener(kind, point);
      this.link.addEventListener("focus", () => this.go(this.place));
      this.link.addEventListener("keydown", (event) => this.key(event));
    }

    key(event) {
      const { columns, place } = this, { ctrlKey, altKey, metaKey, shiftKey } = event;
      const column = place % columns, last = this.list.length - columns + column;
      const next = {
        ArrowLeft: column ? place - 1 : place, ArrowRight: column < columns - 1 ? place + 1 : place,
        ArrowUp: Math.max(place - columns, column), ArrowDown: Math.min(place + columns, last),
        Home: place - column, End: place - column + columns - 1, PageUp: column, PageDown: last,
      }[event.key];
      if (next === undefined || ctrlKey || altKey || metaKey || shiftKey) return;
      event.preventDefault();
      this.go(next);
      this.link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    mark(chosen) {
      this.chosen = chosen;
      all(".kept", this.sheet).forEach((rect) => rect.remove());
      for (const each of chosen) {
        const rect = this.link.firstElementChild.cloneNode();
        rect.setAttribute("class", "kept");
        this.put(rect, this.list.indexOf(each));
        this.sheet.append(rect);
      }
      current(this.link, chosen.includes(this.now));
    }

    follow(call) {
      this.link.addEventListener("click", (event) => call(event, this.now));
    }
  }

  const current = (link, is) => {
    if (is) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  };

  window.headbook.tiles = (sheet) => (sheet.dataset.heads ? new Moving(sheet) : new Links(sheet));
})();
