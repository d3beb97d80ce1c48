// Puts the files that Vite built into one, plain and compressed, with a table of where each lies.
//
// Usage: node pack.mjs DIST OUT.bin OUT.inc
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";

const types = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

const [dist, binary, table] = process.argv.slice(2);
const names = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(dist.length + 1))
  .sort((a, b) => Number(b === "index.html") - Number(a === "index.html") || (a < b ? -1 : 1));

let size = 0;
const pieces = [];
const place = (bytes) => {
  const at = size;
  pieces.push(bytes);
  size += bytes.length;
  return `${at}, ${bytes.length}`;
};

const rows = names.map((name) => {
  const type = types[extname(name)];
  if (type === undefined) throw new Error(`${name}: found an extension without a content type; add it to pack.mjs`);
  const plain = readFileSync(join(dist, name));
  const tag = createHash("sha256").update(plain).digest("hex").slice(0, 16);
  const path = name === "index.html" ? "/" : `/${name}`;
  const zipped = gzipSync(plain, { level: 9 });
  return `{"${path}", "${type}", "\\"${tag}\\"", ${name.startsWith("assets/")}, ${place(plain)}, ${place(zipped)}},\n`;
});

writeFileSync(binary, Buffer.concat(pieces));
writeFileSync(table, rows.join(""));
