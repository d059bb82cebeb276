"use strict";
/* The maps of a stack's heads in a sentence, to choose from: buttons over one picture of all
   heads or, where only some have maps, the links of a list. */
(() => {
  const { all, make, root, rove } = window.headbook;
  const two = (number) => String(number).padStart(2, "0");
  const tileOf = (stack, layer, head) => ({
    stack, head: `${layer}.${head}`, place: [layer, head],
    name: `${stack === "self" ? "" : `${stack} `}L${layer}·H${head}`,
    href: `${root()}heads/${stack === "self" ? "" : `${stack}-`}L${two(layer)}-H${two(head)}.html`,
  });

  class Grid {
    constructor(box) {
      const { maps: stack, layers, heads } = box.dataset;
      this.stack = stack;
      this.exact = "exact" in box.dataset;
      this.neurons = box.dataset.neurons;
      this.columns = Number(heads);
      this.image = box.querySelector(".field img");
      this.still = this.image.getAttribute("src");
      this.list = layers
        .split(",")
        .flatMap((layer) =>
          Array.from({ length: this.columns }, (_, head) => tileOf(stack, Number(layer), head)),
        );
      this.marks = this.list.map((tile) => {
        const mark = this.exact
          ? make("button", { type: "button" })
          : make("a", { href: tile.href });
        mark.setAttribute("aria-label", tile.name);
        mark.title = tile.name;
        return mark;
      });
      const over = make("div", {
        class: "over",
        role: "group",
        "aria-label": "Heads; arrow keys move between them",
      });
      over.append(...this.marks);
      box.querySelector(".field").append(over);
      rove(over, this.marks, this.columns);
    }

    /* Types of the heads, as strips and in words. */
    name(cards) {
      this.marks.forEach((mark, i) => {
        const [, , type, style] = cards.get(this.list[i].name) || [];
        if (style) mark.classList.add(...style.split(" "));
        if (type) {
          mark.title = `${this.list[i].name}, ${type}`;
          mark.setAttribute("aria-label", mark.title);
        }
      });
    }

    /* The picture with other weights; the page's own without any. */
    paint(src) { this.image.src = src || this.still; }
  }

  class Few {
    constructor(list) {
      this.stack = list.dataset.maps;
      this.exact = true;
      this.neurons = list.dataset.neurons;
      this.marks = all("a", list);
      this.list = this.marks.map((link) =>
        tileOf(this.stack, ...link.dataset.head.split(".").map(Number)),
      );
      this.columns = this.list.length;
      this.images = this.marks.map((link) => link.querySelector("img"));
      this.stills = this.images.map((image) => image.getAttribute("src"));
    }

    name() { /* Names stand there. */ }

    paint(src, each) {
      this.images.forEach((image, i) => { image.src = src ? each(i) : this.stills[i]; });
    }
  }

  for (const kind of [Grid, Few]) {
    kind.prototype.mark = function mark(chosen) {
      this.marks.forEach((each, i) => {
        if (chosen.includes(this.list[i])) each.setAttribute("aria-current", "true");
        else each.removeAttribute("aria-current");
      });
    };
    kind.prototype.follow = function follow(call) {
      if (!this.exact) return;
      this.marks.forEach((each, i) => each.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        call(this.list[i], each);
      }));
    };
  }

  window.headbook.tiles = (box) => (box.matches("ul") ? new Few(box) : new Grid(box));
})();
