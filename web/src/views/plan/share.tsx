// What leaves the page: the answer as a file, and the address.
import { useRef, useState } from "preact/hooks";

import type { PlanResponse } from "../../../generated/moeplan/v1/plan";
import { fileNameOf } from "./plan_facts";

function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

export function Share({ answer }: { answer: PlanResponse }) {
  const [told, setTold] = useState("");
  const [address, setAddress] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(location.href);
      setTold("Link copied.");
    } catch {
      // Browsers keep the clipboard from pages that came over plain HTTP.
      setAddress(location.href);
      setTold("Copy this link:");
      setTimeout(() => input.current?.select());
    }
  };
  return (
    <div class="share">
      <button type="button" onClick={() => download(fileNameOf(answer), `${JSON.stringify(answer, null, 2)}\n`)}>Download answer (JSON)</button>
      <button type="button" onClick={() => void copy()}>Copy link</button>
      <span role="status" class="muted">{told}</span>
      {address !== "" && <input ref={input} readOnly aria-label="Link to this plan" value={address} />}
    </div>
  );
}
