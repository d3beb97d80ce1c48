import type { ComponentChildren } from "preact";

export interface Column<Row> {
  head: string;
  /** Numbers stand right. */
  numeric?: boolean;
  cell: (row: Row) => ComponentChildren;
}

interface Props<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row, index: number) => string | number;
  /** Marks a row as the one that is shown elsewhere on the page. */
  isCurrent?: (row: Row) => boolean;
}

/** A table that scrolls inside itself where the page is narrow. The first column names the row. */
export function Table<Row>({ caption, columns, rows, keyOf, isCurrent }: Props<Row>) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption><span>{caption}</span></caption>
        <thead>
          <tr>{columns.map(({ head, numeric }) => <th key={head} scope="col" class={numeric ? "number" : undefined}>{head}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)} aria-current={isCurrent?.(row) ? "true" : undefined}>
              {columns.map(({ head, numeric, cell }, column) =>
                column === 0
                  ? <th key={head} scope="row" class={numeric ? "number" : undefined}>{cell(row)}</th>
                  : <td key={head} class={numeric ? "number" : undefined}>{cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
