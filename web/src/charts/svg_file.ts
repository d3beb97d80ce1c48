// A chart of the page as a file of its own: what the page's stylesheet says stands in it as attributes.

const properties = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity",
  "font-size", "font-family", "font-weight", "text-anchor",
];
const namespace = "http://www.w3.org/2000/svg";

function resolve(shown: Element, copy: Element): void {
  const style = getComputedStyle(shown);
  for (const property of properties) copy.setAttribute(property, style.getPropertyValue(property));
  copy.removeAttribute("class");
  copy.removeAttribute("aria-hidden");
  Array.from(shown.children).forEach((child, index) => resolve(child, copy.children[index]!));
}

/** `leave`: a selector of what serves the pointer alone. `title`: what the chart shows. */
export function svgFile(chart: SVGSVGElement, title: string, leave = ".heat-catch, .heat-cursor, .heat-picked"): string {
  const copy = chart.cloneNode(true) as SVGSVGElement;
  resolve(chart, copy);
  const shown = Array.from(chart.querySelectorAll("*"));
  const copied = Array.from(copy.querySelectorAll("*"));
  shown.forEach((element, index) => element.matches(leave) && copied[index]!.remove());
  const ground = document.createElementNS(namespace, "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", getComputedStyle(chart.closest(".card") ?? document.body).backgroundColor);
  const name = document.createElementNS(namespace, "title");
  name.textContent = title;
  copy.prepend(name, ground);
  copy.setAttribute("xmlns", namespace);
  copy.setAttribute("viewBox", `0 0 ${copy.getAttribute("width")} ${copy.getAttribute("height")}`);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

/** Gives the browser a file to save. */
export function saveFile(name: string, type: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
