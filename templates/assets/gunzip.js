"use strict";
/* Bytes from base64 of gzip, as `headbook.site.markup.gzipped` writes them. A browser without
   DecompressionStream says so on its page. */
(() => {
  const LACKING = "This browser cannot open the compressed data of these pages. Use Safari 16.4, "
    + "Firefox 113, Chrome 80 or a later version.";
  const warn = () => {
    if (document.querySelector("[data-lacking]")) return;
    const note = document.createElement("p");
    note.className = "warnings";
    note.dataset.lacking = "";
    note.setAttribute("role", "alert");
    note.textContent = LACKING;
    (document.querySelector("main") ?? document.body).prepend(note);
  };
  /** @type {Window["unpack"]} */
  window.unpack = async (text) => {
    if (!("DecompressionStream" in window)) {
      warn();
      throw new Error(LACKING);
    }
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const opened = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(opened).arrayBuffer());
  };
})();
