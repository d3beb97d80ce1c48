import { useState } from "preact/hooks";

/** Copies the page's address, which restores what it shows, and says so. */
export function CopyLink() {
  const [said, setSaid] = useState("");
  const copy = (): void => {
    // Browsers have no clipboard for pages that came over plain HTTP from another machine.
    if (navigator.clipboard === undefined) return setSaid("Copy it from the address bar.");
    navigator.clipboard.writeText(location.href).then(
      () => setSaid("Copied."),
      () => setSaid("Copy it from the address bar."),
    );
  };
  return (
    <>
      <button type="button" onClick={copy}>Copy link</button>
      <span role="status">{said}</span>
    </>
  );
}
