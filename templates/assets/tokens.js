"use strict";
/* Token types by name, on the page of tokens. */
(() => {
  const { all, one, make, load, hash, folded } = window.headbook;

  const MOST = 120; /* rows of what was found */

  /** @type {(input: HTMLInputElement) => void} */
  const startTypes = (input) => {
    const { src = "", types: stack = "" } = input.dataset;
    const body = one("tbody", input.closest("details") ?? document);
    const status = one("[role=status]", input.closest("p") ?? document);
    const still = [...body.children];
    /** @type {(cells: string[]) => HTMLElement} */
    const row = ([name, ...cells]) => {
      const line = make("tr");
      line.append(
        make("th", { scope: "row", dir: "auto" }, name),
        ...cells.map((cell) => make("td", { class: "number" }, cell)),
      );
      return line;
    };
    const show = async () => {
      const types = (await load(src, "types"))[stack];
      const wanted = folded(input.value.trim());
      const found = wanted ? types.filter(([name]) => folded(name).includes(wanted)) : [];
      body.replaceChildren(...(wanted ? found.slice(0, MOST).map(row) : still));
      status.textContent = wanted ? `${found.length} of ${types.length} types` : "";
    };
    input.addEventListener("input", show);
    const read = () => {
      const asked = new URLSearchParams(hash().slice(1)).get("find");
      if (!asked) return;
      input.value = asked;
      const around = input.closest("details");
      if (around) around.open = true;
      show();
      input.scrollIntoView({ block: "center" });
    };
    window.addEventListener("hashchange", read);
    read();
  };

  document.addEventListener("DOMContentLoaded", () => all("input[data-types]").forEach(startTypes));
})();
