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

interface Legend {
  /** What the chart shows: its name, and its first line. */
  title: string;
  /** Lines below it. */
  notes?: readonly string[];
}

const lineHeight = 18;

function addText(svg: SVGSVGElement, text: string, y: number, weight: string, color: string): void {
  const line = document.createElementNS(namespace, "text");
  for (const [name, value] of Object.entries({ x: "8", y: String(y), "font-size": "12px", "font-family": "system-ui, sans-serif", "font-weight": weight, fill: color })) {
    line.setAttribute(name, value);
  }
  line.textContent = text;
  svg.append(line);
}

/** `leave`: a selector of what serves the pointer alone. */
export function svgFile(chart: SVGSVGElement, { title, notes = [] }: Legend, leave = ".heat-catch, .heat-cursor, .heat-picked"): string {
  const copy = chart.cloneNode(true) as SVGSVGElement;
  resolve(chart, copy);
  const shown = Array.from(chart.querySelectorAll("*"));
  const copied = Array.from(copy.querySelectorAll("*"));
  shown.forEach((element, index) => element.matches(leave) && copied[index]!.remove());
  const moved = document.createElementNS(namespace, "g");
  moved.setAttribute("transform", `translate(0,${2 * lineHeight})`);
  moved.append(...Array.from(copy.childNodes));
  const width = Number(chart.getAttribute("width"));
  const below = Number(chart.getAttribute("height")) + 2 * lineHeight;
  const height = below + (notes.length + 0.5) * lineHeight;
  const style = getComputedStyle(chart.closest(".card") ?? document.body);
  const ground = document.createElementNS(namespace, "rect");
  ground.setAttribute("width", String(width));
  ground.setAttribute("height", String(height));
  ground.setAttribute("fill", style.backgroundColor);
  const name = document.createElementNS(namespace, "title");
  name.textContent = title;
  copy.append(name, ground, moved);
  addText(copy, title, 1.2 * lineHeight, "600", style.color);
  notes.forEach((note, index) => addText(copy, note, below + (index + 0.8) * lineHeight, "400", style.color));
  copy.setAttribute("xmlns", namespace);
  copy.setAttribute("height", String(height));
  copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
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
