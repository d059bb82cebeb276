"use strict";
/* Switches of attention views. They stand in the address and nowhere else, so that a link shows
   everybody the same view. What an address holds and no choice has is ignored. */
(() => {
  const { make, all, hash, link } = window.headbook;
  const CHOICES = {
    view: [
      "Keys",
      {
        raw: "all keys",
        nosink: "sink masked",
        renorm: "sink masked and renormalised",
        norm: "value-weighted",
      },
    ],
    units: ["Tokens", { pieces: "subword tokens", words: "words" }],
    scale: ["Colours", { root: "square root", linear: "linear", log: "log" }],
    mass: ["Lines up to", { 50: "50 %", 80: "80 %", 90: "90 %", 95: "95 %", 99: "99 %" }],
  };
  const DEFAULTS = { view: "raw", units: "pieces", scale: "root", mass: "90" };
  const state = { ...DEFAULTS };
  let place = {};
  const followers = [];

  const take = (values) => {
    for (const name of Object.keys(CHOICES)) {
      const value = values[name];
      if (typeof value === "string" && Object.hasOwn(CHOICES[name][1], value)) state[name] = value;
    }
  };
  const fromAddress = () => {
    const found = Object.fromEntries(new URLSearchParams(hash().slice(1)));
    take(DEFAULTS);
    take(found);
    const { at, heads, q, k, neurons, dock } = found;
    place = { at, heads, q, k, neurons, dock };
  };
  const address = (what = place) => {
    const given = Object.entries({ ...what, ...state }).filter(
      ([, value]) => value !== undefined && value !== "",
    );
    return `#${new URLSearchParams(given)}`;
  };
  /* `step`: whether Back leads to what was there before. */
  const write = (step = false) => {
    const there = address(), kind = step && there !== hash() ? "pushState" : "replaceState";
    try { history[kind](null, "", link(there)); } catch { /* too many at once */ }
    for (const place of all("[data-view-link]")) place.setAttribute("href", link(address()));
  };
  const tell = () => {
    for (const select of all("select[data-switch]")) select.value = state[select.dataset.switch];
    followers.forEach((follow) => follow());
  };

  /* What is shown: an exemplar or a stack, heads, query and key, whether neurons and the panel are
     open; values are text. */
  const point = (what, step = false) => {
    place = what;
    write(step);
  };
  const set = (name, value) => {
    state[name] = value;
    write(true);
    tell();
  };

  const choice = (box, name) => {
    const [title, values] = CHOICES[name];
    const select = make("select", { "data-switch": name });
    for (const [value, text] of Object.entries(values)) {
      const option = make("option", { value }, text);
      option.disabled = value === "norm" && !("carried" in box.dataset);
      select.append(option);
    }
    select.addEventListener("change", () => set(name, select.value));
    const label = make("label", {}, `${title} `);
    label.append(select);
    return label;
  };
  const copy = async (status) => {
    write();
    try {
      await navigator.clipboard.writeText(location.href);
      status.textContent = "Copied.";
    } catch {
      status.textContent = "Copying is not allowed here: take the address of the link beside.";
    }
  };
  const startBar = (box) => {
    const button = make("button", { type: "button" }, "Copy link");
    const status = make("span", { role: "status" });
    button.addEventListener("click", () => copy(status));
    const place = make("a", { href: link(address()), "data-view-link": "" }, "Link to this view");
    box.append(...Object.keys(CHOICES).map((name) => choice(box, name)), button, place, status);
  };

  fromAddress();
  const first = { ...state };
  window.headbook.switches = {
    state,
    point,
    address,
    set,
    titles: CHOICES.view[1],
    scales: CHOICES.scale[1],
    names: CHOICES.units[1],
    place: () => place,
    changed: () =>
      Object.keys(DEFAULTS).some((name) => name !== "mass" && state[name] !== DEFAULTS[name]),
    follow: (call) => followers.push(call),
  };
  document.addEventListener("DOMContentLoaded", () => {
    all("[data-switches]").forEach(startBar);
    tell();
  });
  window.addEventListener("hashchange", () => {
    if (hash() === "") Object.assign(state, first); /* back to where the page began */
    else if (!hash().includes("=")) return;
    fromAddress();
    tell();
  });
})();
