"use strict";
/* The maps of a stack's heads in a sentence, to choose from: buttons over one picture of all
   heads or, where only some have maps, the links of a list. */
(() => {
  const { all, one, make, root, rove } = window.headbook;
  /** @type {(number: number) => string} */
  const two = (number) => String(number).padStart(2, "0");
  /** @type {(stack: string, layer: number, head: number) => Tile} */
  const tileOf = (stack, layer, head) => ({
    stack, head: `${layer}.${head}`, place: [layer, head],
    name: `${stack === "self" ? "" : `${stack} `}L${layer}·H${head}`,
    href: `${root()}heads/${stack === "self" ? "" : `${stack}-`}L${two(layer)}-H${two(head)}.html`,
  });

  /* Heads to choose from, each with its mark. */
  class Marks {
    /**
     * @param {string} stack
     * @param {Tile[]} list
     * @param {HTMLElement[]} marks
     * @param {boolean} exact
     */
    constructor(stack, list, marks, exact) {
      this.stack = stack;
      this.list = list;
      this.marks = marks;
      this.exact = exact;
    }

    /** @param {Tile[]} chosen */
    mark(chosen) {
      this.marks.forEach((each, i) => {
        if (chosen.includes(this.list[i])) each.setAttribute("aria-current", "true");
        else each.removeAttribute("aria-current");
      });
    }

    /** @param {(tile: Tile, mark: HTMLElement) => void} call */
    follow(call) {
      if (!this.exact) return;
      this.marks.forEach((each, i) => each.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        call(this.list[i], each);
      }));
    }
  }

  class Grid extends Marks {
    /** @param {HTMLElement} box */
    constructor(box) {
      const { maps: stack = "", layers = "", heads, neurons, outputs } = box.dataset;
      const columns = Number(heads), exact = "exact" in box.dataset;
      const list = layers.split(",").flatMap((layer) => (
        Array.from({ length: columns }, (_, head) => tileOf(stack, Number(layer), head))));
      const marks = list.map((tile) => {
        const mark = exact ? make("button", { type: "button" }) : make("a", { href: tile.href });
        mark.setAttribute("aria-label", tile.name);
        mark.title = tile.name;
        return mark;
      });
      super(stack, list, marks, exact);
      this.neurons = neurons;
      this.outputs = outputs;
      this.few = "few" in box.dataset;
      this.columns = columns;
      this.image = one(".field img", box);
      this.still = this.image.getAttribute("src") ?? "";
      const over = make("div", {
        class: "over",
        role: "group",
        "aria-label": "Heads; arrow keys move between them",
      });
      over.append(...this.marks);
      one(".field", box).append(over);
      rove(over, this.marks, this.columns);
    }

    /* Functions of the heads, as strips and in words. */
    /** @param {Map<string, Card>} cards */
    name(cards) {
      this.marks.forEach((mark, i) => {
        const [, noun, style] = cards.get(this.list[i].name) || [];
        if (style) mark.classList.add(...style.split(" "));
        if (noun) {
          mark.title = `${this.list[i].name}, ${noun}`;
          mark.setAttribute("aria-label", mark.title);
        }
      });
    }

    /* The picture with other weights; the page's own without any. */
    /** @param {string} src */
    paint(src) { this.image.src = src || this.still; }
  }

  class Few extends Marks {
    /** @param {HTMLElement} list */
    constructor(list) {
      const { maps: stack = "", neurons } = list.dataset, links = all("a", list);
      const tiles = links.map(({ dataset }) => {
        const [layer, head] = (dataset.head ?? "").split(".").map(Number);
        return tileOf(stack, layer, head);
      });
      super(stack, tiles, links, true);
      this.neurons = neurons;
      /** @type {string | undefined} */
      this.outputs = undefined; /* stored of sentences with all heads */
      this.few = true;
      this.columns = tiles.length;
      this.images = links.map((link) => one("img", link));
      this.stills = this.images.map((image) => image.getAttribute("src") ?? "");
    }

    name() { /* Names stand there. */ }

    /** @param {string} src @param {(i: number) => string} each */
    paint(src, each) {
      this.images.forEach((image, i) => { image.src = src ? each(i) : this.stills[i]; });
    }
  }

  window.headbook.tiles = (box) => (box.matches("ul") ? new Few(box) : new Grid(box));
})();
