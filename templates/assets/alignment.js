"use strict";
/* Links to sentences open at the heads that a reader chooses. */
document.addEventListener("DOMContentLoaded", () => {
  const { all } = window.headbook;
  for (const select of all("select[data-choose]")) {
    const links = all("a", document.getElementById(select.dataset.choose ?? "") ?? document);
    const aim = () => {
      for (const link of links) {
        link.setAttribute(
          "href",
          (link.getAttribute("href") ?? "").replace(/&heads=[\d.,]*$/, `&heads=${select.value}`),
        );
      }
    };
    select.addEventListener("change", aim);
    aim(); /* a page that comes back keeps its choice */
  }
});
