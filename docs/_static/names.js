// Names for screen readers where theme and gallery leave them out.
document.addEventListener("DOMContentLoaded", () => {
  const name = (element, text) => element.setAttribute("aria-label", text.replace(/\s+/g, " ").trim());
  for (const link of document.querySelectorAll(".sphx-glr-thumbcontainer a.internal")) name(link, link.textContent);
  for (const arrow of document.querySelectorAll("nav li.has-children > details > summary")) {
    name(arrow, `Pages of ${arrow.closest("li").querySelector("a").textContent}`);
  }
  for (const button of document.querySelectorAll(".search-button-field")) name(button, button.textContent);
});
