"use strict";
/* The page of all heads: controls, the table and the picture of the list that they leave. */
(() => {
  const { make, all, load, root, hash, link } = window.headbook;
  const { unpacked } = window.headbook.numbers;
  const { opened, beginning, read, write, passes, order, rowOf, WORDS } = window.headbook.list;

  const start = async (box) => {
    const list = opened(await load(box.dataset.src, "headlist"));
    const limit = Number(box.dataset.limit);
    const table = document.querySelector(".finding"), body = table.tBodies[0];
    const status = document.querySelector("[data-count]"),
      rest = document.querySelector("[data-all]");
    const numbers = new Map();
    const state = read(list, hash());
    let rows = new Map(), whole = false, drawn = "", show = () => {}, asked = 0;

    /* The numbers of some columns. */
    const ready = (keys) => Promise.all(keys.filter((key) => !numbers.has(key)).map(async (key) => {
      const column = list.columns.get(key);
      const file = await load(
        `${box.dataset.values}${column.metric}.js`,
        `values-${column.metric}`,
      );
      numbers.set(key, { ...column, ...unpacked(file[key]) });
    }));

    /* What the filters leave; quick, since it follows every key that is pressed. */
    const draw = () => {
      const found = list.heads.filter(passes(state, numbers)).sort(order(state, numbers));
      const columns = state.columns.map((key) => numbers.get(key));
      const listed = whole ? found : found.slice(0, limit);
      body.replaceChildren(...listed.map((head) => {
        if (!rows.has(head.i)) rows.set(head.i, rowOf(head, columns));
        return rows.get(head.i);
      }));
      const many = (amount) => amount.toLocaleString("en-US");
      const left =
        listed.length < found.length ? `; the first ${many(listed.length)} are listed` : "";
      status.textContent = `${many(found.length)} of ${many(list.heads.length)} heads${left}`;
      rest.hidden = !left;
      show(new Set(found.map((head) => head.i)));
    };
    const plot = () => {
      const stage = document.querySelector("[data-plot]");
      const place = [state.x, state.y, stage.clientWidth].join(" ");
      if (!state.x || !state.y || place === drawn) return;
      drawn = place;
      show = window.headbook.scatter(stage.querySelector("[data-stage]"), {
        heads: list.heads,
        stacks: list.stacks,
        root: root(),
        x: numbers.get(state.x),
        y: numbers.get(state.y),
      });
    };
    const keep = () => {
      try {
        history.replaceState(null, "", link(write(list, state) || "#"));
      } catch { /* too many at once */ }
    };
    const change = (values) => {
      Object.assign(state, values);
      keep();
      draw();
    };

    const toList = () => {
      if (write(list, state)) status.scrollIntoView({ behavior: "instant" });
    };

    /* Headings: each sorts, those of numbers hold a range and can go. */
    const sortBy = (key) => {
      change({ sort: key, down: state.sort === key ? !state.down : list.columns.has(key) });
      mark();
    };
    const mark = () => {
      for (const heading of all("th[data-key]", table)) {
        const own = heading.dataset.key === state.sort;
        if (own) heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else heading.removeAttribute("aria-sort");
      }
    };
    const heading = (key, title, unit) => {
      const cell = make("th", { scope: "col", "data-key": key });
      const button = make("button", { type: "button", class: "sorter" }, title);
      button.addEventListener("click", () => sortBy(key));
      cell.append(button);
      if (unit) cell.append(" ", make("small", {}, unit));
      return cell;
    };
    const remove = (key) => {
      const ranges = new Map(state.ranges);
      ranges.delete(key);
      const left = state.columns.filter((each) => each !== key);
      if (state.sort === key) Object.assign(state, { sort: "head", down: false });
      refresh({ columns: left, ranges });
      box.querySelector("[data-add]").focus();
    };
    const range = (key) => {
      const { title, share } = list.columns.get(key), cell = make("td");
      const ends = ["at least", "at most"].map((end, side) => {
        const input = make("input", {
          type: "number", step: "any", placeholder: side ? "max" : "min", "data-range": key,
          "aria-label": `${title}, ${end}${share ? ", per cent" : ""}`,
        });
        input.value = (state.ranges.get(key) || ["", ""])[side];
        input.addEventListener("input", () => {
          const both = ends.map((each) => each.value), ranges = new Map(state.ranges);
          if (both.some((each) => each !== "")) ranges.set(key, both); else ranges.delete(key);
          change({ ranges });
        });
        return input;
      });
      const close = make(
        "button",
        { type: "button", class: "remove", "aria-label": `Remove ${title}` },
        "×",
      );
      close.addEventListener("click", () => remove(key));
      cell.append(...ends, close);
      return cell;
    };
    const head = () => {
      const titles = make("tr"), ranges = make("tr", { class: "ranges" });
      const said = Object.entries(WORDS);
      titles.append(heading("head", "Head"));
      titles.append(
        ...state.columns.map((key) =>
          heading(key, list.columns.get(key).title, list.columns.get(key).unit),
        ),
      );
      titles.append(...said.map(([key, title]) => heading(key, title)));
      ranges.append(
        make("td"),
        ...state.columns.map(range),
        make("td", { colspan: String(said.length) }),
      );
      table.tHead.replaceChildren(titles, ranges);
      rows = new Map();
    };

    /* Controls show what is chosen. */
    const tell = () => {
      for (const control of all("[data-filter]", box)) {
        if (control.type === "checkbox") control.checked = state[control.dataset.filter];
        else control.value = state[control.dataset.filter];
      }
    };
    const refresh = async (values) => {
      Object.assign(state, values);
      asked += 1;
      const mine = asked;
      await ready([...new Set([...state.columns, state.x, state.y].filter(Boolean))]);
      if (mine !== asked) return;
      head();
      mark();
      tell();
      plot();
      draw();
      if (values) keep();
    };

    window.headbook.controls(box, list, {
      state,
      change,
      refresh,
      reset: () => refresh(beginning(list)),
    });
    rest.addEventListener("click", () => {
      whole = true;
      draw();
      body.querySelectorAll("a")[limit].focus();
    });
    window.addEventListener("hashchange", async () => {
      await refresh(read(list, hash()));
      table.closest(".scroll").focus({ preventScroll: true });
      toList();
    });
    window.addEventListener("resize", () => { if (drawn) { plot(); draw(); } });
    for (const still of all("[data-still]", box)) {
      still.open =
        hash().length > 1 && still.querySelector(hash().replace(/[^#\w-]/g, "")) !== null;
    }
    for (const view of all("[data-view]")) view.setAttribute("href", link(`#${view.dataset.view}`));
    await refresh();
    toList();
  };

  document.addEventListener("DOMContentLoaded", () => all("[data-list]").forEach(start));
})();
