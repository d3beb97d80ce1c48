// Calibrations of one cluster: the one under way with its progress, those before it, and the button that asks for the next.
import { useEffect, useRef, useState } from "preact/hooks";

import { call, CallError, hasToken, useToken } from "../../api/client";
import { ErrorNote } from "../../components/notes";
import { Table } from "../../components/table";
import * as text from "../../format";
import { hrefOf } from "../../route";
import { isActive } from "./model";
import { Age } from "./parts";

import type {
  CalibrationStatus,
  CalibrationStatus_State,
  CancelCalibrationResponse,
  StartCalibrationResponse,
} from "../../../generated/moeplan/v1/agent_service";

const defaultBudgetS = 60;

/** The same in every retry of one wish. Works over plain HTTP too, where browsers have no randomUUID. */
function newRequestId(): string {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return `dashboard ${Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function stateBadge(state: CalibrationStatus_State): { kind: string; words: string } {
  switch (state) {
    case "WAITING": return { kind: "warn", words: "waiting" };
    case "RUNNING": return { kind: "good", words: "running" };
    case "DONE": return { kind: "good", words: "done" };
    case "FAILED": return { kind: "bad", words: "failed" };
    case "CANCELLED": return { kind: "warn", words: "cancelled" };
    case "UNSPECIFIED": return { kind: "warn", words: "not said" };
  }
}

/** What was refused, and what to do about it where the caller's role is too low. */
function Refusal({ error }: { error: CallError }) {
  if (error.code !== "PERMISSION_DENIED") return <ErrorNote error={error} />;
  return (
    <div class="note error" role="alert">
      <p>{error.message}</p>
      <p>
        Starting and cancelling calibrations needs the role <code>admin</code>: <code>moeplan token create --role admin</code> makes a
        token for it.
      </p>
      {hasToken() && (
        <button type="button" onClick={() => useToken("")}>Use another token</button>
      )}
    </div>
  );
}

const asCallError = (problem: unknown): CallError =>
  problem instanceof CallError ? problem : new CallError(String(problem), "UNKNOWN");

function StartForm({ cluster, said, onStarted }: { cluster: string; said: string; onStarted: (calibration: number) => void }) {
  const [budget, setBudget] = useState(String(defaultBudgetS));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<CallError | null>(null);
  const requestId = useRef(newRequestId());

  const start = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const request = { requestId: requestId.current, cluster, budgetS: Number.isNaN(Number(budget)) ? budget : Number(budget) };
      const { calibration } = await call<StartCalibrationResponse>("AgentService/StartCalibration", request);
      requestId.current = newRequestId();
      onStarted(calibration);
    } catch (problem) {
      const refused = asCallError(problem);
      // Where nobody answered, it may have been heard all the same: the next press is a retry of this one.
      if (refused.code !== "UNREACHABLE" && refused.code !== "UNAVAILABLE") requestId.current = newRequestId();
      setError(refused);
    }
    setBusy(false);
  };

  const wrong = error?.field === "budgetS";
  return (
    <form class="start" onSubmit={(event) => { event.preventDefault(); void start(); }}>
      <div class="row">
        <label>
          Budget in seconds
          <input
            inputMode="decimal"
            autocomplete="off"
            value={budget}
            aria-invalid={wrong ? "true" : undefined}
            onInput={(event) => {
              setBudget(event.currentTarget.value);
              requestId.current = newRequestId();
            }}
          />
        </label>
        <button type="submit" class="primary" disabled={busy}>Start a calibration</button>
      </div>
      <p role="status" class="muted">{said}</p>
      {error !== null && <Refusal error={error} />}
    </form>
  );
}

function Active({ status, onCancelled }: { status: CalibrationStatus; onCancelled: () => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<CallError | null>(null);
  const { kind, words } = stateBadge(status.state);
  const cancel = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await call<CancelCalibrationResponse>("AgentService/CancelCalibration", { calibration: status.calibration });
      onCancelled();
    } catch (problem) {
      setError(asCallError(problem));
    }
    setBusy(false);
  };
  return (
    <section class="active" aria-label={`Calibration ${status.calibration}`}>
      <p>
        <span class={`badge ${kind}`}>{words}</span> Calibration {status.calibration}, asked for <Age time={status.createdAt} />:{" "}
        {text.count(status.samples)} samples so far, {text.percent(status.done)} of the budget spent.
      </p>
      <div class="row">
        <progress value={status.done} max={1} aria-label={`Share of the budget of calibration ${status.calibration} that is spent`} />
        <button type="button" disabled={busy} onClick={() => void cancel()}>Cancel<span class="visually-hidden"> calibration {status.calibration}</span></button>
      </div>
      {status.detail !== "" && <p class="muted">{status.detail}</p>}
      {error !== null && <Refusal error={error} />}
    </section>
  );
}

interface Props {
  cluster: string;
  calibrations: readonly CalibrationStatus[];
  onChanged: () => void;
}

export function Calibrations({ cluster, calibrations, onChanged }: Props) {
  const active = calibrations.filter(isActive);
  const ended = calibrations.filter((one) => !isActive(one));
  const [said, setSaid] = useState("");
  const before = useRef<readonly number[]>([]);
  const numbers = active.map(({ calibration }) => calibration);
  useEffect(() => {
    const over = ended.filter(({ calibration }) => before.current.includes(calibration));
    if (over.length > 0) setSaid(over.map(({ calibration, state }) => `Calibration ${calibration}: ${stateBadge(state).words}.`).join(" "));
    before.current = numbers;
  }, [numbers.join(" ")]);
  const started = (calibration: number): void => {
    setSaid(`Calibration ${calibration} was asked for.`);
    onChanged();
  };
  return (
    <>
      {active.map((status) => <Active key={status.calibration} status={status} onCancelled={onChanged} />)}
      <StartForm cluster={cluster} said={said} onStarted={started} />
      {ended.length > 0 && (
        <Table<CalibrationStatus>
          caption="Earlier calibrations by agents, newest first"
          rows={ended}
          keyOf={({ calibration }) => calibration}
          columns={[
            { head: "Number", numeric: true, cell: ({ calibration }) => calibration },
            {
              head: "State",
              cell: ({ state }) => {
                const { kind, words } = stateBadge(state);
                return <span class={`badge ${kind}`}>{words}</span>;
              },
            },
            { head: "Asked for", cell: ({ createdAt }) => <Age time={createdAt} /> },
            { head: "Samples", numeric: true, cell: ({ samples }) => text.count(samples) },
            {
              head: "Profile",
              cell: ({ profileName, profileVersion }) =>
                profileVersion === 0
                  ? `${profileName}, no version`
                  : <a href={hrefOf("curves", { profile: profileName, version: profileVersion })}>{profileName}, version {profileVersion}</a>,
            },
            { head: "Detail", cell: ({ detail }) => detail },
          ]}
        />
      )}
    </>
  );
}
