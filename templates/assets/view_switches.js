"use strict";
/* Switches of attention views. They stand in the address and nowhere else, so that a link shows
   everybody the same view. What an address holds and no choice has is ignored. */
(() => {
  const { make, all, hash, link } = window.headbook;
  const TITLES = {
    view: "Keys", units: "Tokens", rows: "Rows by", scale: "Colours", mass: "Lines up to",
  };
  const CHOICES = {
    view: {
      raw: "all keys",
      nosink: "sink masked",
      renorm: "sink masked and renormalised",
      norm: "value-weighted",
    },
    units: { pieces: "subword tokens", words: "words" },
    rows: { "": "the word that is read", written: "the word about to be written" },
    scale: { root: "square root", linear: "linear", log: "log" },
    mass: { 50: "50 %", 80: "80 %", 90: "90 %", 95: "95 %", 99: "99 %" },
  };
  const NAMES = /** @type {(keyof Settings)[]} */ (Object.keys(CHOICES));
  /** @type {Settings} */
  const DEFAULTS = { view: "raw", units: "pieces", rows: "", scale: "root", mass: "90" };
  const state = { ...DEFAULTS };
  /** @type {Wanted} */
  let place = {};
  /** @type {(() => void)[]} */
  const followers = [];

  /** @type {(values: Lookup<string>) => void} */
  const take = (values) => {
    for (const name of NAMES) {
      const value = values[name] ?? "";
      if (Object.hasOwn(CHOICES[name], value)) Object.assign(state, { [name]: value });
    }
  };
  const fromAddress = () => {
    const found = Object.fromEntries(new URLSearchParams(hash().slice(1)));
    take(DEFAULTS);
    take(found);
    const { at, heads, q, k, neurons, dock, matrix } = found;
    place = { at, heads, q, k, neurons, dock, matrix };
  };
  /** @type {Switches["address"]} */
  const address = (what = place) => {
    const given = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...what, ...state })) {
      if (value !== undefined && value !== "") given.set(name, String(value));
    }
    return `#${given}`;
  };
  /* `step`: whether Back leads to what was there before. */
  /** @type {(step?: boolean) => void} */
  const write = (step = false) => {
    const there = address(), kind = step && there !== hash() ? "pushState" : "replaceState";
    try { history[kind](null, "", link(there)); } catch { /* too many at once */ }
    for (const place of all("[data-view-link]")) place.setAttribute("href", link(address()));
  };
  const tell = () => {
    for (const select of all("select[data-switch]")) {
      for (const name of NAMES) if (select.dataset.switch === name) select.value = state[name];
    }
    followers.forEach((follow) => follow());
  };

  /* What is shown: an exemplar or a stack, heads, query and key, whether neurons and the panel are
     open; values are text. */
  /** @type {Switches["point"]} */
  const point = (what, step = false) => {
    place = what;
    write(step);
  };
  /** @type {Switches["set"]} */
  const set = (values) => {
    Object.assign(state, values);
    write(true);
    tell();
  };

  /** @type {(box: HTMLElement, name: keyof Settings) => HTMLElement} */
  const choice = (box, name) => {
    const select = make("select", { "data-switch": name });
    for (const [value, text] of Object.entries(CHOICES[name])) {
      const option = make("option", { value }, text);
      option.disabled = value === "norm" && !("carried" in box.dataset);
      select.append(option);
    }
    select.addEventListener("change", () => set({ [name]: select.value }));
    const label = make("label", {}, `${TITLES[name]} `);
    label.append(select);
    return label;
  };
  /** @type {(status: HTMLElement) => Promise<void>} */
  const copy = async (status) => {
    write();
    try {
      await navigator.clipboard.writeText(location.href);
      status.textContent = "Copied.";
    } catch {
      status.textContent = "Copying is not allowed here: take the address of the link beside.";
    }
  };
  /** @type {(box: HTMLElement) => void} */
  const startBar = (box) => {
    const button = make("button", { type: "button" }, "Copy link");
    const status = make("span", { role: "status" });
    button.addEventListener("click", () => copy(status));
    const place = make("a", { href: link(address()), "data-view-link": "" }, "Link to this view");
    const { only } = box.dataset; /* some of the switches, where a page has no use for others */
    const names = NAMES.filter((name) => (!only || only.split(" ").includes(name)) &&
      (name !== "rows" || "crosses" in box.dataset));
    box.append(...names.map((name) => choice(box, name)), button, place, status);
  };

  fromAddress();
  const first = { ...state };
  window.headbook.switches = {
    state,
    point,
    address,
    set,
    titles: CHOICES.view,
    scales: CHOICES.scale,
    names: CHOICES.units,
    place: () => place,
    changed: () => NAMES.some((name) => name !== "mass" && state[name] !== DEFAULTS[name]),
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
