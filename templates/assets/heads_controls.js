"use strict";
/* Filters of the list of heads, and the choice of its columns. */
(() => {
  const { all, one, make } = window.headbook;
  const { words, WORDS } = window.headbook.list;

  /** @type {(value: string, text: string) => HTMLOptionElement} */
  const option = (value, text) => make("option", { value }, text);
  /** @type {(text: string, ...controls: HTMLElement[]) => HTMLLabelElement} */
  const labelled = (text, ...controls) => {
    const label = make("label");
    label.append(`${text} `, ...controls);
    return label;
  };
  /* Every number by metric. */
  /** @type {(list: HeadList, attributes: Attributes) => HTMLSelectElement} */
  const chooser = (list, attributes) => {
    const select = make("select", attributes);
    for (const { title, labels } of list.metrics) {
      const options = labels.map(([key, name]) => option(key, name));
      const group = make("optgroup", { label: title });
      if (options.length > 1) group.append(...options);
      select.append(...(options.length > 1 ? [group] : options));
    }
    return select;
  };
  /** @type {Record<WordName, string>} */
  const TITLES = { ...WORDS, class: "Family" };
  /* The words that the list has, with the number of heads. */
  /** @type {(list: HeadList, name: WordName) => HTMLSelectElement} */
  const counted = (list, name) => {
    const amounts = new Map();
    for (const head of list.heads)
      amounts.set(head[name][0], (amounts.get(head[name][0]) || 0) + 1);
    const select = make("select", { "data-filter": name });
    select.append(
      option("", "any"),
      ...words(list, name).map((word) => option(word, `${word} (${amounts.get(word)})`)),
    );
    return select;
  };
  /** @type {(name: string, type: string, attributes?: Attributes) => HTMLInputElement} */
  const input = (name, type, attributes = {}) => (
    make("input", { type, "data-filter": name, autocomplete: "off", ...attributes }));

  /** @type {(list: HeadList, names: WordName[]) => HTMLElement[]} */
  const selects = (list, names) =>
    names
      .filter((name) => words(list, name).length)
      .map((name) => labelled(TITLES[name], counted(list, name)));
  /** @type {(list: HeadList) => HTMLElement[]} */
  const filters = (list) => {
    /** @type {HTMLElement[]} */
    const parts = [labelled("Filter by words", input("find", "search"))];
    if (list.stacks.length > 1) {
      const stacks = make("select", { "data-filter": "stack" });
      stacks.append(option("", "all"), ...list.stacks.map(([name, title]) => option(name, title)));
      parts.push(labelled("Attention type", stacks));
    }
    parts.push(...selects(list, ["class"]));
    /** @type {(end: string) => HTMLInputElement} */
    const layer = (end) => input(end, "number", { min: "0", step: "1" });
    const layers = make("span", { class: "layers" });
    layers.append(labelled("Layers from", layer("from")), labelled("to", layer("to")));
    parts.push(layers);
    return parts;
  };

  /* Build the controls of a list; each change goes to `change` at once, or through `refresh` where
     it may need numbers that are not there yet. */
  /** @type {Controls} */
  const controls = (box, list, { state, change, refresh, reset }) => {
    const place = one(".filters", box);
    const add = chooser(list, { "data-column": "" });
    const button = make("button", { type: "button", "data-add": "" }, "Add column");
    button.addEventListener("click", () => {
      if (!state.columns.includes(add.value)) refresh({ columns: [...state.columns, add.value] });
    });
    const adding = make("span", { class: "adding" });
    adding.append(labelled("Metric", add), button);
    const again = make("button", { type: "button", "data-reset": "" }, "Reset");
    again.addEventListener("click", reset);
    const more = make("details", { class: "more" }), rest = make("div", { class: "filters" });
    rest.append(...selects(list, ["verdict", "relation"]), adding);
    more.append(
      make("summary", {}, "More filters and columns"), rest, make("div", { class: "ranges" }),
    );
    place.append(...filters(list), again, more);
    for (const control of all("[data-filter]", place)) {
      const { filter = "" } = control.dataset;
      control.addEventListener("input", () => {
        change({ [filter]: /** @type {Field} */ (control).value });
      });
    }
  };

  window.headbook.controls = controls;
})();
