// Tables that sort by a click on a column's head, and show the rows that contain what is typed above them.
"use strict";

function valueOf(cell) {
  return cell.dataset.value === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.value);
}

function compareValues(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b));
}

function sortTable(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const head = heads[column];
  // Numbers begin with the greatest: that is what one looks for.
  const first = head.classList.contains("n") ? "descending" : "ascending";
  const other = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  heads.forEach((each) => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, value: valueOf(row.cells[column]) }));
  rows.sort((a, b) => sign * compareValues(a.value, b.value));
  body.append(...rows.map(({ row }) => row));
}

function filterTable(table, text, count) {
  const wanted = text.toLowerCase();
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = wanted ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sortTable(table, column));
  });
}
for (const input of document.querySelectorAll("input.filter")) {
  const table = document.getElementById(input.dataset.table);
  const count = input.parentElement.parentElement.querySelector(".count");
  input.addEventListener("input", () => filterTable(table, input.value, count));
}
