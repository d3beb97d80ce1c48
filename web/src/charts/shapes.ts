// A shape for each family beside its colour, as paths: all points of one family are one path. Pure.
import { familyClass } from "./colors";

type Draw = (r: number) => string;

const shapes: readonly { name: string; draw: Draw }[] = [
  { name: "circle", draw: (r) => `m${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z` },
  { name: "ring", draw: (r) => `m${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0zm${r / 2},0a${r / 2},${r / 2} 0 1,1 ${r},0a${r / 2},${r / 2} 0 1,1 ${-r},0z` },
  { name: "square", draw: (r) => `m${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z` },
  { name: "diamond", draw: (r) => `m0,${-1.3 * r}l${1.3 * r},${1.3 * r}l${-1.3 * r},${1.3 * r}l${-1.3 * r},${-1.3 * r}z` },
  { name: "triangle", draw: (r) => `m0,${-1.2 * r}l${1.2 * r},${2.2 * r}h${-2.4 * r}z` },
  { name: "triangle downwards", draw: (r) => `m0,${1.2 * r}l${1.2 * r},${-2.2 * r}h${-2.4 * r}z` },
  { name: "upright bar", draw: (r) => `m${-r / 2},${-1.3 * r}h${r}v${2.6 * r}h${-r}z` },
  { name: "cross", draw: (r) => `m${-r / 2},${-1.3 * r}h${r}v${0.8 * r}h${0.8 * r}v${r}h${-0.8 * r}v${0.8 * r}h${-r}v${-0.8 * r}h${-0.8 * r}v${-r}h${0.8 * r}z` },
  { name: "hourglass", draw: (r) => `m${-r},${-r}h${2 * r}l${-2 * r},${2 * r}h${2 * r}z` },
  { name: "flat bar", draw: (r) => `m${-1.3 * r},${-r / 2}h${2.6 * r}v${r}h${-2.6 * r}z` },
];

/** Numbers beyond the last shape begin again, so that every number has one. */
const shapeAt = (index: number): (typeof shapes)[number] => shapes[index % shapes.length]!;

const indexOf = (family: string): number => Number(familyClass(family).slice("family-".length));

export const shapeName = (family: string): string => shapeAt(indexOf(family)).name;

/** The shape of that number at each place, in px. */
export function markPath(index: number, places: Iterable<{ x: number; y: number }>, radius = 3.2): string {
  const mark = shapeAt(index).draw(radius);
  let path = "";
  for (const { x, y } of places) path += `M${x.toFixed(1)},${y.toFixed(1)}${mark}`;
  return path;
}

/** The family's shape at each place, in px. */
export const shapePath = (family: string, places: Iterable<{ x: number; y: number }>, radius?: number): string => markPath(indexOf(family), places, radius);

/** The index of the nearest place within `most` px; -1: none. */
export function nearest(places: readonly { x: number; y: number }[], x: number, y: number, most: number): number {
  let found = -1;
  let least = most * most;
  places.forEach((place, index) => {
    const distance = (place.x - x) ** 2 + (place.y - y) ** 2;
    if (distance <= least) {
      least = distance;
      found = index;
    }
  });
  return found;
}
