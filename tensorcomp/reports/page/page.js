"use strict";
// The table of all rows: each column has its distinct texts, in their order, and the place in these
// of each row, so that sorting by places sorts numbers as numbers. A place of -1 is no value.
const at = (id) => document.getElementById(id);
const make = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
const { columns, total, rows, nouns } = JSON.parse(at("data").textContent);
const BATCH = 100;
const table = at("table");
const body = document.createElement("tbody");
const searched = columns.filter((column) => column.left);
const text = (column, row) => column.texts[column.places[row]] ?? column.none;
let shown = [];
let key = null;
let direction = 1;

function arrange() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) =>
    searched.map(({ texts, places }) => {
      const hits = texts.map((one) => one.toLowerCase().includes(word));
      return (row) => hits[places[row]];
    }),
  );
  shown = [];
  for (let row = 0; row < rows; row++) {
    if (tests.every((columns) => columns.some((holds) => holds(row)))) shown.push(row);
  }
  if (key) {
    const { places } = key;
    shown.sort((a, b) => (places[a] < 0) - (places[b] < 0) || direction * (places[a] - places[b]));
  }
  body.replaceChildren();
  at("scroll").scrollTop = 0;
  at("count").textContent = `${shown.length.toLocaleString("en")} of ${rows.toLocaleString("en")} ${nouns}`;
  more(BATCH);
}

function more(count) {
  const batch = document.createDocumentFragment();
  for (const row of shown.slice(body.rows.length, body.rows.length + count)) {
    const line = document.createElement("tr");
    columns.forEach((column, number) => {
      const cell = make(number ? "td" : "th", text(column, row));
      if (!number) cell.scope = "row";
      if (column.left) cell.className = "left";
      line.append(cell);
    });
    batch.append(line);
  }
  body.append(batch);
  at("rest").hidden = body.rows.length === shown.length;
}

function head() {
  const line = document.createElement("tr");
  for (const column of columns) {
    const cell = make("th", "", { scope: "col", "aria-sort": "none" });
    if (column.left) cell.className = "left";
    const button = make("button", column.title, { type: "button" });
    button.addEventListener("click", () => {
      direction = key === column ? -direction : 1;
      key = column;
      for (const other of line.cells) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      arrange();
    });
    cell.append(button);
    line.append(cell);
  }
  table.createTHead().append(line);
  table.append(body);
  if (total) {
    const last = table.createTFoot().insertRow();
    total.forEach((one, n) => last.append(make("td", one, { class: columns[n].left ? "left" : "" })));
  }
}

// Points of plots: the nearest to the pointer is ringed and named.
for (const plot of document.querySelectorAll("svg.plot")) {
  const points = [...plot.querySelectorAll("path[data-rows]")].flatMap((path) => {
    const places = path.getAttribute("d").match(/[-\d.]+ [-\d.]+/g) ?? [];
    return path.dataset.rows.split(" ").map((row, n) => [...places[n].split(" ").map(Number), row]);
  });
  const said = plot.parentNode.querySelector("output");
  const ring = plot.querySelector(".ring");
  plot.addEventListener("pointermove", (event) => {
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse());
    let [nearest, least] = [null, 400];
    for (const point of points) {
      const distance = (point[0] - x) ** 2 + (point[1] - y) ** 2;
      if (distance < least) [nearest, least] = [point, distance];
    }
    ring.setAttribute("visibility", nearest ? "visible" : "hidden");
    if (!nearest) return;
    ring.setAttribute("cx", nearest[0]);
    ring.setAttribute("cy", nearest[1]);
    said.textContent = columns
      .filter(({ title }, n) => !n || ["Tensor", "Role", "Bits", "SNR dB"].includes(title))
      .map((column, n) => (n ? `${column.title} ` : "") + text(column, nearest[2]))
      .join(" · ");
  });
}

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.parentNode.querySelector("code");
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      document.execCommand("copy"); // where a page from a disk has no clipboard
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

head();
arrange();
for (const node of document.querySelectorAll(".tools, #scroll")) node.hidden = !rows;
at("filter").addEventListener("input", arrange);
at("rest").firstChild.addEventListener("click", () => more(Infinity));
new IntersectionObserver(([seen]) => seen.isIntersecting && more(BATCH), {
  root: at("scroll"),
  rootMargin: "600px",
}).observe(at("rest"));
addEventListener("beforeprint", () => more(Infinity));
