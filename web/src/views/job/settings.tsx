// The advised layout in the settings of the training system, to copy.
import type { Advice } from "../../../generated/moeplan/v1/advice";
import type { BrokenRule, ExportedLayout, NotExpressible } from "../../../generated/moeplan/v1/target";
import { AsTable } from "../../charts/as_table";
import { Command } from "../../components/notes";
import { environmentText, flagLines, flagsText } from "./flags";

interface Props {
  exported: ExportedLayout;
  /** What must go of the settings that were given. */
  remove: Advice["removeArguments"];
  /** What the training system is called. */
  title: string;
}

export function Settings({ exported, remove, title }: Props) {
  const environment = environmentText(exported.environment);
  const hasFlags = exported.layoutArguments.length > 0;
  return (
    <section class="card settings" aria-labelledby="settings-title">
      <h2 id="settings-title">What to set in {title} {exported.targetVersion}</h2>
      {environment !== "" && (
        <>
          <p>Environment:</p>
          <Command text={environment} />
        </>
      )}
      {hasFlags && (
        <>
          <p>Flags that say the layout, beside the model's own:</p>
          <Command text={flagsText(exported.layoutArguments)} />
        </>
      )}
      {!hasFlags && exported.config !== "" && (
        <>
          <p>Its settings file:</p>
          <Command text={exported.config} />
        </>
      )}
      {remove.length > 0 && (
        <>
          <p>Take these out of yours:</p>
          <ul class="flag-list">{flagLines(remove).map((line) => <li key={line}><code>{line}</code></li>)}</ul>
        </>
      )}
      <Broken rules={exported.violations} title={title} />
      <LeftOut fields={exported.notExpressible} title={title} />
      {exported.arguments.length > 0 && (
        <AsTable summary="All arguments, the model's too">{() => <Command text={flagsText(exported.arguments)} />}</AsTable>
      )}
      {hasFlags && exported.config !== "" && (
        <AsTable summary="The same as a configuration file">{() => <Command text={exported.config} />}</AsTable>
      )}
    </section>
  );
}

function Broken({ rules, title }: { rules: readonly BrokenRule[]; title: string }) {
  if (rules.length === 0) return null;
  return (
    <div class="note error" role="alert">
      <p>{title} refuses these settings:</p>
      <ul>
        {rules.map(({ rule, flags, reason, source }) => (
          <li key={`${rule} ${flags.join(" ")}`}>{flags.length > 0 && <><code>{flags.join(" ")}</code>: </>}{reason}{source !== "" && <span class="muted"> ({source})</span>}</li>
        ))}
      </ul>
    </div>
  );
}

function LeftOut({ fields, title }: { fields: readonly NotExpressible[]; title: string }) {
  if (fields.length === 0) return null;
  return (
    <div class="note warning">
      <p>{title} has no setting for a part of the layout:</p>
      <ul>{fields.map(({ field, value, reason }) => <li key={field}><code>{field} {JSON.stringify(value)}</code>: {reason}</li>)}</ul>
    </div>
  );
}
