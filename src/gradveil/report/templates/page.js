"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const one = (selector, from = document) => from.querySelector(selector);
  all("[data-scripted]").forEach((element) => { element.hidden = false; });

  // Day and night: the system's choice until the reader makes one.
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = one("#theme");
  const night = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const label = () => { theme.textContent = night() ? "Light" : "Dark"; };
  try {
    const kept = localStorage.getItem("gradveil-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* a page that may not remember still works */ }
  theme.addEventListener("click", () => {
    root.dataset.theme = night() ? "light" : "dark";
    try { localStorage.setItem("gradveil-theme", root.dataset.theme); } catch { /* as above */ }
    label();
  });
  dark.addEventListener("change", label);
  label();

  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    if (a !== "" && b !== "" && !Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const put = (parent, elements) => {
    const fragment = document.createDocumentFragment();
    elements.forEach((element) => fragment.append(element));
    parent.append(fragment);
  };

  // Tables: every head becomes a button.
  all("table[data-sortable]").forEach((table) => {
    const body = table.tBodies[0];
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        const down = before === null ? numeric : before === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [value(row), row]);
        // What is missing stays at the end, whichever way round.
        rows.sort(([a], [b]) => (a === "" || b === "" ? compare(a, b) : down ? compare(b, a) : compare(a, b)));
        put(body, rows.map(([, row]) => row));
      });
    });
  });

  // Search boxes of tables.
  all("input[data-search]").forEach((box) => {
    const table = document.getElementById(box.dataset.search);
    const count = document.getElementById(`${box.dataset.search}-count`);
    const rows = [...table.tBodies[0].rows].map((row) => [row, row.cells[0].textContent.toLowerCase() + " " + row.cells[1].textContent.toLowerCase()]);
    const show = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach(([row, text]) => {
        const fits = words.every((word) => text.includes(word));
        row.hidden = !fits;
        shown += fits;
      });
      count.textContent = `${shown} of ${rows.length} images`;
    };
    box.addEventListener("input", show);
    show();
  });

  // Addresses lead into what is folded away.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    if (target) target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  all('a[href^="#"]').forEach((link) => link.addEventListener("click", () => setTimeout(unfold)));
  if (location.hash) unfold();

  // The wall: stage, attack and network choose cards, defense and attacker the pictures on them.
  const wall = one("#wall-tiles");
  if (wall) {
    const tiles = [...wall.children].map((element) => ({ element, ...element.dataset, text: element.dataset.text.toLowerCase() }));
    const pictures = all("figure[data-defense]", wall);
    const filters = all("select[data-filter]");
    const search = one("#wall-search");
    const buttons = all("button[data-sort]");
    const count = one("#wall-count");
    const more = one("#wall-more");
    const step = 24;
    let most = step;
    const within = (select) => select.dataset.filter === "defense" || select.dataset.filter === "attacker";
    const filter = () => {
      const asked = filters.filter((select) => select.value !== "");
      const wanted = asked.filter((select) => !within(select)).map((select) => [select.dataset.filter, select.value]);
      const inside = asked.filter(within).map((select) => [select.dataset.filter, select.value]);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      pictures.forEach((figure) => {
        const hide = !inside.every(([name, value]) => !(name in figure.dataset) || figure.dataset[name] === value);
        if (figure.hidden !== hide) figure.hidden = hide;
      });
      let found = 0;
      tiles.forEach((tile) => {
        const fits = wanted.every(([name, value]) => tile[name] === value) && words.every((word) => tile.text.includes(word));
        found += fits;
        const hide = !fits || found > most;
        if (tile.element.hidden !== hide) tile.element.hidden = hide;
      });
      const shown = Math.min(found, most);
      count.textContent = `Showing ${shown} of ${found}` + (found < tiles.length ? ` that fit, of ${tiles.length}` : "") + " images";
      more.hidden = shown === found;
    };
    const arrange = (button) => {
      const again = button.getAttribute("aria-pressed") === "true";
      const down = again ? button.dataset.down !== "yes" : button.dataset.sort !== "index";
      button.dataset.down = down ? "yes" : "no";
      buttons.forEach((other) => {
        other.setAttribute("aria-pressed", String(other === button));
        one("span", other).textContent = other === button ? (down ? " ↓" : " ↑") : "";
      });
      const key = button.dataset.sort;
      // Many are first in their lineup: of equals, those with more detail come first.
      tiles.sort((a, b) => (down ? -1 : 1) * (a[key] - b[key]) || b.detail - a.detail || a.index - b.index);
      put(wall, tiles.map((tile) => tile.element));
      most = step;
      filter();
    };
    const again = () => { most = step; filter(); };
    filters.forEach((select) => select.addEventListener("change", again));
    search.addEventListener("input", again);
    more.addEventListener("click", () => { most += 4 * step; filter(); });
    buttons.forEach((button) => button.addEventListener("click", () => arrange(button)));
    one("#wall-reset").addEventListener("click", () => {
      filters.forEach((select) => { select.value = ""; });
      search.value = "";
      again();
    });
    filter();
  }

  // Paper has no clicks.
  window.addEventListener("beforeprint", () => all("details").forEach((element) => { element.open = true; }));
})();
