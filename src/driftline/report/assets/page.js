// The behaviour of the report's page: draws each chart when it comes near the screen, and answers the controls.
// In: the JSON in #data (figures, a pool of columns, two themes). Out: SVG. Text reaches the page as text only.
"use strict";
(() => {
  const root = document.documentElement;
  const read = () => JSON.parse(document.getElementById("data").textContent);
  let report = read();
  let rowsOf = new Map();
  const drawn = new Map(); // key -> {view, form, element, width}
  const turns = new Map(); // key -> how often a drawing was begun
  const chosen = new Map(); // "key/field" -> value, kept when a live page is made anew
  const formOf = new Map();
  const hidden = new Set();

  const night = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : night.matches);

  // -- data ------------------------------------------------------------------------------------------------------
  function rows(name) {
    if (!rowsOf.has(name)) {
      const columns = report.pool[name];
      const fields = Object.keys(columns);
      const get = fields.map((f) => (columns[f].words ? (i) => columns[f].words[columns[f].codes[i]] : (i) => columns[f][i]));
      const first = columns[fields[0]];
      const length = fields.length ? (first.words ? first.codes.length : first.length) : 0;
      rowsOf.set(name, Array.from({ length }, (_, i) => Object.fromEntries(fields.map((f, j) => [f, get[j](i)]))));
    }
    return rowsOf.get(name);
  }

  function shownRows(key, name) {
    const figure = report.figures[key];
    const wanted = figure.choices.map((c) => [c.field, choiceOf(key, c)]).filter(([, value]) => value !== "all");
    const keep = (row) =>
      !(row.run !== undefined && hidden.has(row.run) && !figure.choices.some((c) => c.field === "run")) &&
      wanted.every(([field, value]) => row[field] === undefined || row[field] === value);
    return rows(name).filter(keep).map((row) => ({ ...row }));
  }

  const choiceOf = (key, choice) => chosen.get(key + "/" + choice.field) ?? choice.chosen;
  const formNow = (key) => {
    const forms = Object.keys(report.figures[key].forms);
    return forms.includes(formOf.get(key)) ? formOf.get(key) : forms[0];
  };

  const ROW_PX = 28;
  const yOf = (spec) => (spec.encoding ?? spec.layer[0].encoding)?.y;
  const isListed = (spec) => ["nominal", "ordinal"].includes(yOf(spec)?.type); // one row a name: its height follows the data

  // -- drawing ---------------------------------------------------------------------------------------------------
  async function draw(key, print = false) {
    const element = document.querySelector(`[data-chart="${CSS.escape(key)}"]`);
    if (!element || !report.figures[key]) return;
    const form = formNow(key);
    const { spec, data } = report.figures[key].forms[form];
    const dark = !print && isDark();
    const swap = (_, value) => (dark && Object.hasOwn(report.night, value) ? report.night[value] : value);
    const own = JSON.parse(JSON.stringify(spec), swap);
    own.datasets = Object.fromEntries(Object.entries(data).map(([local, name]) => [local, shownRows(key, name)]));
    own.width = Math.max(200, element.clientWidth);
    own.config = structuredClone(report.themes[dark ? "dark" : "light"]);
    own.config.legend.columns = Math.max(2, Math.floor(own.width / 165));
    own.autosize = { type: "fit-x", contains: "padding" };
    if (own.height === "aspect") own.height = Math.round(own.width / 2.06);
    else if (isListed(own)) own.height = ROW_PX * new Set(own.datasets.d0.map((row) => row[yOf(own).field])).size;
    const turn = (turns.get(key) ?? 0) + 1;
    turns.set(key, turn);
    // `ast`: expressions are interpreted, never compiled, so that the page can forbid eval.
    const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: showTip, defaultStyle: false,
      logLevel: 1 };
    const place = document.createElement("div");
    place.setAttribute("aria-hidden", "true");
    const { view } = await vegaEmbed(place, own, options);
    if (turns.get(key) !== turn) return view.finalize(); // another drawing of this chart was asked for meanwhile
    drawn.get(key)?.view.finalize();
    element.replaceChildren(place);
    element.dataset.drawn = form;
    element.style.minHeight = "";
    drawn.set(key, { view, form, element, width: element.clientWidth });
  }

  function refresh(key) {
    const now = drawn.get(key);
    if (!now) return;
    if (isListed(report.figures[key].forms[now.form].spec)) return draw(key);
    for (const [local, name] of Object.entries(report.figures[key].forms[now.form].data)) {
      const source = shownRows(key, name);
      now.view.data(local, source);
    }
    now.view.run();
  }

  const near = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => {
      near.unobserve(e.target);
      if (!drawn.has(e.target.dataset.chart)) draw(e.target.dataset.chart);
    }),
    { rootMargin: "300px" },
  );
  const sized = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    const now = drawn.get(target.dataset.chart);
    if (now && now.element === target && Math.abs(now.width - target.clientWidth) > 1) draw(target.dataset.chart);
  }));

  function redrawAll(print = false) {
    [...drawn.keys()].forEach((key) => draw(key, print));
  }

  // -- tooltip ---------------------------------------------------------------------------------------------------
  const tip = document.getElementById("tip");
  function showTip(_handler, event, _item, value) {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = "";
    const list = document.createElement("dl");
    list.style.margin = "0";
    for (const [title, text] of Object.entries(value)) {
      const line = list.appendChild(document.createElement("div"));
      line.appendChild(document.createElement("dt")).textContent = title;
      line.appendChild(document.createElement("dd")).textContent = text;
    }
    tip.appendChild(list);
    const [x, y] = [event.clientX + 14, event.clientY + 14];
    tip.style.left = Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : y) + "px";
  }

  // -- zoom: buttons for lines (along x) and for the map ------------------------------------------------------------
  function zoom(key, factor) {
    const now = drawn.get(key);
    if (!now) return;
    if (report.figures[key].isMap) return zoomMap(now.view, factor);
    if (factor === 0) {
      now.view.signal("zoom_x", null).run();
      return;
    }
    const scale = now.view.scale("x");
    const [a, b] = scale.range();
    const margin = ((b - a) * (1 - 1 / factor)) / 2;
    now.view.signal("zoom_x", [scale.invert(a + margin), scale.invert(b - margin)].map(Number)).run();
  }

  function zoomMap(view, factor) {
    if (factor === 0) view.signal("map_lon", 0).signal("map_lat", 0).signal("map_zoom", 1).run();
    else view.signal("map_zoom", Math.min(40, Math.max(1, view.signal("map_zoom") * factor))).run();
  }

  function moveMap(view, dx, dy) {
    const degrees = 360 / (view.width() * view.signal("map_zoom"));
    view.signal("map_lon", view.signal("map_lon") - dx * degrees);
    view.signal("map_lat", Math.max(-80, Math.min(80, view.signal("map_lat") + dy * degrees))).run();
  }

  function setUpMap(element) {
    const view = () => drawn.get(element.dataset.chart)?.view;
    let from = null;
    element.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; });
    addEventListener("pointerup", () => { from = null; });
    element.addEventListener("pointermove", (e) => {
      if (!from || !view()) return;
      moveMap(view(), e.clientX - from[0], e.clientY - from[1]);
      from = [e.clientX, e.clientY];
    });
    const arrows = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    element.addEventListener("keydown", (e) => {
      if (!view()) return;
      if (arrows[e.key]) moveMap(view(), ...arrows[e.key]);
      else if (e.key === "+" || e.key === "=") zoomMap(view(), 1.5);
      else if (e.key === "-") zoomMap(view(), 1 / 1.5);
      else if (e.key === "0") zoomMap(view(), 0);
      else return;
      e.preventDefault();
    });
    element.addEventListener("wheel", (e) => {
      if (!e.shiftKey || !view()) return;
      e.preventDefault();
      zoomMap(view(), (e.deltaY || e.deltaX) < 0 ? 1.2 : 1 / 1.2);
    }, { passive: false });
  }

  // -- controls ----------------------------------------------------------------------------------------------------
  function onInput(event) {
    const { run, form, choice } = event.target.dataset;
    if (run !== undefined) {
      event.target.checked ? hidden.delete(run) : hidden.add(run);
      [...drawn.keys()].forEach(refresh);
    } else if (form !== undefined) {
      formOf.set(form, event.target.value);
      draw(form);
    } else if (choice !== undefined) {
      chosen.set(choice, event.target.value);
      refresh(choice.slice(0, choice.lastIndexOf("/")));
    }
  }

  function onClick(event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.zoom !== undefined) zoom(button.dataset.zoom, Number(button.dataset.factor));
    else if (button.id === "theme") {
      root.dataset.theme = isDark() ? "light" : "dark";
      button.setAttribute("aria-pressed", String(isDark()));
      redrawAll();
    }
  }

  function restore() {
    document.querySelectorAll("[data-run]").forEach((box) => { box.checked = !hidden.has(box.dataset.run); });
    document.querySelectorAll("[data-choice]").forEach((box) => {
      const value = chosen.get(box.dataset.choice);
      if (value !== undefined && [...box.options].some((o) => o.value === value)) box.value = value;
    });
    document.querySelectorAll("[data-form]").forEach((box) => { box.checked = box.value === formNow(box.dataset.form); });
  }

  function setUp() {
    restore();
    document.querySelectorAll("[data-chart]").forEach((element) => {
      near.observe(element);
      sized.observe(element);
      if (report.figures[element.dataset.chart]?.isMap) setUpMap(element);
    });
  }

  document.addEventListener("input", onInput);
  document.addEventListener("click", onClick);
  night.addEventListener("change", () => redrawAll());
  addEventListener("beforeprint", () => {
    document.querySelectorAll("[data-chart]").forEach((e) => draw(e.dataset.chart, true));
  });
  addEventListener("afterprint", () => redrawAll());
  setUp();

  // -- live: ask for what is new; scroll, toggles and zoom stay -------------------------------------------------------
  function take(news) {
    const same = Object.keys(news.report.figures).join() === Object.keys(report.figures).join();
    const specs = report.figures;
    report = news.report;
    rowsOf = new Map();
    if (!same) {
      const top = (e) => e.getBoundingClientRect().top;
      const seen = [...document.querySelectorAll("[data-chart]")].sort((a, b) => Math.abs(top(a)) - Math.abs(top(b)))[0];
      const heights = new Map([...document.querySelectorAll("[data-chart]")].map((e) => [e.dataset.chart, e.offsetHeight]));
      const at = seen ? top(seen) : 0;
      drawn.forEach(({ view }) => view.finalize());
      drawn.clear();
      document.getElementById("content").innerHTML = news.content;
      // Charts are drawn when they come near; until then they keep their room, so that the page does not jump.
      heights.forEach((height, key) => {
        const element = document.querySelector(`[data-chart="${CSS.escape(key)}"]`);
        if (element) element.style.minHeight = height + "px";
      });
      setUp();
      const again = seen && document.querySelector(`[data-chart="${CSS.escape(seen.dataset.chart)}"]`);
      if (again) scrollBy({ top: top(again) - at, behavior: "instant" });
      return;
    }
    const fresh = new DOMParser().parseFromString(news.content, "text/html");
    document.querySelectorAll("[data-live]").forEach((old) => {
      const now = fresh.querySelector(`[data-live="${CSS.escape(old.dataset.live)}"]`);
      if (now && now.innerHTML !== old.innerHTML) old.innerHTML = now.innerHTML;
    });
    for (const key of drawn.keys()) {
      const { form } = drawn.get(key);
      const isSame = JSON.stringify(specs[key]?.forms[form]?.spec) === JSON.stringify(report.figures[key].forms[form]?.spec);
      if (isSame) refresh(key);
      else draw(key);
    }
  }

  async function poll() {
    const state = document.getElementById("live");
    try {
      const answer = await fetch("data.json?since=" + encodeURIComponent(report.version), { cache: "no-store" });
      if (answer.status === 200) take(await answer.json());
      state.textContent = report.finished ? "finished" : "live";
      if (report.finished) return;
    } catch {
      state.textContent = "not connected: is driftline watch still running?";
    }
    setTimeout(poll, report.every_ms);
  }
  if (report.live) setTimeout(poll, report.every_ms);
})();
