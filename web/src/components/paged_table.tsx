// A long table: sorted by what its heads say, a page of its rows in the document at a time.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

import { sorted, type SortKey } from "./sorting";
import "./paged_table.css";

export interface SortableColumn<Row> {
  /** What `sort` calls it. */
  id: string;
  head: string;
  numeric?: boolean;
  cell: (row: Row) => ComponentChildren;
  /** Absent: cannot be sorted by. */
  sortKey?: (row: Row) => SortKey;
}

interface Props<Row> {
  caption: string;
  columns: readonly SortableColumn<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string | number;
  /** A column's id, "-" before it: downwards. Empty: as the rows come. */
  sort: string;
  onSort: (sort: string) => void;
  isCurrent?: (row: Row) => boolean;
  /** Where the page is kept; absent: here, while the table is there. */
  paging?: Paging;
}

export interface Paging {
  /** Rows of a page. */
  size: number;
  /** From 1; undefined: that of the current row, else the first. */
  page: number | undefined;
  onPage: (page: number) => void;
}

const usualSize = 100;

export function PagedTable<Row>({ caption, columns, rows, keyOf, sort, onSort, isCurrent, paging }: Props<Row>) {
  const [kept, keep] = useState(1);
  const { size: pageSize, page: wanted, onPage } = paging ?? { size: usualSize, page: kept, onPage: keep };
  const down = sort.startsWith("-");
  const id = down ? sort.slice(1) : sort;
  const sortKey = columns.find((column) => column.id === id)?.sortKey;
  // Callers make their columns anew each time; the id tells whether the order changes.
  const inOrder = useMemo(() => (sortKey === undefined ? rows : sorted(rows, sortKey, down)), [rows, id, down]);
  const pages = Math.max(1, Math.ceil(rows.length / pageSize));
  const current = isCurrent === undefined ? -1 : inOrder.findIndex(isCurrent);
  const page = Math.min(pages, Math.max(1, wanted ?? Math.floor(current / pageSize) + 1));
  const first = (page - 1) * pageSize;
  const shown = inOrder.slice(first, first + pageSize);

  return (
    <>
      <div class="table-scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <caption><span>{caption}</span></caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <Head key={column.id} column={column} order={column.id !== id ? "none" : down ? "descending" : "ascending"} onSort={onSort} />
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={keyOf(row)} aria-current={isCurrent?.(row) ? "true" : undefined}>
                {columns.map(({ id: name, numeric, cell }, column) =>
                  column === 0
                    ? <th key={name} scope="row" class={numeric ? "number" : undefined}>{cell(row)}</th>
                    : <td key={name} class={numeric ? "number" : undefined}>{cell(row)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {pages > 1 && (
        <nav class="row pages" aria-label={`Pages of: ${caption}`}>
          <button type="button" disabled={page === 1} onClick={() => onPage(page - 1)}>Previous</button>
          <span>Rows {first + 1} to {first + shown.length} of {rows.length}</span>
          <button type="button" disabled={page === pages} onClick={() => onPage(page + 1)}>Next</button>
        </nav>
      )}
    </>
  );
}

interface HeadProps<Row> {
  column: SortableColumn<Row>;
  order: "none" | "ascending" | "descending";
  onSort: (sort: string) => void;
}

function Head<Row>({ column: { id, head, numeric, sortKey }, order, onSort }: HeadProps<Row>) {
  if (sortKey === undefined) return <th scope="col" class={numeric ? "number" : undefined}>{head}</th>;
  return (
    <th scope="col" class={numeric ? "number" : undefined} aria-sort={order}>
      <button type="button" class="sort" onClick={() => onSort(order === "ascending" ? `-${id}` : id)}>
        {head}
        <span aria-hidden="true">{order === "none" ? "" : order === "ascending" ? " ▲" : " ▼"}</span>
      </button>
    </th>
  );
}
