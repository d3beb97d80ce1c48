// The clusters by name: a list to choose from, filtered and paged.
import { hrefOf, setParams, type Params } from "../../route";
import { badgesOf, namedLike, shapeOf, shapeText, type ClusterEntry } from "./model";
import { Age } from "./parts";

const pageSize = 12;

interface Props {
  entries: readonly ClusterEntry[];
  current: string;
  params: Params;
}

export function ClusterList({ entries, current, params }: Props) {
  const filter = params["filter"] ?? "";
  const shown = namedLike(entries, filter);
  const pages = Math.max(1, Math.ceil(shown.length / pageSize));
  const page = Math.min(pages, Math.max(1, Math.trunc(Number(params["page"] ?? 1)) || 1));
  const rows = shown.slice((page - 1) * pageSize, page * pageSize);
  return (
    <nav class="card cluster-list" aria-label="Clusters">
      {(entries.length > 5 || filter !== "") && (
        <label>
          Name contains
          <input
            type="search"
            value={filter}
            onInput={(event) => setParams({ filter: event.currentTarget.value, page: undefined }, true)}
          />
        </label>
      )}
      <p role="status" class="muted">
        {shown.length === entries.length ? `${entries.length} ${entries.length === 1 ? "cluster" : "clusters"}` : `${shown.length} of ${entries.length} clusters`}
      </p>
      <ul class="plain">
        {rows.map((entry) => {
          const shape = shapeOf(entry);
          return (
            <li key={entry.name}>
              <a href={hrefOf("clusters", { ...params, profile: entry.name })} aria-current={entry.name === current ? "true" : undefined}>
                <strong>{entry.name}</strong>
                <span class="line2">
                  {shape !== null && shapeText(shape)}
                  {entry.overview !== null && <>, calibrated <Age time={entry.overview.createdAt} /></>}
                </span>
              </a>
              {badgesOf(entry).map(({ kind, text: words }) => <span key={words} class={`badge ${kind}`}>{words}</span>)}
            </li>
          );
        })}
      </ul>
      {pages > 1 && (
        <div class="row pager">
          <button type="button" disabled={page === 1} onClick={() => setParams({ page: page - 1 === 1 ? undefined : page - 1 }, true)}>Previous</button>
          <span>Page {page} of {pages}</span>
          <button type="button" disabled={page === pages} onClick={() => setParams({ page: page + 1 }, true)}>Next</button>
        </div>
      )}
    </nav>
  );
}
