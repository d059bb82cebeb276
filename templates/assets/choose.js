"use strict";
/* Links to sentences open at the heads that a reader chooses. */
document.addEventListener("DOMContentLoaded", () => {
  const { all } = window.headbook;
  for (const select of all("[data-choose]")) {
    const links = all(`#${select.dataset.choose} a`);
    const aim = () => {
      for (const link of links) {
        link.setAttribute(
          "href",
          link.getAttribute("href").replace(/&heads=[\d.,]*$/, `&heads=${select.value}`),
        );
      }
    };
    select.addEventListener("change", aim);
    aim(); /* a page that comes back keeps its choice */
  }
});
