// The index: search, filters, sorting. Everywhere: a button that copies a command. Without it all content is there.
(() => {
  "use strict";

  const table = document.querySelector("[data-papers]");
  if (table) index(table);
  for (const block of document.querySelectorAll("[data-copy]")) copyButton(block);
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

  function index(table) {
    const form = document.querySelector("[data-filters]");
    const shown = document.querySelector("[data-shown]");
    const reset = document.querySelector("[data-reset]");
    const nothing = document.querySelector("[data-nothing]");
    const body = table.tBodies[0];
    const rows = [...body.querySelectorAll("[data-row]")];
    const heads = [...table.querySelectorAll("[data-sort]")];
    const fields = ["q", "family", "test", "basis", "verdict"];
    const state = { sort: "title", order: "ascending" };

    for (const head of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      button.addEventListener("click", () => {
        const again = state.sort === head.dataset.sort && state.order === "ascending";
        state.sort = head.dataset.sort;
        state.order = again ? "descending" : "ascending";
        sort();
        remember();
      });
      head.replaceChildren(button);
    }

    function sort() {
      const sign = state.order === "ascending" ? 1 : -1;
      rows.sort((a, b) => sign * a.dataset[state.sort].localeCompare(b.dataset[state.sort]) || a.dataset.title.localeCompare(b.dataset.title));
      body.append(...rows);
      for (const head of heads) {
        if (head.dataset.sort === state.sort) head.setAttribute("aria-sort", state.order);
        else head.removeAttribute("aria-sort");
      }
    }

    function filter() {
      const wanted = Object.fromEntries(fields.map((name) => [name, form.elements[name].value]));
      const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        const data = row.dataset;
        const fits = words.every((word) => data.text.includes(word))
          && (!wanted.family || data.family === wanted.family)
          && (!wanted.test || data.tests.split(" ").includes(wanted.test))
          && (!wanted.basis || data.basis === wanted.basis)
          && (!wanted.verdict || data.verdicts.split("|").includes(wanted.verdict));
        row.hidden = !fits;
        count += fits;
      }
      shown.textContent = count === rows.length ? "All papers" : `Showing ${count} of ${rows.length} papers`;
      reset.hidden = fields.every((name) => !wanted[name]);
      nothing.hidden = count > 0;
    }

    // The choice is kept in the address, so that "back" from a paper returns to it.
    function remember() {
      const kept = new URLSearchParams();
      for (const name of fields) if (form.elements[name].value) kept.set(name, form.elements[name].value);
      if (state.sort !== "title" || state.order !== "ascending") kept.set("sort", `${state.sort} ${state.order}`);
      try {
        history.replaceState(null, "", `#${kept}`);
      } catch {
        // A browser that forbids it for files keeps nothing; the page works all the same.
      }
    }

    function recall() {
      const kept = new URLSearchParams(location.hash.slice(1));
      for (const name of fields) {
        const value = kept.get(name);
        const field = form.elements[name];
        if (value && (field.tagName !== "SELECT" || [...field.options].some((o) => o.value === value))) field.value = value;
      }
      const [by, order] = (kept.get("sort") || "").split(" ");
      if (heads.some((head) => head.dataset.sort === by)) {
        state.sort = by;
        state.order = order === "descending" ? "descending" : "ascending";
      }
    }

    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { filter(); remember(); });
    form.addEventListener("reset", () => setTimeout(() => { filter(); remember(); form.elements.q.focus(); }));
    recall();
    sort();
    filter();
  }

  function copyButton(block) {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.querySelector("code").textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
})();
