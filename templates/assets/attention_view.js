"use strict";
/* One head's attention in a sentence, whole: its text, its tokens twice with lines between them,
   every weight of a token, and the map. Pointing or the arrow keys look at a token, a click or
   Enter keeps it, Escape lets it go. */
(() => {
  const { all, apart, targetOf } = window.headbook;
  const { seen, sorted, shade, written } = window.headbook.weights;
  const { switches } = window.headbook;
  /* Text is shaded as pages come: by the weight itself, unless by its logarithm. */
  /** @type {(value: number) => number} */
  const tint = (value) => shade(value, switches.state.scale === "log" ? "log" : "linear");

  /** @type {() => Pair} */
  const nothing = () => ({ q: null, k: null });

  class Instance {
    /* `id`: as in addresses. `home`: what is kept at first, {q, k} in pieces or null. `read`: gives
       the head, {name, map}, in a promise. `lines`: elements with the texts of queries
       and of keys. `told`: where the text's status stands. `about`: the sentence's name. */
    /** @param {InstanceSource} source */
    constructor({ id, home, read, lines, statusLine, about }) {
      this.id = id;
      this.home = home;
      this.read = read;
      this.lines = lines;
      this.statusLine = statusLine;
      this.about = about;
      /** @type {InstanceLike["panel"]} */
      this.panel = null;
      /** @type {InstanceLike["after"]} */
      this.after = null;
      /** @type {Hearer | null} */
      this.by = null;
      this.kept = { ...home };
      this.near = nothing();
      /** @type {Units} */
      this.units = "pieces";
      /** @type {HeadView[]} */
      this.views = [];
      for (const side of new Set([lines.queries, lines.keys])) this.startText(side);
      switches.follow(() => { if (this.alive) this.show(); });
    }

    get alive() { return this.views.length > 0 || switches.changed(); }

    /* What is looked at now: what is pointed at, else what is kept. */
    get now() {
      const { near, kept } = this;
      const q = near.q ?? kept.q;
      return { q, k: near.k ?? (q === kept.q ? kept.k : null) };
    }

    /* Read again what switches ask for, and draw it. */
    async show() {
      const head = await this.read(), { map } = head;
      const { view, units } = switches.state;
      if (units !== this.units) {
        this.kept = this.converted(map, this.kept, units);
        this.near = nothing();
        this.units = units;
      }
      this.views = [{ ...head, ...seen(map, view, units) }];
      const { rows, columns } = this.views[0];
      if ((this.kept.q ?? 0) >= rows.length || (this.kept.k ?? 0) >= columns.length)
        this.kept = this.homeNow;
      if (this.panel) this.panel.build();
      this.draw();
    }

    /* The same tokens as pieces or as words. */
    /** @param {StoredMap} map @param {Pair} pair @param {Units} units @returns {Pair} */
    converted({ queries, keys }, { q, k }, units) {
      /** @type {(text: TokenText, place: Maybe) => Maybe} */
      const other = (text, place) => {
        if (place === null) return null;
        const found = units === "words" ? text.units[place] : text.units.indexOf(place);
        return found === undefined || found < 0 ? null : found;
      };
      return { q: other(queries, q), k: other(keys, k) };
    }

    get homeNow() {
      return this.units === "words"
        ? this.converted(this.views[0].map, this.home, "words")
        : { ...this.home };
    }

    draw() {
      if (!this.views.length) return;
      this.drawText();
      if (this.panel) this.panel.draw();
      if (this.after) this.after();
    }

    /* Point at something, by `pointer` or `key`; a pointer that rests leaves keys alone. */
    /** @param {Maybe} q @param {Maybe} k @param {Hearer} by */
    look(q, k, by) {
      this.by = by;
      if (this.near.q === q && this.near.k === k) return;
      this.near = { q, k };
      if (this.views.length) this.draw();
      else this.show();
    }

    /** @param {Hearer} by */
    leave(by) {
      if (this.by === by) this.look(null, null, by);
    }

    /** @param {Maybe} q @param {Maybe} k */
    keep(q, k) {
      this.kept = { q, k };
      this.near = nothing();
      if (this.views.length) this.draw();
      else this.show();
      this.point();
    }

    release() {
      const { q, k } = this.homeNow;
      this.keep(q, k);
    }

    /* Put what is kept into the address. */
    get place() {
      return { at: this.id, q: this.kept.q ?? "", k: this.kept.k ?? "" };
    }

    point() { switches.point(this.place); }

    /* What an address asks for, as far as it makes sense. */
    /** @param {Wanted} wanted */
    restore({ q, k }) {
      /** @type {(text?: string | number) => Maybe} */
      const number = (text) => (/^\d{1,5}$/.test(String(text)) ? Number(text) : null);
      const there = number(q) !== null;
      this.kept = there ? { q: number(q), k: number(k) } : { ...this.home };
      this.near = nothing();
      this.units = there ? switches.state.units : "pieces";
    }

    /* The text itself, shaded. */
    /** @param {"queries" | "keys"} side @param {HTMLElement} token */
    unitOf(side, token) {
      const { queries, keys } = this.views[0].map;
      const text = side === "queries" ? queries : keys;
      return this.units === "words" ? text.units[Number(token.dataset.i)] : Number(token.dataset.i);
    }

    drawText() {
      const { q, k } = this.now, [view] = this.views;
      const row = q === null ? null : view.row(q);
      for (const token of all(".t", this.lines.queries)) {
        token.classList.toggle("looks", q !== null && this.unitOf("queries", token) === q);
      }
      for (const token of all(".t", this.lines.keys)) {
        const unit = this.unitOf("keys", token);
        token.classList.toggle("chosen", unit === k);
        token.className = token.className.replace(/ ?\bs\d+\b/g, "");
        token.title = row ? `${unit} ${view.columns[unit]}: ${written(row[unit])}` : "";
        if (row) token.classList.add(`s${Math.round(10 * tint(row[unit]))}`);
      }
      this.lines.keys.classList.toggle("words", this.units === "words");
      this.lines.queries.classList.toggle("words", this.units === "words");
      const best = row ? sorted(row).slice(0, 3) : [];
      const list = best.flatMap(({ key, value }, i) => [
        `${i ? ", " : ""}${key} `,
        apart(view.columns[key]),
        ` ${written(value)}`,
      ]);
      this.statusLine.replaceChildren(
        ...(row && q !== null
          ? [`${q} `, apart(view.rows[q]), " attends to ", ...(list.length ? list : ["nothing"])]
          : []),
      );
    }

    /** @param {HTMLElement} line */
    startText(line) {
      const looks = line === this.lines.queries;
      const side = looks ? "queries" : "keys";
      /** @type {(event: Event) => Promise<Maybe>} */
      const at = async (event) => {
        /** @type {HTMLElement | null} */
        const token = targetOf(event).closest(".t");
        if (!token) return null;
        if (!this.views.length) await this.show();
        return this.unitOf(side, token);
      };
      line.tabIndex = 0;
      line.setAttribute("role", "group");
      line.setAttribute(
        "aria-label",
        looks
          ? "Tokens; left and right arrow choose the query, Enter keeps it"
          : "Keys; left and right arrow choose one, Enter keeps it",
      );
      line.addEventListener("pointermove", async (event) => {
        const unit = await at(event);
        if (unit === null || !line.matches(":hover")) return;
        if (looks) this.look(unit, null, "pointer");
        else this.look(null, unit, "pointer");
      });
      line.addEventListener("pointerleave", () => this.leave("pointer"));
      line.addEventListener("focusout", () => this.leave("key"));
      line.addEventListener("click", async (event) => {
        const unit = await at(event);
        if (unit === null) return;
        if (looks) this.keep(unit, null);
        else this.keep(this.now.q, unit);
      });
      line.addEventListener("keydown", (event) => this.textKey(event, line, side));
    }

    /** @param {KeyboardEvent} event @param {HTMLElement} line @param {"queries" | "keys"} side */
    async textKey(event, line, side) {
      const ahead = getComputedStyle(line).direction === "rtl" ? -1 : 1;
      /** @type {Lookup<number>} */
      const steps = { ArrowLeft: -ahead, ArrowRight: ahead };
      const step = steps[event.key];
      if (!step && event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      if (!this.views.length) await this.show();
      const { q, k } = this.now;
      if (event.key === "Enter") this.keep(q, k);
      else if (event.key === "Escape") this.release();
      else if (step) {
        const units = [...new Set(all(".t", line).map((token) => this.unitOf(side, token)))];
        const now = side === "queries" ? q : k;
        const next = units[units.findIndex((unit) => unit === now) + step];
        if (next === undefined) return;
        if (side === "queries") this.look(next, null, "key");
        else this.look(q, next, "key");
      }
    }
  }

  window.headbook.Instance = Instance;
})();
