"use strict";
/* Token types by name, on the page of tokens. */
(() => {
  const { all, make, load, hash, folded } = window.headbook;

  const startTypes = (input) => {
    const body = document.querySelector(`[data-types-of="${input.dataset.types}"]`);
    const status = input.closest("p").querySelector("[role=status]");
    const still = [...body.children];
    const row = ([name, ...cells]) => {
      const line = make("tr");
      line.append(
        make("th", { scope: "row", dir: "auto" }, name),
        ...cells.map((cell) => make("td", { class: "number" }, cell)),
      );
      return line;
    };
    const show = async () => {
      const types = (await load(input.dataset.src, "types"))[input.dataset.types];
      const wanted = folded(input.value.trim());
      const found = wanted ? types.filter(([name]) => folded(name).includes(wanted)) : [];
      body.replaceChildren(...(wanted ? found.slice(0, still.length).map(row) : still));
      status.textContent = wanted ? `${found.length} of ${types.length} types` : "";
    };
    input.addEventListener("input", show);
    const read = () => {
      const asked = new URLSearchParams(hash().slice(1)).get("find");
      if (!asked) return;
      input.value = asked;
      show();
      input.scrollIntoView({ block: "center" });
    };
    window.addEventListener("hashchange", read);
    read();
  };

  document.addEventListener("DOMContentLoaded", () => all("[data-types]").forEach(startTypes));
})();
