"use strict";
/* All rows of a head as CSV, from the file of its layer (`headbook.site.head_csv`). Without it the
   link leads to the tables of all heads. */
document.addEventListener("DOMContentLoaded", () => {
  const { one, load, offer, root } = window.headbook;
  const link = /** @type {HTMLAnchorElement} */ (one("[data-rows]"));
  const { rows: name = "" } = link.dataset;
  const [, layer, head] = /^(.*)-H(\d+)$/.exec(name) ?? [];

  link.addEventListener("click", async (event) => {
    event.preventDefault();
    try {
      const file = await load(`${root()}data/numbers/${layer}.js`, `numbers-${layer}`);
      const { columns, start, keys, heads, uniform } = file;
      /** @type {(numbers: string, n: number) => string[]} */
      const line = (numbers, n) =>
        numbers ? [`${start},${Number(head)},${keys[n]},${numbers},${uniform[n]}`] : [];
      const lines = heads[Number(head)].flatMap(line);
      offer(`${name}.csv`, "text/csv", `${[columns, ...lines].join("\n")}\n`);
    } catch {
      window.location.assign(link.href);
    }
  });
});
