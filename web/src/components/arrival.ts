// Where what was chosen appears elsewhere on the page, the page and the focus go there.
import { useEffect, useRef } from "preact/hooks";

/** Whenever `what` becomes another than null while the page is there; an address that names it from the start moves nothing. */
export function useArrival(what: string | null, placeOf: () => HTMLElement | null | undefined): void {
  const before = useRef(what);
  useEffect(() => {
    const arrived = what !== null && what !== before.current;
    before.current = what;
    if (!arrived) return;
    const place = placeOf();
    place?.scrollIntoView({ block: "nearest" });
    place?.focus({ preventScroll: true });
  }, [what]);
}
