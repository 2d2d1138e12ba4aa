// Two conveniences; every page is complete without them: a light/dark switch and columns that sort.
(() => {
  "use strict";
  const root = document.documentElement;
  const keep = (value) => { try { value ? localStorage.setItem("theme", value) : localStorage.removeItem("theme"); } catch { /* private window */ } };
  const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const themes = ["", "light", "dark"];
  const words = { "": "Auto", light: "Light", dark: "Dark" };

  const button = document.createElement("button");
  button.type = "button";
  button.className = "theme";
  const show = (theme) => {
    theme ? root.setAttribute("data-theme", theme) : root.removeAttribute("data-theme");
    button.textContent = words[theme];
    button.setAttribute("aria-label", `Colours: ${words[theme]}. Change`);
  };
  let theme = themes.includes(kept()) ? kept() : "";
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    keep(theme);
    show(theme);
  });
  show(theme);
  document.querySelector(".top .wrap")?.append(button);

  // Sorting moves rows of methods only; controls stay apart, and rows without a number stay last in both directions.
  // On a phone, where the head row is out of sight, there is nothing to press.
  for (const table of matchMedia("(min-width: 46.01rem)").matches ? document.querySelectorAll("table.lb") : []) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const name = head.querySelector(".colname") ?? head;
      const press = document.createElement("button");
      press.type = "button";
      press.className = "sort";
      press.append(...name.childNodes);
      name.append(press);
      press.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => column === 0 ? row.cells[0].textContent.trim() : row.cells[column].dataset.value;
        const rows = [...body.rows].sort((a, b) => {
          const x = value(a), y = value(b);
          if (x === "" || y === "") return (x === "") - (y === "");
          const order = column === 0 ? x.localeCompare(y) : Number(x) - Number(y);
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  }
})();
