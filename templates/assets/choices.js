"use strict";
/* Files, address and citation of what a reader has chosen in a figure, where no stored file shows
   it: the command that draws it, buttons that save what is on show, and its entry for BibTeX. */
(() => {
  const { all, make } = window.headbook;

  /** @type {Choices["quoted"]} */
  const quoted = (text) =>
    (/^[\w.:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  /** @type {Choices["saver"]} */
  const saver = (text, act) => {
    const found = make("button", { type: "button" }, text);
    found.addEventListener("click", act);
    return found;
  };
  /* The name of a file of a choice: that of the figure, and what was chosen. */
  /** @type {Choices["fileName"]} */
  const fileName = (name, chosen) =>
    [name, ...chosen.map((each) => each.replace(/[^\w.+-]/g, "-"))].join("-");

  /** @type {(text: string) => string} */
  const latex = (text) =>
    text.replace(/[%&#_$]/g, "\\$&").replaceAll("→", "$\\rightarrow$").replaceAll("≥", "$\\geq$");
  /* The entry of a stored figure, turned into that of another choice. */
  /** @type {Choices["cited"]} */
  const cited = (text, name, file, title) =>
    text
      .replace(/^@misc\{[^,]*/, `@misc{headbook-${file.replace(/[^A-Za-z0-9]+/g, "-")}`)
      .replace(/title = \{.*\},/, () => `title = {${latex(title)}},`)
      .replace(latex(name), () => latex(file));
  /** @type {Choices["entry"]} */
  const entry = (text) => {
    const details = make("details", { class: "cite" }), box = make("div", { class: "entry" });
    const notes = all(".entry > p").slice(0, 1).map((each) => each.cloneNode(true));
    box.append(make("pre", { tabindex: "0" }, text), ...notes);
    details.append(make("summary", {}, "Cite"), box);
    return details;
  };
  /** @type {Choices["asPdf"]} */
  const asPdf = (command) => {
    const note = make("details", { class: "made" }), text = make("span");
    text.append(make("code", {}, command));
    note.append(make("summary", {}, "PDF by command"), text);
    return note;
  };

  /* Spreadsheets take some first letters for formulas, but not those of a number. */
  const FORMULA = /^(?![+-]?\d+(?:\.\d+)?$)[=+\-@\t\r]/;
  /** @type {(value: unknown) => string} */
  const field = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    if (typeof value === "number") return String(value);
    const text = String(value);
    return `"${(FORMULA.test(text) ? "'" : "") + text.replace(/"/g, '""')}"`;
  };
  /** @type {Choices["csv"]} */
  const csv = (columns, rows) =>
    `${[columns.join(","), ...rows.map((row) => columns.map((name) => field(row[name])).join(","))]
      .join("\r\n")}\r\n`;

  window.headbook.choices = { quoted, saver, fileName, cited, entry, asPdf, csv };
})();
