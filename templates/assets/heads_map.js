"use strict";
/* The map of all heads at the foot of pages: a table of links for each stack, coloured by any
   metric. One Tab stop a table; arrow keys move inside. */
(() => {
  /**
   * @typedef {{ stack: string, names: string[], title: string, table: HTMLElement,
   *   caption: HTMLElement, links: HTMLAnchorElement[] }} StackTable
   */
  const { all, one, targetOf, make, load, root, rove } = window.headbook;

  /**
   * @type {(data: MapData, chosen: string) => { label: HTMLElement, select: HTMLSelectElement }}
   */
  const chooserOf = ({ choices }, chosen) => {
    const label = make("label", {}, "Metric "), select = make("select", { autocomplete: "off" });
    for (const [title, options] of choices) {
      const into = options.length > 1 ? make("optgroup", { label: title }) : select;
      for (const [key, name] of options)
        into.append(
          make("option", { value: key }, options.length > 1 ? `${title}: ${name}` : title),
        );
      if (into !== select) select.append(into);
    }
    select.value = chosen;
    label.append(select);
    return { label, select };
  };

  /** @type {(stack: MapStack, several: boolean) => StackTable} */
  const tableOf = ([stack, title, layers, heads, names, addresses], several) => {
    const table = make("table", { class: "heads" });
    const caption = make("caption"), head = make("tr"), body = make("tbody");
    head.append(
      make("td"),
      ...Array.from({ length: heads }, (_, n) => make("th", { scope: "col" }, `H${n}`)),
    );
    layers.forEach((layer, row) => {
      const line = make("tr");
      line.append(make("th", { scope: "row" }, `L${layer}`));
      for (let n = row * heads; n < (row + 1) * heads; n += 1) {
        const link = make("a", { href: root() + addresses[n] });
        if (location.href.startsWith(link.href)) link.setAttribute("aria-current", "page");
        const cell = make("td");
        cell.append(link);
        line.append(cell);
      }
      body.append(line);
    });
    const top = make("thead");
    top.append(head);
    table.append(caption, top, body);
    const links = all("a", table);
    rove(table, links, heads);
    return {
      stack,
      names,
      title: several ? `${title[0].toUpperCase()}${title.slice(1)}. ` : "",
      table,
      caption,
      links,
    };
  };
  /** @type {(table: StackTable, shown?: Grid) => void} */
  const colour = ({ names, title, caption, links }, choice) => {
    const pale = choice?.ink === "d" ? "; 0 is pale" : "";
    caption.textContent =
      title +
      (choice
        ? `${choice.caption}: from ${choice.low} (faint) to ${choice.high} (strong)${pale}.`
        : "Not measured here.");
    links.forEach((link, i) => {
      const cell = link.closest("td");
      const step = choice && choice.steps[i] >= 0 ? `${choice.ink}${choice.steps[i]}` : "";
      if (cell) cell.className = step;
      link.dataset.value = choice ? choice.texts[i] : "–";
      link.setAttribute("aria-label", `${names[i]}: ${link.dataset.value}`);
    });
  };
  /** @type {(box: HTMLDetailsElement) => Promise<void>} */
  const draw = async (box) => {
    const data = await load(`${root()}data/map.js`, "map");
    const { label, select } = chooserOf(data, data.chosen);
    const tables = data.stacks.map((stack) => tableOf(stack, data.stacks.length > 1));
    const status = make("p", { class: "status" });
    /** @type {(event: Event) => void} */
    const tell = (event) => {
      const target = targetOf(event);
      if (target.dataset.value) status.textContent = target.getAttribute("aria-label");
    };
    const show = async () => {
      const chosen = select.value;
      const all = chosen === data.chosen ? null : await load(`${root()}data/grid.js`, "grid");
      if (chosen === select.value)
        tables.forEach((each) =>
          colour(each, all ? all[each.stack]?.[chosen] : data.first[each.stack]),
        );
    };
    select.addEventListener("change", () => {
      status.textContent = "";
      show();
    });
    const room = make("div", { class: "row" });
    for (const each of tables) {
      const scroll = make("div", { class: "scroll" });
      /* A resting pointer does not count: what scrolls below it would hide the head in focus. */
      for (const event of ["focusin", "pointermove"]) each.table.addEventListener(event, tell);
      scroll.append(each.table);
      room.append(scroll);
    }
    await show();
    box.append(label, status, room);
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      box.open = false;
      one("summary", box).focus();
    });
  };

  all("details[data-atlas]").forEach(draw);
})();
