// What the pages do in the browser: change a picture without losing the keyboard's place, and remember light or dark.
window.veena = {
  draw(id, svg) {
    const place = document.getElementById(id);
    if (!place) return;
    const held = place.contains(document.activeElement) ? document.activeElement.dataset.unit : undefined;
    place.innerHTML = svg;
    if (held !== undefined) {
      for (const each of place.querySelectorAll("a[data-unit]")) if (each.dataset.unit === held) each.focus({ preventScroll: true });
    }
  },
  toEnd(id) {
    const place = document.getElementById(id);
    if (place) place.scrollTop = place.scrollHeight;
  },
};
