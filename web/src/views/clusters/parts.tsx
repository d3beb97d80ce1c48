// Small pieces that several parts of this view share.
import * as text from "../../format";
import { hrefOf } from "../../route";

interface CostLinkProps {
  profile: string;
  version?: number | undefined;
  cost: string;
}

/** To the cost's curve, samples and fit. */
export function CostLink({ profile, version, cost }: CostLinkProps) {
  return <a href={hrefOf("curves", { profile, version, cost })}>{cost}</a>;
}

/** "3 hours ago", with the time itself for who points at it. */
export function Age({ time }: { time: string }) {
  if (time === "") return <>never</>;
  return <time dateTime={time} title={time}>{text.age(time, Date.now())}</time>;
}
