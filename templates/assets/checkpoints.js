"use strict";
/* The atlas of checkpoints: a slider over steps changes the picture of all heads and their
   functions. The page without scripts has all steps as small pictures. */
(() => {
  const { all, one, load, root, rove } = window.headbook;
  const PAUSE = 900; /* milliseconds of a step while the steps play */

  /** @type {(box: HTMLElement) => Promise<void>} */
  const start = async (box) => {
    const { checkpoints = "", src = "" } = box.dataset;
    const steps = /** @type {CheckpointStep[]} */ ((await load(src, "checkpoints"))[checkpoints]);
    const slider = /** @type {HTMLInputElement} */ (one("input", box));
    const sheet = /** @type {HTMLImageElement} */ (one(".tiles img", box));
    const tiles = all(".tiles a", box), frames = all(".frames li", box);
    const output = one("output", box);
    const play = one("[data-play]", box);
    let timer = 0;

    const show = () => {
      const step = steps[Number(slider.value)];
      sheet.src = `${root()}${step.src}`;
      slider.setAttribute("aria-valuetext", step.name);
      output.textContent = step.name;
      step.heads.forEach(([style, label], i) => {
        tiles[i].className = style;
        tiles[i].setAttribute("aria-label", label);
        tiles[i].title = label;
      });
      frames.forEach((frame, i) => {
        if (i === Number(slider.value)) frame.setAttribute("aria-current", "step");
        else frame.removeAttribute("aria-current");
      });
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    };
    /** @type {(to: number) => void} */
    const go = (to) => {
      slider.value = String(to);
      show();
    };
    slider.addEventListener("input", () => { stop(); show(); });
    for (const button of all("[data-step]", box)) {
      button.addEventListener("click", () => {
        stop();
        go(Number(slider.value) + Number(button.dataset.step));
      });
    }
    /* From the first step; it stands still at the last. */
    play.addEventListener("click", () => {
      if (timer) { stop(); return; }
      if (Number(slider.value) === steps.length - 1) go(0);
      play.textContent = "Stop";
      timer = window.setInterval(() => {
        go(Number(slider.value) + 1);
        if (Number(slider.value) === steps.length - 1) stop();
      }, PAUSE);
    });
    play.hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
    frames.forEach((frame, i) => frame.addEventListener("click", () => { stop(); go(i); }));
    box.dataset.ready = "1";
    if (tiles.length) rove(one(".tiles", box), tiles, all("thead th", box).length);
    show();
  };

  document.addEventListener("DOMContentLoaded", () => all("[data-checkpoints]").forEach(start));
})();
