"use strict";
/* A sentence as a workspace: its words choose a query or a key, its maps a head; the panel shows
   what the head does there. All of it stands in the address. */
(() => {
  const { all, one, load, make, use, hash, root, rove, targetOf } = window.headbook;
  const { switches, drawing, tiles: tilesOf } = window.headbook;
  const { mapOf, seen } = window.headbook.weights;
  /** @typedef {"query" | "key"} Way */

  class Workspace {
    /**
     * @param {HTMLElement} page
     * @param {HTMLElement} box of the work panel
     * @param {TileGrid[]} grids
     * @param {Record<string, StackData>} data
     */
    constructor(page, box, grids, data) {
      this.page = page;
      this.box = box;
      this.grids = grids;
      this.data = data;
      /** @type {TileView[]} */
      this.views = [];
      /** @type {Map<string, Card>} */
      this.cards = new Map();
      /** @type {Units} */
      this.units = "pieces";
      /** @type {Way} */
      this.direction = "query";
      /** @type {Pair} */
      this.kept = { q: null, k: null };
      this.about = one("h1", page).textContent;
      const { at = "", head, query } = box.dataset;
      this.home = { at, heads: head, q: query };
      this.at = at;
      /** @type {Tile[]} */
      this.heads = [];
      this.docked = false;
      this.open = false; /* how a weight comes about */
      /** @type {MatricesLike | null} */
      this.matrices = null;
      /** @type {(() => void) | null} */
      this.after = null;
      /** @type {Map<string, NeuronsLike>} */
      this.neurons = new Map();
      /** @type {HTMLElement[]} */
      this.words = [];
      /** @type {HTMLButtonElement[]} */
      this.directions = [];
      this.mask = make("input", { type: "checkbox" });
      /** @type {WorkspaceLike["summaryOf"]} */
      this.summaryOf = (view) => this.cards.get(view.name)?.[3] ?? "";
    }

    get tiles() { return this.gridOf(this.at); }
    get map() { return this.views[0].map; }
    get now() { return this.kept; }
    get fromQuery() { return this.kept.q !== null; }
    get panel() { return this.dock; }
    get chosen() { return this.kept.q ?? this.kept.k ?? -1; }

    get crosses() { return new Set(this.data[this.at].texts).size > 1; }
    /* Whether rows belong to the word that a decoder is about to write. */
    get written() { return Boolean(this.views[0]?.map.written); }
    get name() { return this.page.dataset.name ?? ""; }

    /* A map whose rows belong to the word that is read or, in cross-attention, is written. */
    /** @param {string} stack @param {number} place @returns {StoredMap} */
    mapOf(stack, place) {
      const data = this.data[stack], crosses = new Set(data.texts).size > 1;
      return { ...mapOf(data, place), written: crosses && switches.state.rows === "written" };
    }

    /** @param {string} stack */
    gridOf(stack) { return this.grids.find((grid) => grid.stack === stack) ?? this.grids[0]; }

    async start() {
      this.startCards();
      this.startWords();
      this.startBar();
      await use("work_panel");
      this.dock = new window.headbook.Dock(this.box, this);
      this.grids.forEach((grid) => grid.follow((tile, mark) => {
        this.choose(tile);
        mark.scrollIntoView({ block: "nearest" });
      }));
      document.addEventListener("keydown", (event) => {
        const open = targetOf(event).closest("dialog, [role=combobox], details.drop[open]");
        if (event.key === "Escape" && !open && this.docked) this.undock();
      });
      await this.startMore();
      await this.startMatrices();
      await this.restore(switches.place());
      switches.follow(() => this.show());
      document.addEventListener("headbook-path", ({ detail: { stack, place } }) => {
        if (this.data[stack]) this.word(this.data[stack].texts[0], place);
      });
      window.addEventListener("hashchange", () => {
        if (hash() === "" || hash().includes("=")) this.restore(switches.place());
      });
      this.page.dataset.ready = "";
    }

    /* Functions of heads, where the site has them. */
    async startCards() {
      try {
        const cards = await load(`${root()}data/atlas.js`, "atlas");
        for (const card of Object.values(cards).flat()) this.cards.set(card[0], card);
      } catch { return; }
      this.grids.forEach((grid) => grid.name(this.cards));
      if (this.views.length) this.dock?.head();
    }

    /* The switch from attention to similarity of outputs, where the page has outputs. */
    async startMatrices() {
      if (!this.grids.some(({ outputs }) => outputs)) return;
      await use("output_similarity");
      this.matrices = new window.headbook.Matrices(this);
      one("[data-choose]", this.box).prepend(this.matrices.box, " ");
    }

    /* Queries and keys behind single weights, and files to save. */
    async startMore() {
      const more = one("[data-more]"), tools = make("p", { class: "tools" });
      more.append(tools);
      await use("save");
      window.headbook.save(this, tools);
      for (const name of ["query_key_math", "query_key"])
        if (this.grids.some(({ neurons }) => neurons)) await use(name);
      for (const { stack, neurons } of this.grids) {
        if (!neurons) continue;
        const made = new window.headbook.Neurons(this, neurons);
        more.append(made.box);
        this.neurons.set(stack, made);
      }
      this.after = () => this.neurons.forEach((made, stack) => {
        made.box.hidden = stack !== this.at;
        if (stack === this.at) made.draw();
      });
    }

    /* Words as buttons. */
    startWords() {
      this.words = all("[data-text]", this.page);
      for (const line of this.words) {
        const tokens = all(".t", line).map((token) => {
          const button = make(
            "button",
            {
              type: "button",
              class: token.className,
              "data-i": token.dataset.i ?? "",
              "aria-pressed": "false",
              /* The letters of special tokens do not decide the direction of the text. */
              ...(token.dir ? { dir: token.dir } : {}),
            },
            token.textContent,
          );
          token.replaceWith(button);
          button.addEventListener("click", () =>
            this.word(line.dataset.text, Number(button.dataset.i)),
          );
          button.addEventListener("focus", () => {
            if (button.matches(":focus-visible")) button.scrollIntoView({ block: "nearest" });
          });
          return button;
        });
        line.setAttribute("role", "group");
        line.setAttribute("aria-label", "Tokens; arrow keys move between them");
        rove(line, tokens, tokens.length);
      }
    }

    startBar() {
      const bar = one("[data-bar]", this.page);
      const group = make("span", { class: "turn", role: "group", "aria-label": "Chosen token as" });
      this.directions = Object.entries({
        query: "query (where it attends)",
        key: "key (what attends to it)",
      }).map(([direction, text]) => {
        const button = make(
          "button",
          { type: "button", "data-direction": direction, "aria-pressed": "false" },
          text,
        );
        button.addEventListener("click", () => this.turn(direction === "query" ? "query" : "key"));
        return button;
      });
      group.append(...this.directions);
      this.mask.addEventListener("change", () =>
        switches.set({ view: this.mask.checked ? "nosink" : "raw" }),
      );
      const label = make("label"), ramp = make("span", { class: "ramp" }, "0 ");
      const causal = Object.values(this.data).some((each) => each.causal);
      label.append(
        this.mask,
        causal ? " mask special tokens and the first" : " mask special tokens",
      );
      ramp.append(...Array.from({ length: 7 }, (_, i) => make("i", { class: `q${i}` })), " 1");
      bar.append("Chosen token as ", group, label, ramp);
    }

    /** @param {TokenText} text @param {number} place */
    unitOf(text, place) { return this.units === "words" ? text.units[place] : place; }

    /* A word is chosen, in the text of one side. */
    /** @param {string | undefined} side @param {number} place */
    word(side, place) {
      const [queries, keys] = this.data[this.at].texts;
      if (side !== queries && side !== keys) {
        const [stack] = Object.keys(this.data).filter((name) => this.data[name].texts[0] === side);
        if (!stack) return;
        this.at = stack;
        this.heads = [this.gridOf(stack).list[0]];
        this.docked = this.box.classList.contains("docked");
        this.read();
      }
      const [from] = this.data[this.at].texts, both = queries === keys;
      const asQuery = both ? this.direction === "query" : side === from;
      const unit = this.unitOf(asQuery ? this.map.queries : this.map.keys, place);
      this.kept = asQuery ? { q: unit, k: null } : { q: null, k: unit };
      this.draw();
      this.point(true);
    }

    /* The chosen token as query or as key. */
    /** @param {Way} direction */
    turn(direction) {
      const { q, k } = this.kept, [queries, keys] = this.data[this.at].texts;
      this.direction = direction;
      if (queries === keys)
        this.kept = direction === "query" ? { q: q ?? k, k: null } : { q: null, k: q ?? k };
      this.draw();
      this.point(true);
    }

    /** @param {Maybe} q @param {Maybe} k */
    keep(q, k) {
      this.kept = { q, k };
      this.direction = "query";
      this.draw();
      this.point(true);
    }

    /** @param {Tile} tile */
    choose(tile) {
      const [queries, keys] = this.data[tile.stack].texts, before = this.data[this.at].texts;
      if (String(before) !== String([queries, keys])) this.kept = { q: 0, k: null };
      this.at = tile.stack;
      this.heads = [tile];
      this.docked = true;
      this.show();
      this.point(true);
    }

    /** @param {string} head */
    compare(head) {
      const other = this.tiles.list.find((tile) => tile.head === head);
      this.heads = other ? [this.heads[0], other] : [this.heads[0]];
      this.docked = true;
      this.show();
      this.point(true);
    }

    undock() {
      const { activeElement } = document;
      this.docked = false;
      this.draw();
      this.point(true);
      if (this.box.contains(activeElement))
        this.tiles.marks[this.tiles.list.indexOf(this.heads[0])].focus({ preventScroll: true });
    }

    /* Heads by the largest weight between the chosen token and another one that is no sink. */
    strongest() {
      const { view, units } = switches.state, { list } = this.tiles;
      const own = String(this.data[this.at].texts[0]) === String(this.data[this.at].texts[1]);
      const special = this.sinks();
      return list.map((tile, place) => {
        const made = seen(this.mapOf(this.at, place), view, units);
        const row = this.fromQuery ? made.row(this.chosen) : made.column(this.chosen);
        let [at, value] = [-1, 0];
        row.forEach((each, i) => {
          if (each > value && !(own && i === this.chosen) && !special[i]) [at, value] = [i, each];
        });
        return { tile, at, value };
      }).filter(({ at }) => at >= 0).sort((a, b) => b.value - a.value);
    }

    /* Which of the other side are a sink: words where all their tokens are. */
    sinks() {
      const { queries, keys, causal } = this.map, text = this.fromQuery ? keys : queries;
      const tokens = text.special.map((each, i) => Boolean(each) || (causal && i === 0));
      if (this.units === "pieces") return tokens;
      return text.names.map((_, word) => tokens.every((sink, i) => sink || text.units[i] !== word));
    }

    /* Read what switches and heads ask for. */
    read() {
      const { view, units } = switches.state;
      const opened = this.heads.map((tile) => {
        const map = this.mapOf(this.at, this.tiles.list.indexOf(tile));
        return { ...tile, map, ...seen(map, view, units) };
      });
      if (units !== this.units) this.kept = this.converted(opened[0].map, units);
      this.units = units;
      this.views = opened;
    }

    /* The same tokens as pieces or as words. */
    /** @param {StoredMap} map @param {Units} units @returns {Pair} */
    converted({ queries, keys }, units) {
      /** @type {(text: TokenText, place: Maybe) => Maybe} */
      const other = (text, place) => {
        if (place === null) return null;
        const found = units === "words" ? text.units[place] : text.units.indexOf(place);
        return found === undefined || found < 0 ? 0 : found;
      };
      return { q: other(queries, this.kept.q), k: other(keys, this.kept.k) };
    }

    show() {
      if (!this.at) return;
      this.read();
      this.dock?.head();
      this.draw();
      this.thumbs();
    }

    /* What an address asks for; what makes no sense is as at the beginning. */
    /** @param {Wanted} wanted */
    async restore(wanted) {
      /** @type {(at?: string) => TileGrid | undefined} */
      const known = (at) =>
        this.grids.find((grid) => grid.stack === at && grid.exact && this.data[at]);
      const grid = known(wanted.at) ?? this.gridOf(this.home.at), at = grid.stack;
      const found = (wanted.at === at ? wanted.heads || "" : "")
        .split(",")
        .map((head) => grid.list.find((tile) => tile.head === head));
      const there = [...new Set(found.flatMap((tile) => tile ?? []))].slice(0, 2);
      /** @type {(text?: string | number) => Maybe} */
      const number = (text) => (/^\d{1,5}$/.test(String(text)) ? Number(text) : null);
      this.at = at;
      this.heads = there.length
        ? there
        : [grid.list.find((tile) => tile.head === this.home.heads) || grid.list[0]];
      this.docked = there.length > 0 && wanted.dock !== "0";
      const asked = { q: number(wanted.q), k: number(wanted.k) };
      const given = there.length && (asked.q !== null || asked.k !== null);
      this.units = given ? switches.state.units : "pieces";
      this.kept = given ? asked : { q: at === this.home.at ? Number(this.home.q) : 0, k: null };
      this.read();
      const { rows, columns } = this.views[0];
      if ((this.kept.q ?? 0) >= rows.length || (this.kept.k ?? 0) >= columns.length)
        this.kept = { q: 0, k: null };
      this.direction = this.fromQuery ? "query" : "key";
      await this.matrices?.turn(wanted.matrix);
      const neurons = this.neurons.get(at);
      if (neurons) neurons.open(wanted.neurons === "1");
      this.show();
    }

    draw() {
      if (this.dock) this.dock.docked = this.docked;
      this.dock?.draw();
      this.matrices?.draw();
      this.grids.forEach((grid) => grid.mark(this.heads));
      const { view } = switches.state, { q, k } = this.kept;
      this.mask.checked = view === "nosink" || view === "renorm";
      this.directions.forEach((button) =>
        button.setAttribute(
          "aria-pressed",
          String(button.dataset.direction === (this.fromQuery ? "query" : "key")),
        ),
      );
      const [queries, keys] = this.data[this.at].texts;
      for (const line of this.words) {
        for (const token of all(".t", line)) {
          /** @type {(text: TokenText, unit: Maybe) => boolean} */
          const is = (text, unit) =>
            unit !== null && this.unitOf(text, Number(token.dataset.i)) === unit;
          const looks = line.dataset.text === queries && is(this.map.queries, q);
          const looked = line.dataset.text === keys && is(this.map.keys, k);
          token.setAttribute("aria-pressed", String(looks || (looked && q === null)));
          token.classList.toggle("chosen", looked && q !== null);
        }
      }
      this.tokens();
      if (this.after) this.after();
    }

    /* Tell the paths and the nearest tokens which token is chosen, of which stack. */
    tokens() {
      const { chosen, fromQuery } = this, text = fromQuery ? this.map.queries : this.map.keys;
      const place = this.units === "words" ? text.units.indexOf(chosen) : chosen;
      const side = this.data[this.at].texts[fromQuery ? 0 : 1];
      const stacks = Object.keys(this.data).filter((name) => this.data[name].texts[0] === side);
      document.dispatchEvent(
        new CustomEvent("headbook-token", { detail: { place, stacks, name: text.pieces[place] } }),
      );
    }

    /* The small maps with the weights that are shown. */
    thumbs() {
      const { view, units, scale } = switches.state;
      for (const grid of this.grids) {
        if (!grid.exact || !this.data[grid.stack]) continue;
        const made = grid.list.map((_, place) =>
          seen(this.mapOf(grid.stack, place), view, units),
        );
        /** @type {(i: number) => string} */
        const one = (i) => drawing.paintSheet([made[i]], 1, scale);
        grid.paint(
          switches.changed() || grid.few
            ? grid.marks[0].closest(".over")
              ? drawing.paintSheet(made, grid.columns, scale)
              : "few"
            : "",
          one,
        );
      }
    }

    get place() {
      const { q, k } = this.kept;
      return {
        at: this.at, heads: this.heads.map(({ head }) => head).join(","), q: q ?? "", k: k ?? "",
        neurons: this.open ? "1" : "", dock: this.docked ? "" : "0",
        matrix: (this.matrices?.matrix ?? "attention").replace("attention", ""),
      };
    }

    /** @param {boolean} step */
    point(step = false) { switches.point(this.place, step); }
  }

  document.addEventListener("DOMContentLoaded", async () => {
    const page = one(".sentence-page"), [box] = all(".dock");
    const grids = all("[data-maps]").map(tilesOf);
    if (page.querySelector("[data-paths], [data-entries]")) {
      await use("token_paths");
      await window.headbook.paths();
    }
    if (!box) return;
    const { src = "", name = "" } = page.dataset;
    const data = await load(src, `sentence-${name}`);
    await new Workspace(page, box, grids, data).start();
  });
})();
