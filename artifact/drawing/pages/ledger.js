// Search, filters and sorting for the ledger, by the DataTables that the Python package itables bundles. `itables.js`,
// which the book's build writes beside the page, holds it; without it, or without a script, the table stays whole.
(async () => {
  const bundle = window.itablesBundle;
  const table = document.querySelector("table.ledger");
  if (!bundle || !table) return;
  const bytes = Uint8Array.from(atob(bundle), (c) => c.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: "application/javascript" }));
  const { ITable } = await import(url);
  URL.revokeObjectURL(url);

  // Heads of sections stand where rows are in their order, and not where they are sorted otherwise.
  const heads = new Map();
  for (const head of table.querySelectorAll("tr.group")) {
    heads.set(head.textContent, head);
    head.remove();
  }
  const column = (name) =>
    [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === name);
  const columns = { source: column("Source"), GPU: column("GPU of the source") };
  const measured = [...table.tHead.rows[0].cells].filter((cell) => "gpu" in cell.dataset); // a column for each GPU
  for (const cell of measured)
    columns[measured.length > 1 ? `verdict on ${cell.textContent.trim()}` : "verdict"] = cell.cellIndex;
  const found = {}; // before the library changes the table
  for (const [name, at] of Object.entries(columns)) {
    const words = [...table.tBodies[0].rows].flatMap((row) => {
      const said = row.cells[at].dataset.verdict ?? row.cells[at].textContent;
      return name === "GPU" ? said.split(", ") : [said];
    });
    found[name] = [...new Set(words)];
  }
  const { dt } = new ITable(table, {
    autoWidth: false,
    layout: { topStart: null, topEnd: null, bottomStart: "info", bottomEnd: null },
    order: [],
    paging: false,
  });

  const group = () => {
    const grouped = !dt.order().length;
    table.classList.toggle("grouped", grouped);
    let last;
    for (const row of grouped ? [...table.tBodies[0].rows] : []) {
      if (row.dataset.group && row.dataset.group !== last) row.before(heads.get(row.dataset.group));
      last = row.dataset.group;
    }
  };
  dt.on("draw", group);
  group();

  const filters = document.createElement("div");
  filters.className = "ledger-filters";
  // What is asked for stands in the address, which can be passed on.
  const asked = new URLSearchParams(location.search);
  const keep = (name, value) => {
    if (value) asked.set(name, value);
    else asked.delete(name);
    const query = asked.toString();
    history.replaceState(null, "", `${location.pathname}${query && `?${query}`}${location.hash}`);
  };
  const add = (name, field) => {
    const label = document.createElement("label");
    label.append(`${name} `, field);
    filters.append(label);
    return field;
  };
  const search = add("search", document.createElement("input"));
  search.type = "search";
  search.addEventListener("input", () => {
    keep("search", search.value);
    dt.search(search.value).draw();
  });
  for (const [name, at] of Object.entries(columns)) {
    const select = add(name, document.createElement("select"));
    select.append(new Option("all", ""), ...found[name].map((word) => new Option(word, word)));
    select.addEventListener("change", () => {
      keep(name, select.value);
      const word = select.value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      const whole = name.startsWith("verdict") ? `^${word}:` : `(^|, )${word}($|, )`;
      dt.column(at).search(word && whole, { regex: true, smart: false }).draw();
    });
  }
  const box = table.closest("div[style]"); // of a window's height, its head always in sight; whole in print
  box.before(filters);
  box.classList.add("ledger-box");
  addEventListener("beforeprint", () => {
    for (const why of table.querySelectorAll("details")) why.open = true;
  });
  for (const label of filters.children) {
    const field = label.lastElementChild;
    field.value = asked.get(label.firstChild.data.trim()) ?? "";
    if (field.value) field.dispatchEvent(new Event(field.tagName === "INPUT" ? "input" : "change"));
  }
  const row = location.hash && document.getElementById(location.hash.slice(1));
  if (row) row.scrollIntoView();
})();
