import { useEffect, useRef, useState } from "preact/hooks";

import { hasToken, isTokenWanted, onTokenWanted, useToken } from "../api/client";

/** Asks for a token once the planner has refused a call without a good one. */
export function TokenDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [wanted, setWanted] = useState(isTokenWanted());
  const [token, setToken] = useState("");
  useEffect(() => onTokenWanted(() => setWanted(isTokenWanted())), []);
  useEffect(() => {
    if (wanted && !dialog.current?.open) dialog.current?.showModal();
  }, [wanted]);
  if (!wanted) return null;
  return (
    <dialog ref={dialog} aria-labelledby="token-title">
      <form
        method="dialog"
        onSubmit={() => {
          useToken(token.trim());
          location.reload();
        }}
      >
        <h2 id="token-title">This planner asks for a token</h2>
        <p>
          {hasToken() ? "It does not take the one it was shown. " : ""}Whoever runs it makes one with{" "}
          <code>moeplan token create --role plan</code>. It is kept until this tab is closed.
        </p>
        <label>
          Token
          <input type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">Go on</button>
      </form>
    </dialog>
  );
}
