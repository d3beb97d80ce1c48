import { useRef, useState } from "preact/hooks";

import { hrefOf, parseRoute } from "../route";

interface Props {
  /** Of the answer that is shown: a link stays with it, whatever is stored later. Version 0: it came from a file. */
  profile: string;
  version: number;
}

/** Copies an address that restores what the page shows, and says so. */
export function CopyLink({ profile, version }: Props) {
  const [said, setSaid] = useState("");
  const [shown, setShown] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const address = (): string => {
    const { view, params } = parseRoute(location.hash);
    return new URL(hrefOf(view, version > 0 ? { ...params, profile, version } : params), location.href).href;
  };
  const byHand = (): void => {
    setShown(address());
    setSaid("Copy this link:");
    setTimeout(() => input.current?.select());
  };
  const copy = (): void => {
    // Browsers have no clipboard for pages that came over plain HTTP from another machine.
    if (navigator.clipboard === undefined) return byHand();
    navigator.clipboard.writeText(address()).then(
      () => setSaid("Link copied."),
      byHand,
    );
  };
  return (
    <>
      <button type="button" onClick={copy}>Copy link</button>
      <span role="status" class="muted">{said}</span>
      {shown !== "" && <input ref={input} readOnly aria-label="Link to what is shown" value={shown} />}
    </>
  );
}
