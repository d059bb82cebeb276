"use strict";
/* A list that follows what is typed above it; case and accents do not count. */
(() => {
  const { all, one, folded } = window.headbook;

  /** @type {(amount: number) => string} */
  const many = (amount) => amount.toLocaleString("en-US");
  /** @type {(input: HTMLInputElement) => void} */
  const start = (input) => {
    const lines = all(`#${input.dataset.find} li`).map((line) => ({
      line,
      text: folded([...line.children].filter((each) => !each.matches(".files"))
        .map((each) => each.textContent).join(" ") || line.textContent),
    }));
    const status = one("[role=status]", input.closest("p") ?? document);
    const show = () => {
      const wanted = folded(input.value.trim());
      const found = lines.filter(({ line, text }) => {
        line.hidden = !text.includes(wanted);
        return !line.hidden;
      });
      status.textContent = wanted
        ? `${many(found.length)} of ${many(lines.length)} ${input.dataset.noun ?? "sentences"}`
        : "";
    };
    input.addEventListener("input", show);
    if (input.value) show(); /* what the browser has kept */
  };

  document.addEventListener("DOMContentLoaded", () => all("input[data-find]").forEach(start));
})();
